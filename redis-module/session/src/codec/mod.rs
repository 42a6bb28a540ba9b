//! How a record is stored in a Redis hash: plain text fields that HGETALL shows and any client can read.
//!
//! | field | value |
//! |---|---|
//! | `s` | `<schema version> <least reader> <active\|ended> <created_at> <last_used_at> <expires_at> <ttl_ms>` |
//! | `p` | principal |
//! | `id` | `<generation> <highest epoch> <session id>`, and ` <content hash>` where there is one |
//! | `z` | `<lease_until> <worker or ->`: the worker that cleans up the tombstone |
//! | `l:<name>` | a label |
//! | `b:<server>` | `<claimed\|bound> <epoch> <bound_at> <lease_until> <rebinds> <instance> <driver> <owner or ->`, and ` <upstream session>` where there is one; bound, the lease is 0, or 1 with an `m:` |
//! | `k:` `q:` `r:<server>` | token, upstream session left behind, last reason |
//! | `m:<server>` | `<epoch> <instance>`: the loss of that instance is still to be reported to the client |
//!
//! Invariants: a value has one meaning, because no word of a packed value contains a space, and optional words come
//! last. A use reads three fields, `s`, `p` and `b:<server>`, and writes one, `s`, which fits into 64 bytes. The token
//! and other data that no use reads are in separate fields. Redis keeps the hash a listpack while no value is longer
//! than
//! `hash-max-listpack-value`: 512 bytes are enough for all but the longest names.
//!
//! Versions: the first word of `s` is the version of the module that wrote `s` last. The second is the oldest version
//! that understands the record; an older one refuses it as [`CorruptRecord::Newer`], and a newer one that writes keeps
//! or raises the number. The position of these two words is the same in every version. A version that only adds fields
//! keeps the number; one that changes the words of a value raises it. Fields that are not in this table are kept, so
//! that an older module does not drop what a newer one wrote.
//!
//! A binding exists if its `b:` does. A module that does not know a letter leaves that field behind when it drops the
//! binding. So a field of a known letter without its `b:`, and an `m:` of another epoch, are ignored and removed with
//! the next write of the record.

mod borrowed_record;
mod words;

use std::collections::BTreeMap;

pub(crate) use self::borrowed_record::BorrowedBinding;
pub use self::borrowed_record::BorrowedRecord;
use self::borrowed_record::read_unreported_loss;
use self::words::{Words, push_numbers};
use crate::names::{InstanceName, ServerName, WorkerId};
use crate::record::{Binding, Cleaning, LEAST_READER, Lifecycle, Phase, Record, SessionLifetime};
use crate::time::{Millis, Timestamp};

/// The schema version that this module writes.
pub const SCHEMA_VERSION: u64 = if IS_NEXT_VERSION { 2 } else { 1 };

/// Whether this build simulates the next version in the test of a rolling upgrade: see the feature.
const IS_NEXT_VERSION: bool = cfg!(feature = "next-record-version");

/// Room for the field `s`.
const LIFETIME_BYTES_MAX: usize = 64;
/// Room for a binding's head with names of common length.
const HEAD_BYTES: usize = 192;

/// The field that holds a record's [`SessionLifetime`].
pub const LIFETIME_FIELD: &str = "s";
/// The field that holds its principal.
pub const PRINCIPAL_FIELD: &str = "p";
/// The field that holds its numbers, its id and its content hash.
pub const IDENTITY_FIELD: &str = "id";
/// The field that holds the lease on its cleanup.
pub const CLEANING_FIELD: &str = "z";

/// The letters of a binding's fields, each followed by `:<server>`.
pub mod letter {
    /// Phase, epoch, times, count and names.
    pub const HEAD: char = 'b';
    /// Token.
    pub const TOKEN: char = 'k';
    /// The upstream session left behind.
    pub const PREVIOUS: char = 'q';
    /// Why it was last moved.
    pub const REASON: char = 'r';
    /// Epoch, and the instance whose loss is still to be reported.
    pub const UNREPORTED_LOSS: char = 'm';
    /// A label; followed by its name instead of a server's.
    pub const LABEL: char = 'l';
}

