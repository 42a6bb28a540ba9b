//! A record that borrows its names.
//!
//! Invariant: this accepts exactly what a [`Record`] may hold, so that commands and indexes accept the same records.

use smallvec::SmallVec;

use super::words::{Words, read_number};
use super::{
    BINDING_LETTERS, BindingHead, CLEANING_FIELD, CorruptRecord, IDENTITY_FIELD, LIFETIME_FIELD,
    PRINCIPAL_FIELD, decode_lifetime, field_name, letter, split_field,
};
use crate::names::{
    ContentHash, InstanceName, LabelName, LabelValue, NameError, Principal, Reason, ServerName,
    SessionId, Token, UpstreamSession, WorkerId,
};
use crate::record::{Binding, Cleaning, Record, SessionLifetime, numbers_to_follow};
use crate::time::Timestamp;

/// A record whose names are borrowed from the fields of a hash, or from a [`Record`]. Indexes are updated with it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BorrowedRecord<'a> {
    pub(crate) lifetime: SessionLifetime,
    pub(crate) principal: &'a str,
    pub(crate) identity: Identity<'a>,
    pub(crate) cleaning: Option<BorrowedCleaning<'a>>,
    labels: SmallVec<[(&'a str, &'a str); 4]>,
    /// Ordered by server.
    pub(crate) bindings: SmallVec<[BorrowedBinding<'a>; 1]>,
}

/// The contents of the field `z`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct BorrowedCleaning<'a> {
    worker: Option<&'a str>,
    pub(crate) lease_until: Timestamp,
}

/// One binding with the name of its server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct BorrowedBinding<'a> {
    pub(crate) server: &'a str,
    pub(crate) head: BindingHead<'a>,
    token: &'a str,
    previous: Option<&'a str>,
    reason: Option<&'a str>,
    unreported_loss: Option<&'a str>,
}

