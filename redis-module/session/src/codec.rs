//! How a record stands in a Redis hash: plain text fields that HGETALL shows and any client can read.
//!
//! | field | value |
//! |---|---|
//! | `s` | `<schema version> <active\|ended> <created_at> <last_used_at> <expires_at> <ttl_ms>` |
//! | `id` `p` `g` `e` | session id, principal, generation, highest epoch |
//! | `h` | content hash |
//! | `z` | `<lease_until> <worker or ->`: who cleans the tombstone |
//! | `l:<name>` | a label |
//! | `b:<server>` | `<claimed\|bound> <epoch> <bound_at> <lease_until> <rebinds>`; bound, the lease is 0, or 1 with an `m:` |
//! | `i:` `u:<server>` | instance, upstream session |
//! | `d:<server>` | `<driver>`, or `<driver> <owner>` where only one worker can drive it |
//! | `k:` `q:` `r:<server>` | token, upstream session left behind, last reason |
//! | `m:<server>` | `<epoch> <instance>`: the loss of that instance is still to be reported to the client |
//!
//! Invariants: the values packed from numbers (`s`, `b:`) fit the 64 bytes at which Redis keeps a hash a listpack; what a
//! use reads and writes is one field, `s`. What a use reads is written first, because Redis finds a field by looking
//! through those before it, and is there whenever the server is bound, because it looks through all for one that is
//! absent. A field that is absent has no value; fields of names that are not in this table are kept as they are, so that
//! an older module does not drop what a newer one wrote.
//!
//! A binding is there if its `b:` is. A module that does not know a letter leaves that field behind when it drops the
//! binding, so any field without its `b:` has no value, and goes with the next write of the record; and so has an `m:` of
//! another epoch.

use std::borrow::Cow;
use std::collections::BTreeMap;

use crate::names::{InstanceName, NameError, ServerName, WorkerId, parse_integer};
use crate::record::{Binding, Cleaning, Life, Lifecycle, Phase, Record};
use crate::time::{Millis, Timestamp};

/// The version of the fields' meaning. A record of a later one is refused, never half understood.
pub const SCHEMA_VERSION: u64 = 1;

/// Room for a value packed from numbers.
const PACKED_BYTES_MAX: usize = 64;

/// The field that holds a record's [`Life`].
pub const LIFE_FIELD: &str = "s";
/// The field that holds its principal.
pub const PRINCIPAL_FIELD: &str = "p";

/// The letters of a binding's fields, each followed by `:<server>`.
pub mod letter {
    /// Phase, epoch, times and count.
    pub const HEAD: char = 'b';
    /// Instance.
    pub const INSTANCE: char = 'i';
    /// Upstream session.
    pub const UPSTREAM_SESSION: char = 'u';
    /// Driver, and the owner if there is one.
    pub const DRIVER: char = 'd';
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

const BINDING_LETTERS: [char; 7] = [
    letter::HEAD,
    letter::INSTANCE,
    letter::UPSTREAM_SESSION,
    letter::DRIVER,
    letter::TOKEN,
    letter::PREVIOUS,
    letter::REASON,
];

/// A stored record that cannot be read. It is never overwritten.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CorruptRecord {
    /// A field is missing or does not read as it must.
    #[error("corrupt session record: {0}")]
    Field(Box<str>),
    /// A newer module wrote it.
    #[error("corrupt session record: s: written by a newer version ({0})")]
    Newer(u64),
}

impl CorruptRecord {
    /// The named field is missing or does not read as it must. Bytes that are not text are shown as such.
    #[must_use]
    pub fn field(name: &[u8]) -> Self {
        Self::Field(name.escape_ascii().to_string().into())
    }
}

/// In the place of a bound binding's lease: there is a loss to report. Modules that do not know it ignore the lease there.
const LOSS_UNREPORTED: u64 = 1;

/// What a binding's head field holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Head {
    /// How far the binding is.
    pub phase: Phase,
    /// Its fence.
    pub epoch: u64,
    /// When this epoch began.
    pub bound_at: Timestamp,
    /// How often it was moved.
    pub rebinds: u64,
    /// Whether a loss of a bound binding is still to be reported.
    pub has_unreported_loss: bool,
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