/// A stored record that cannot be read. It is never overwritten.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CorruptRecord {
    /// A field is missing or invalid.
    #[error("corrupt session record: {0}")]
    Field(Box<str>),
    /// Reading it needs at least this version.
    #[error("corrupt session record: s: written by a newer version ({0})")]
    Newer(u64),
}

impl CorruptRecord {
    /// The named field is missing or invalid. Bytes that are not text are escaped.
    #[must_use]
    pub fn field(name: &[u8]) -> Self {
        Self::Field(name.escape_ascii().to_string().into())
    }
}

/// In place of a bound binding's lease: there is a loss to report.
const LOSS_UNREPORTED: u64 = 1;

/// In place of an owner: there is none. No worker has this name.
const NO_OWNER: &str = "-";

/// The contents of a binding's head field. The names are words of visible ASCII; decoding the whole record checks them
/// further.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BindingHead<'a> {
    /// The phase of the binding.
    pub phase: Phase,
    /// Its fencing token.
    pub epoch: u64,
    /// When this epoch began.
    pub bound_at: Timestamp,
    /// How often it was moved.
    pub rebinds: u64,
    /// Whether a loss of a bound binding is still to be reported.
    pub has_unreported_loss: bool,
    /// The instance of the upstream server.
    pub instance: &'a str,
    /// The worker that last bound it, or was last recorded as driving it.
    pub driver: &'a str,
    /// The worker that holds its connection, if only one can.
    pub owner: Option<&'a str>,
    /// The session id that the upstream assigned.
    pub upstream_session: Option<&'a str>,
}

impl<'a> BindingHead<'a> {
    pub(crate) fn of(binding: &'a Binding) -> Self {
        Self {
            phase: binding.phase,
            epoch: binding.epoch,
            bound_at: binding.bound_at,
            rebinds: binding.rebinds,
            has_unreported_loss: binding.phase == Phase::Bound && binding.unreported_loss.is_some(),
            instance: binding.instance.as_str(),
            driver: binding.driver.as_str(),
            owner: binding.owner.as_ref().map(WorkerId::as_str),
            upstream_session: binding.upstream_session.as_ref().map(|s| s.as_str()),
        }
    }

    /// The field `b:<server>`.
    #[must_use]
    pub fn encode(&self) -> String {
        let mut value = String::with_capacity(HEAD_BYTES);
        self.write(&mut value);
        value
    }

    fn write(&self, value: &mut String) {
        let (word, lease_until) = match self.phase {
            Phase::Claimed { lease_until } => ("claimed", lease_until.unix_ms()),
            Phase::Bound if self.has_unreported_loss => ("bound", LOSS_UNREPORTED),
            Phase::Bound => ("bound", 0),
        };
        value.push_str(word);
        push_numbers(
            value,
            [
                self.epoch,
                self.bound_at.unix_ms(),
                lease_until,
                self.rebinds,
            ],
        );
        let owner = self.owner.unwrap_or(NO_OWNER);
        for name in [self.instance, self.driver, owner]
            .into_iter()
            .chain(self.upstream_session)
        {
            value.push(' ');
            value.push_str(name);
        }
    }

    /// Reads the field `b:<server>`.
    ///
    /// # Errors
    /// If it is corrupt.
    pub fn decode(server: &str, value: &'a [u8]) -> Result<Self, CorruptRecord> {
        Self::read(value)
            .ok_or_else(|| CorruptRecord::field(field_name(letter::HEAD, server).as_bytes()))
    }

    fn read(value: &'a [u8]) -> Option<Self> {
        let mut words = Words::of(value)?;
        let word = words.next()?;
        let (epoch, bound_at, lease_until, rebinds) = (
            words.number()?,
            words.number()?,
            words.number()?,
            words.number()?,
        );
        let phase = match word {
            b"claimed" => Phase::Claimed {
                lease_until: Timestamp::from_unix_ms(lease_until),
            },
            b"bound" if lease_until <= LOSS_UNREPORTED => Phase::Bound,
            _ => return None,
        };
        let mut names = words.names()?;
        let (instance, driver, owner) = (names.next()?, names.next()?, names.next()?);
        let upstream_session = names.next();
        let is_whole = names.next().is_none()
            && ![instance, driver, owner].contains(&"")
            && upstream_session != Some("");
        is_whole.then_some(Self {
            phase,
            epoch,
            bound_at: Timestamp::from_unix_ms(bound_at),
            rebinds,
            has_unreported_loss: phase == Phase::Bound && lease_until == LOSS_UNREPORTED,
            instance,
            driver,
            owner: (owner != NO_OWNER).then_some(owner),
            upstream_session,
        })
    }
}