impl<'a> BorrowedRecord<'a> {
    /// Reads and checks a whole record, as [`decode`] does.
    ///
    /// # Errors
    /// As [`decode`].
    pub fn decode(
        fields: impl IntoIterator<Item = (&'a [u8], &'a [u8])>,
    ) -> Result<Self, CorruptRecord> {
        let (mut lifetime, mut principal, mut identity, mut cleaning) = (None, None, None, None);
        let mut labels = SmallVec::new();
        let mut of_bindings = SmallVec::<[ServerField<'a>; 8]>::new();
        for (field, value) in fields {
            match split_field(field) {
                Some((letter::LABEL, name)) => labels.push((
                    read(field, name, LabelName::check)?,
                    read(field, value, LabelValue::check)?,
                )),
                Some((letter, server)) if BINDING_LETTERS.contains(&letter) => {
                    of_bindings.push((server, letter, value));
                }
                Some(_) => {}
                None if field == LIFETIME_FIELD.as_bytes() => {
                    lifetime = Some(decode_lifetime(value)?)
                }
                None if field == PRINCIPAL_FIELD.as_bytes() => {
                    principal = Some(read(field, value, Principal::check)?);
                }
                None if field == IDENTITY_FIELD.as_bytes() => {
                    let corrupt = || CorruptRecord::field(field);
                    identity = Some(Identity::read(value).ok_or_else(corrupt)?);
                }
                None if field == CLEANING_FIELD.as_bytes() => {
                    let corrupt = || CorruptRecord::field(field);
                    cleaning = Some(BorrowedCleaning::read(value).ok_or_else(corrupt)?);
                }
                None => {}
            }
        }
        of_bindings.sort_unstable_by_key(|(server, ..)| *server);
        let missing = |field: &str| CorruptRecord::field(field.as_bytes());
        Ok(Self {
            lifetime: lifetime.ok_or_else(|| missing(LIFETIME_FIELD))?,
            identity: identity.ok_or_else(|| missing(IDENTITY_FIELD))?,
            principal: principal.ok_or_else(|| missing(PRINCIPAL_FIELD))?,
            cleaning,
            labels,
            bindings: of_bindings
                .chunk_by(|(one, ..), (other, ..)| one == other)
                .filter_map(BorrowedBinding::read)
                .collect::<Result<_, _>>()?,
        })
    }

    /// Borrows a record.
    #[must_use]
    pub fn of(record: &'a Record) -> Self {
        let labels = record.labels.iter();
        let bindings = record.bindings.iter();
        Self {
            lifetime: record.lifetime,
            principal: record.principal.as_str(),
            identity: Identity {
                generation: record.generation,
                highest_epoch: record.highest_epoch,
                id: record.id.as_str(),
                content_hash: record.content_hash.as_ref().map(|hash| hash.as_str()),
            },
            cleaning: record.cleaning.as_ref().map(|cleaning| BorrowedCleaning {
                worker: cleaning.worker.as_ref().map(WorkerId::as_str),
                lease_until: cleaning.lease_until,
            }),
            labels: labels
                .map(|(name, value)| (name.as_str(), value.as_str()))
                .collect(),
            bindings: bindings
                .map(|(server, binding)| BorrowedBinding::of(server, binding))
                .collect(),
        }
    }

    /// As [`Record::numbers_to_follow`].
    #[must_use]
    pub fn numbers_to_follow(&self, now: Timestamp) -> u64 {
        numbers_to_follow(self.identity.generation, self.identity.highest_epoch, now)
    }

    /// An owned copy.
    pub(super) fn to_record(&self) -> Record {
        let labels = self.labels.iter();
        let bindings = self.bindings.iter();
        Record {
            id: SessionId::of_checked(self.identity.id),
            principal: Principal::of_checked(self.principal),
            generation: self.identity.generation,
            highest_epoch: self.identity.highest_epoch,
            lifetime: self.lifetime,
            content_hash: self.identity.content_hash.map(ContentHash::of_checked),
            labels: labels
                .map(|(name, value)| (LabelName::of_checked(name), LabelValue::of_checked(value)))
                .collect(),
            bindings: bindings
                .map(|binding| (ServerName::of_checked(binding.server), binding.to_binding()))
                .collect(),
            cleaning: self.cleaning.map(|cleaning| Cleaning {
                worker: cleaning.worker.map(WorkerId::of_checked),
                lease_until: cleaning.lease_until,
            }),
        }
    }
}

/// The contents of the field `id`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Identity<'a> {
    generation: u64,
    highest_epoch: u64,
    id: &'a str,
    pub(crate) content_hash: Option<&'a str>,
}

impl<'a> Identity<'a> {
    fn read(value: &'a [u8]) -> Option<Self> {
        let mut words = Words::of(value)?;
        let identity = Self {
            generation: words.number()?,
            highest_epoch: words.number()?,
            id: SessionId::check(words.next()?).ok()?,
            content_hash: match words.next() {
                Some(hash) => Some(ContentHash::check(hash).ok()?),
                None => None,
            },
        };
        words.is_at_end().then_some(identity)
    }
}

impl<'a> BorrowedCleaning<'a> {
    fn read(value: &'a [u8]) -> Option<Self> {
        let space = value.iter().position(|byte| *byte == b' ')?;
        let (until, worker) = value.split_at_checked(space)?;
        let worker = worker.get(1..)?;
        Some(Self {
            worker: match worker {
                b"-" => None,
                name => Some(WorkerId::check(name).ok()?),
            },
            lease_until: Timestamp::from_unix_ms(read_number(until)?),
        })
    }
}

/// A field of a binding: its server, its letter and its value.
type ServerField<'a> = (&'a [u8], char, &'a [u8]);