/// The same, shown field by field, for a store that makes its own strings of them.
pub fn each_field(record: &Record, mut visit: impl FnMut(&str, &str)) {
    visit(LIFE_FIELD, &encode_life(&record.life));
    visit(PRINCIPAL_FIELD, record.principal.as_str());
    visit("id", record.id.as_str());
    visit("g", itoa::Buffer::new().format(record.generation));
    if let Some(hash) = &record.content_hash {
        visit("h", hash.as_str());
    }
    if let Some(Cleaning {
        worker,
        lease_until,
    }) = &record.cleaning
    {
        let worker = worker.as_ref().map_or("-", WorkerId::as_str);
        visit("z", &format!("{lease_until} {worker}"));
    }
    for (name, value) in &record.labels {
        visit(&field_name(letter::LABEL, name.as_str()), value.as_str());
    }
    for (server, binding) in &record.bindings {
        each_binding_field(server, binding, &mut visit);
    }
    if record.highest_epoch > 0 {
        visit("e", itoa::Buffer::new().format(record.highest_epoch));
    }
}

fn each_binding_field(server: &ServerName, binding: &Binding, visit: &mut impl FnMut(&str, &str)) {
    let (word, lease_until) = match binding.phase {
        Phase::Claimed { lease_until } => ("claimed", lease_until.unix_ms()),
        Phase::Bound => (
            "bound",
            (binding.unreported_loss.as_ref()).map_or(0, |_| LOSS_UNREPORTED),
        ),
    };
    let head = format!(
        "{word} {} {} {lease_until} {}",
        binding.epoch, binding.bound_at, binding.rebinds
    );
    let driver = encode_driver(&binding.driver, binding.owner.as_ref());
    let values = [
        Some(head.as_str()),
        Some(binding.instance.as_str()),
        binding.upstream_session.as_ref().map(|s| s.as_str()),
        Some(&*driver),
        Some(binding.token.as_str()),
        binding.previous.as_ref().map(|s| s.as_str()),
        binding.last_reason.as_ref().map(|r| r.as_str()),
    ];
    for (letter, value) in BINDING_LETTERS.into_iter().zip(values) {
        if let Some(value) = value {
            visit(&field_name(letter, server.as_str()), value);
        }
    }
    if let Some(instance) = &binding.unreported_loss {
        visit(
            &field_name(letter::UNREPORTED_LOSS, server.as_str()),
            &format!("{} {instance}", binding.epoch),
        );
    }
}

/// The field `d:<server>`.
#[must_use]
pub fn encode_driver<'a>(driver: &'a WorkerId, owner: Option<&WorkerId>) -> Cow<'a, str> {
    match owner {
        Some(owner) => format!("{driver} {owner}").into(),
        None => driver.as_str().into(),
    }
}

/// The field `s`.
#[must_use]
pub fn encode_life(life: &Life) -> String {
    let word = match life.lifecycle {
        Lifecycle::Active => "active",
        Lifecycle::Ended => "ended",
    };
    let moments = [life.created_at, life.last_used_at, life.expires_at];
    // Every write of every session makes one: in one allocation, and without the formatter.
    let mut value = String::with_capacity(PACKED_BYTES_MAX);
    value.push_str(itoa::Buffer::new().format(SCHEMA_VERSION));
    value.push(' ');
    value.push_str(word);
    for number in moments
        .map(Timestamp::unix_ms)
        .into_iter()
        .chain([life.ttl.get()])
    {
        value.push(' ');
        value.push_str(itoa::Buffer::new().format(number));
    }
    value
}

/// Reads the field `s`.
///
/// # Errors
/// Says that `s` is corrupt, or that a newer version wrote it.
pub fn decode_life(value: &[u8]) -> Result<Life, CorruptRecord> {
    let mut words = value.split(|byte| *byte == b' ');
    let version = words.next().and_then(read_number);
    if let Some(newer) = version.filter(|version| *version > SCHEMA_VERSION) {
        return Err(CorruptRecord::Newer(newer));
    }
    version
        .and_then(|_| read_life(words))
        .ok_or_else(|| CorruptRecord::field(LIFE_FIELD.as_bytes()))
}

fn read_life<'a>(mut words: impl Iterator<Item = &'a [u8]>) -> Option<Life> {
    let lifecycle = match words.next()? {
        b"active" => Lifecycle::Active,
        b"ended" => Lifecycle::Ended,
        _ => return None,
    };
    let mut number = || words.next().and_then(read_number);
    let life = Life {
        lifecycle,
        created_at: Timestamp::from_unix_ms(number()?),
        last_used_at: Timestamp::from_unix_ms(number()?),
        expires_at: Timestamp::from_unix_ms(number()?),
        ttl: Millis::new(number()?),
    };
    words.next().is_none().then_some(life)
}