/// The name of a server's or label's field.
#[must_use]
pub fn field_name(letter: char, name: &str) -> String {
    let mut field = String::with_capacity(name.len().saturating_add(2));
    field.push(letter);
    field.push(':');
    field.push_str(name);
    field
}

/// The whole record as fields, in a stable order.
#[must_use]
pub fn encode(record: &Record) -> Vec<(String, String)> {
    let mut fields = Vec::new();
    each_field(record, |name, value| {
        fields.push((name.to_owned(), value.to_owned()));
    });
    fields
}

/// The same field by field, for a store that copies them into its own strings: all packed values are written into one
/// buffer.
pub fn each_field(record: &Record, mut visit: impl FnMut(&str, &str)) {
    let mut value = String::with_capacity(HEAD_BYTES);
    write_lifetime(&record.lifetime, &mut value);
    visit(LIFETIME_FIELD, &value);
    visit(PRINCIPAL_FIELD, record.principal.as_str());
    value.clear();
    write_identity(record, &mut value);
    visit(IDENTITY_FIELD, &value);
    if IS_NEXT_VERSION {
        visit("x", "of the next version");
    }
    if let Some(Cleaning {
        worker,
        lease_until,
    }) = &record.cleaning
    {
        let worker = worker.as_ref().map_or("-", WorkerId::as_str);
        visit(CLEANING_FIELD, &format!("{lease_until} {worker}"));
    }
    for (name, value) in &record.labels {
        visit(&field_name(letter::LABEL, name.as_str()), value.as_str());
    }
    for (server, binding) in &record.bindings {
        value.clear();
        BindingHead::of(binding).write(&mut value);
        each_binding_field(server, binding, &value, &mut visit);
    }
}

fn write_identity(record: &Record, value: &mut String) {
    value.push_str(itoa::Buffer::new().format(record.generation));
    push_numbers(value, [record.highest_epoch]);
    value.push(' ');
    value.push_str(record.id.as_str());
    if let Some(hash) = &record.content_hash {
        value.push(' ');
        value.push_str(hash.as_str());
    }
}

fn each_binding_field(
    server: &ServerName,
    binding: &Binding,
    head: &str,
    visit: &mut impl FnMut(&str, &str),
) {
    let loss =
        (binding.unreported_loss.as_ref()).map(|instance| format!("{} {instance}", binding.epoch));
    let values = [
        (letter::HEAD, Some(head)),
        (letter::TOKEN, Some(binding.token.as_str())),
        (
            letter::PREVIOUS,
            binding.previous.as_ref().map(|s| s.as_str()),
        ),
        (
            letter::REASON,
            binding.last_reason.as_ref().map(|r| r.as_str()),
        ),
        (letter::UNREPORTED_LOSS, loss.as_deref()),
    ];
    for (letter, value) in values {
        if let Some(value) = value {
            visit(&field_name(letter, server.as_str()), value);
        }
    }
}

/// The field `s`.
#[must_use]
pub fn encode_lifetime(lifetime: &SessionLifetime) -> String {
    // Every written use encodes one: with one allocation, and without the formatter.
    let mut value = String::with_capacity(LIFETIME_BYTES_MAX);
    write_lifetime(lifetime, &mut value);
    value
}

fn write_lifetime(lifetime: &SessionLifetime, value: &mut String) {
    let word = match lifetime.lifecycle {
        Lifecycle::Active => "active",
        Lifecycle::Ended => "ended",
    };
    value.push_str(itoa::Buffer::new().format(SCHEMA_VERSION));
    push_numbers(value, [lifetime.least_reader]);
    value.push(' ');
    value.push_str(word);
    let moments = [
        lifetime.created_at,
        lifetime.last_used_at,
        lifetime.expires_at,
    ];
    push_numbers(value, moments.map(Timestamp::unix_ms));
    push_numbers(value, [lifetime.ttl.get()]);
}