impl<'a> BorrowedBinding<'a> {
    /// Reads a binding from all fields of its server; `None` without a head.
    fn read(fields: &[ServerField<'a>]) -> Option<Result<Self, CorruptRecord>> {
        let value_of = |wanted: char| {
            let mut fields = fields.iter();
            fields.find_map(|(_, letter, value)| (*letter == wanted).then_some(*value))
        };
        let (server, ..) = fields.first()?;
        Some(Self::read_behind(value_of(letter::HEAD)?, server, value_of))
    }

    fn read_behind(
        head: &'a [u8],
        server: &'a [u8],
        value_of: impl Fn(char) -> Option<&'a [u8]>,
    ) -> Result<Self, CorruptRecord> {
        let corrupt = |letter: char| {
            let mut field = format!("{letter}:").into_bytes();
            field.extend_from_slice(server);
            CorruptRecord::field(&field)
        };
        let of_head = |_: NameError| corrupt(letter::HEAD);
        let server = ServerName::check(server).map_err(of_head)?;
        let head = BindingHead::decode(server, head)?;
        InstanceName::check(head.instance.as_bytes()).map_err(of_head)?;
        for worker in [Some(head.driver), head.owner].into_iter().flatten() {
            WorkerId::check(worker.as_bytes()).map_err(of_head)?;
        }
        if let Some(session) = head.upstream_session {
            UpstreamSession::check(session.as_bytes()).map_err(of_head)?;
        }
        let optional = |letter, check: fn(&'a [u8]) -> Result<&'a str, NameError>| {
            let checked = value_of(letter).map(check).transpose();
            checked.map_err(|_| corrupt(letter))
        };
        let token = optional(letter::TOKEN, Token::check)?;
        Ok(Self {
            token: token.ok_or_else(|| corrupt(letter::TOKEN))?,
            previous: optional(letter::PREVIOUS, UpstreamSession::check)?,
            reason: optional(letter::REASON, Reason::check)?,
            unreported_loss: match value_of(letter::UNREPORTED_LOSS) {
                Some(loss) => read_unreported_loss(server, head.epoch, loss)?,
                None => None,
            },
            server,
            head,
        })
    }

    fn of(server: &'a ServerName, binding: &'a Binding) -> Self {
        Self {
            server: server.as_str(),
            head: BindingHead::of(binding),
            token: binding.token.as_str(),
            previous: binding.previous.as_ref().map(|left| left.as_str()),
            reason: binding.last_reason.as_ref().map(|reason| reason.as_str()),
            unreported_loss: binding.unreported_loss.as_ref().map(|lost| lost.as_str()),
        }
    }

    fn to_binding(&self) -> Binding {
        let head = &self.head;
        Binding {
            phase: head.phase,
            instance: InstanceName::of_checked(head.instance),
            upstream_session: head.upstream_session.map(UpstreamSession::of_checked),
            owner: head.owner.map(WorkerId::of_checked),
            driver: WorkerId::of_checked(head.driver),
            epoch: head.epoch,
            bound_at: head.bound_at,
            rebinds: head.rebinds,
            last_reason: self.reason.map(Reason::of_checked),
            token: Token::of_checked(self.token),
            previous: self.previous.map(UpstreamSession::of_checked),
            unreported_loss: self.unreported_loss.map(InstanceName::of_checked),
        }
    }
}

/// As [`decode_unreported_loss`](super::decode_unreported_loss).
pub(super) fn read_unreported_loss<'a>(
    server: &str,
    epoch: u64,
    value: &'a [u8],
) -> Result<Option<&'a str>, CorruptRecord> {
    let corrupt = || {
        let field = field_name(letter::UNREPORTED_LOSS, server);
        CorruptRecord::field(field.as_bytes())
    };
    let mut words = value.splitn(2, |byte| *byte == b' ');
    let of = words.next().and_then(read_number).ok_or_else(corrupt)?;
    let instance = InstanceName::check(words.next().unwrap_or(b"")).map_err(|_| corrupt())?;
    Ok((of == epoch).then_some(instance))
}

fn read<'a>(
    field: &[u8],
    value: &'a [u8],
    check: impl Fn(&'a [u8]) -> Result<&'a str, NameError>,
) -> Result<&'a str, CorruptRecord> {
    check(value).map_err(|_| CorruptRecord::field(field))
}