/// Reads a binding's head field.
///
/// # Errors
/// Says that it is corrupt.
pub fn decode_head(server: &ServerName, value: &[u8]) -> Result<Head, CorruptRecord> {
    read_head(value)
        .ok_or_else(|| CorruptRecord::field(field_name(letter::HEAD, server.as_str()).as_bytes()))
}

fn read_head(value: &[u8]) -> Option<Head> {
    let mut words = value.split(|byte| *byte == b' ');
    let word = words.next()?;
    let mut number = || words.next().and_then(read_number);
    let (epoch, bound_at, lease_until, rebinds) = (number()?, number()?, number()?, number()?);
    let phase = match word {
        b"claimed" => Phase::Claimed {
            lease_until: Timestamp::from_unix_ms(lease_until),
        },
        b"bound" => Phase::Bound,
        _ => return None,
    };
    words.next().is_none().then_some(Head {
        phase,
        epoch,
        bound_at: Timestamp::from_unix_ms(bound_at),
        rebinds,
        has_unreported_loss: phase == Phase::Bound && lease_until == LOSS_UNREPORTED,
    })
}

/// Reads the instance whose loss is still to be reported; none where the value is of another epoch than the binding.
///
/// # Errors
/// Says that the field is corrupt.
pub fn decode_unreported_loss(
    server: &ServerName,
    epoch: u64,
    value: &[u8],
) -> Result<Option<InstanceName>, CorruptRecord> {
    let corrupt = || {
        let field = field_name(letter::UNREPORTED_LOSS, server.as_str());
        CorruptRecord::field(field.as_bytes())
    };
    let mut words = value.splitn(2, |byte| *byte == b' ');
    let of = words.next().and_then(read_number).ok_or_else(corrupt)?;
    let instance = InstanceName::parse(words.next().unwrap_or(b"")).map_err(|_| corrupt())?;
    Ok((of == epoch).then_some(instance))
}

/// Reads a binding's driver, and the owner if it has one.
///
/// # Errors
/// Says that the field is corrupt.
pub fn decode_driver(
    server: &ServerName,
    value: &[u8],
) -> Result<(WorkerId, Option<WorkerId>), CorruptRecord> {
    read_driver(value)
        .map_err(|_| CorruptRecord::field(field_name(letter::DRIVER, server.as_str()).as_bytes()))
}

fn read_driver(value: &[u8]) -> Result<(WorkerId, Option<WorkerId>), NameError> {
    // No worker's name holds a space.
    let mut words = value.splitn(2, |byte| *byte == b' ');
    let driver = WorkerId::parse(words.next().unwrap_or(b""))?;
    Ok((driver, words.next().map(WorkerId::parse).transpose()?))
}

fn read_number(word: &[u8]) -> Option<u64> {
    /// As many decimal digits as never overflow.
    const DIGITS_SAFE: usize = 19;
    match word {
        // Every use of every session comes here nine times, and moments have thirteen digits.
        [b'1'..=b'9', ..] if word.len() <= DIGITS_SAFE => word.iter().try_fold(0, |value, byte| {
            let digit = byte.is_ascii_digit().then_some(byte & 0x0f)?;
            Some(value * 10 + u64::from(digit))
        }),
        _ => parse_integer("number", word, 0, u64::MAX).ok(),
    }
}

/// Reads a whole record from all fields of a hash, in any order.
///
/// # Errors
/// Names the first field that is missing or does not read as it must.
pub fn decode<'a>(
    fields: impl IntoIterator<Item = (&'a [u8], &'a [u8])>,
) -> Result<Record, CorruptRecord> {
    let fields: BTreeMap<&[u8], &[u8]> = fields.into_iter().collect();
    let mut bindings = BTreeMap::new();
    let mut labels = BTreeMap::new();
    for (field, value) in &fields {
        let Some((letter, name)) = split_field(field) else {
            continue;
        };
        match letter {
            letter::HEAD => {
                let server = read(field, name, ServerName::parse)?;
                let binding = decode_binding(&server, value, &fields)?;
                bindings.insert(server, binding);
            }
            letter::LABEL => {
                labels.insert(
                    read(field, name, crate::names::LabelName::parse)?,
                    read(field, value, crate::names::LabelValue::parse)?,
                );
            }
            // The others are read with their heads; without one they have no value.
            _ => {}
        }
    }
    Ok(Record {
        id: required(&fields, b"id", crate::names::SessionId::parse)?,
        principal: required(
            &fields,
            PRINCIPAL_FIELD.as_bytes(),
            crate::names::Principal::parse,
        )?,
        generation: required(&fields, b"g", number)?,
        highest_epoch: optional(&fields, b"e", number)?.unwrap_or(0),
        life: decode_life(fields.get(LIFE_FIELD.as_bytes()).copied().unwrap_or(b""))?,
        content_hash: optional(&fields, b"h", crate::names::ContentHash::parse)?,
        labels,
        bindings,
        cleaning: match fields.get(&b"z"[..]) {
            Some(value) => Some(read_cleaning(value).ok_or_else(|| CorruptRecord::field(b"z"))?),
            None => None,
        },
    })
}