/// Reads the field `s`.
///
/// # Errors
/// If `s` is corrupt, or if reading the record needs a newer version.
pub fn decode_lifetime(value: &[u8]) -> Result<SessionLifetime, CorruptRecord> {
    let corrupt = || CorruptRecord::field(LIFETIME_FIELD.as_bytes());
    let mut words = Words::of(value).ok_or_else(corrupt)?;
    let versions = words.number().zip(words.number());
    let (_, least_reader) = versions.ok_or_else(corrupt)?;
    if least_reader > SCHEMA_VERSION {
        return Err(CorruptRecord::Newer(least_reader));
    }
    read_lifetime(words, least_reader.max(LEAST_READER)).ok_or_else(corrupt)
}

fn read_lifetime(mut words: Words<'_>, least_reader: u64) -> Option<SessionLifetime> {
    let lifecycle = match words.next()? {
        b"active" => Lifecycle::Active,
        b"ended" => Lifecycle::Ended,
        _ => return None,
    };
    let lifetime = SessionLifetime {
        least_reader,
        lifecycle,
        created_at: Timestamp::from_unix_ms(words.number()?),
        last_used_at: Timestamp::from_unix_ms(words.number()?),
        expires_at: Timestamp::from_unix_ms(words.number()?),
        ttl: Millis::new(words.number()?),
    };
    words.is_at_end().then_some(lifetime)
}

/// Reads the instance whose loss is still to be reported; `None` if the value has another epoch than the binding.
///
/// # Errors
/// If the field is corrupt.
pub fn decode_unreported_loss(
    server: &str,
    epoch: u64,
    value: &[u8],
) -> Result<Option<InstanceName>, CorruptRecord> {
    let loss = read_unreported_loss(server, epoch, value)?;
    Ok(loss.map(InstanceName::of_checked))
}

/// Reads a whole record from all fields of a hash, in any order.
///
/// # Errors
/// Names a field that is missing or invalid.
pub fn decode<'a>(
    fields: impl IntoIterator<Item = (&'a [u8], &'a [u8])>,
) -> Result<Record, CorruptRecord> {
    BorrowedRecord::decode(fields).map(|record| record.to_record())
}

/// The letters of a binding's fields.
const BINDING_LETTERS: [char; 5] = [
    letter::HEAD,
    letter::TOKEN,
    letter::PREVIOUS,
    letter::REASON,
    letter::UNREPORTED_LOSS,
];

fn split_field(field: &[u8]) -> Option<(char, &[u8])> {
    match field {
        [letter, b':', name @ ..] => Some((char::from(*letter), name)),
        _ => None,
    }
}

/// The writes that change a hash from `before` to `after`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Changes {
    /// Fields to set, with their values.
    pub set: Vec<(String, String)>,
    /// Fields to delete.
    pub delete: Vec<String>,
}

/// Compares the fields of a hash with those of the record to be stored. Unknown fields are left alone.
#[must_use]
pub fn changes<'a>(
    before: impl IntoIterator<Item = (&'a [u8], &'a [u8])>,
    after: &Record,
) -> Changes {
    let mut before: BTreeMap<&[u8], &[u8]> = before.into_iter().collect();
    let mut changes = Changes::default();
    for (field, value) in encode(after) {
        if before.remove(field.as_bytes()) != Some(value.as_bytes()) {
            changes.set.push((field, value));
        }
    }
    changes.delete = before
        .into_keys()
        .filter(|field| is_ours(field))
        .filter_map(|field| std::str::from_utf8(field).ok().map(str::to_owned))
        .collect();
    changes
}

fn is_ours(field: &[u8]) -> bool {
    match split_field(field) {
        Some((letter, _)) => letter == letter::LABEL || BINDING_LETTERS.contains(&letter),
        None => [
            LIFETIME_FIELD,
            PRINCIPAL_FIELD,
            IDENTITY_FIELD,
            CLEANING_FIELD,
        ]
        .iter()
        .any(|ours| ours.as_bytes() == field),
    }
}