fn decode_binding(
    server: &ServerName,
    head: &[u8],
    fields: &BTreeMap<&[u8], &[u8]>,
) -> Result<Binding, CorruptRecord> {
    let head = decode_head(server, head)?;
    let name = |letter| field_name(letter, server.as_str()).into_bytes();
    let (driver, owner) = required(fields, &name(letter::DRIVER), read_driver)?;
    let unreported_loss = match fields.get(name(letter::UNREPORTED_LOSS).as_slice()) {
        Some(value) => decode_unreported_loss(server, head.epoch, value)?,
        None => None,
    };
    Ok(Binding {
        phase: head.phase,
        instance: required(fields, &name(letter::INSTANCE), InstanceName::parse)?,
        upstream_session: optional(
            fields,
            &name(letter::UPSTREAM_SESSION),
            crate::names::UpstreamSession::parse,
        )?,
        owner,
        driver,
        epoch: head.epoch,
        bound_at: head.bound_at,
        rebinds: head.rebinds,
        last_reason: optional(fields, &name(letter::REASON), crate::names::Reason::parse)?,
        token: required(fields, &name(letter::TOKEN), crate::names::Token::parse)?,
        previous: optional(
            fields,
            &name(letter::PREVIOUS),
            crate::names::UpstreamSession::parse,
        )?,
        unreported_loss,
    })
}

fn read_cleaning(value: &[u8]) -> Option<Cleaning> {
    let space = value.iter().position(|byte| *byte == b' ')?;
    let (until, worker) = value.split_at_checked(space)?;
    let worker = worker.get(1..)?;
    Some(Cleaning {
        worker: match worker {
            b"-" => None,
            name => Some(WorkerId::parse(name).ok()?),
        },
        lease_until: Timestamp::from_unix_ms(read_number(until)?),
    })
}

fn number(value: &[u8]) -> Result<u64, NameError> {
    parse_integer("number", value, 0, u64::MAX)
}

fn split_field(field: &[u8]) -> Option<(char, &[u8])> {
    match field {
        [letter, b':', name @ ..] => Some((char::from(*letter), name)),
        _ => None,
    }
}

fn read<T>(
    field: &[u8],
    value: &[u8],
    parse: impl Fn(&[u8]) -> Result<T, NameError>,
) -> Result<T, CorruptRecord> {
    parse(value).map_err(|_| CorruptRecord::field(field))
}

fn optional<T>(
    fields: &BTreeMap<&[u8], &[u8]>,
    field: &[u8],
    parse: impl Fn(&[u8]) -> Result<T, NameError>,
) -> Result<Option<T>, CorruptRecord> {
    fields
        .get(field)
        .map(|value| read(field, value, parse))
        .transpose()
}

fn required<T>(
    fields: &BTreeMap<&[u8], &[u8]>,
    field: &[u8],
    parse: impl Fn(&[u8]) -> Result<T, NameError>,
) -> Result<T, CorruptRecord> {
    optional(fields, field, parse)?.ok_or_else(|| CorruptRecord::field(field))
}

/// What has to be written so that a hash that held `before` holds `after`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Changes {
    /// Fields to set, with their values.
    pub set: Vec<(String, String)>,
    /// Fields to delete.
    pub delete: Vec<String>,
}

/// Compares the fields a hash held with those of the record as it is to be. Fields of unknown names are left alone.
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
        Some((letter, _)) => {
            matches!(letter, letter::LABEL | letter::UNREPORTED_LOSS)
                || BINDING_LETTERS.contains(&letter)
        }
        None => matches!(field, b"s" | b"id" | b"p" | b"g" | b"e" | b"h" | b"z"),
    }
}
