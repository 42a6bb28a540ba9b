//! Reads and writes records in the keyspace.
//!
//! Invariants: an invalid record is refused and never overwritten. A change is written at once after the rule has
//! decided, as absolute effects (HSET, HDEL, PEXPIREAT, UNLINK) that replicas and the append-only file repeat without a
//! clock and without this module. A no-op writes and replicates nothing. Client-side caches are invalidated for changed
//! data, not for a slid TTL. Every write updates the index, because the module's own writes cause no keyspace events.

use mooring_session::codec::{self, BorrowedRecord, Changes, CorruptRecord};
use mooring_session::record::{Record, SessionLifetime};
use mooring_session::time::Timestamp;
use mooring_session::{Decision, RecordChange, Refusal};

use crate::claims;
use crate::failure::Failure;
use crate::ffi::{Context, Fields, Key, KeyKind, OwnedText, Text};
use crate::field_names::{FieldName, FieldNames};
use crate::indexes::Indexes;
use crate::module::Module;
use crate::moment::Moment;
use crate::rule_inputs::RuleInputs;
use crate::settings;

/// Most fields of a hash that is read as a record. A record has 5 for each of at most 64 bindings, one for each of 16
/// labels, and 4 others; the rest is reserved for later versions. A hash that another client wrote under a session's
/// key may be larger than a command may read.
const RECORD_FIELDS_MAX: usize = 1_024;

/// Room for the fields of a new record with a few labels.
const NEW_RECORD_FIELDS: usize = 8;

/// The key of a command, with its record if there is one.
pub(crate) struct Slot<'c> {
    context: &'c Context,
    moment: Moment<'c>,
    name: Text<'c>,
    key: Key<'c>,
    before: Fields,
    lifetime_before: Option<SessionLifetime>,
    /// The record, which a rule may change.
    pub(crate) record: Option<Record>,
}

impl<'c> Slot<'c> {
    /// Reads the record under `name`, to change it.
    ///
    /// # Errors
    /// `WRONGTYPE` for a key that is no hash, `ERR corrupt session record` for a hash that is no record.
    pub(crate) fn load(context: &'c Context, name: Text<'c>) -> Result<Self, Failure> {
        let key = context.open(name);
        let (before, record) = read(&key)?;
        Ok(Self {
            context,
            moment: Moment::of(context, name),
            name,
            key,
            before,
            lifetime_before: record.as_ref().map(|record| record.lifetime),
            record,
        })
    }

    /// When and where the command runs.
    pub(crate) const fn moment(&self) -> &Moment<'c> {
        &self.moment
    }

    /// Refuses a change that makes the record grow while the server is out of memory: for commands that the server
    /// itself does not refuse, because some of their changes take no memory.
    ///
    /// # Errors
    /// `OOM`.
    pub(crate) fn refuse_growth(&self, written: RecordChange) -> Result<(), Failure> {
        if written == RecordChange::Record && self.context.is_out_of_memory() && self.grows() {
            return Err(Failure::OutOfMemory);
        }
        Ok(())
    }

    /// Whether the record takes more bytes than it did.
    fn grows(&self) -> bool {
        let Some(record) = &self.record else {
            return false;
        };
        let changes = codec::changes(self.before.iter(), record);
        let bytes = |(field, value): (&[u8], &[u8])| field.len() + value.len();
        let is_replaced = |field: &[u8]| {
            let mut names = changes
                .set
                .iter()
                .map(|(name, _)| name)
                .chain(&changes.delete);
            names.any(|name| name.as_bytes() == field)
        };
        let before = self.before.iter().filter(|(field, _)| is_replaced(field));
        let before: usize = before.map(bytes).sum();
        let after = changes
            .set
            .iter()
            .map(|(field, value)| (field.as_bytes(), value.as_bytes()));
        after.map(bytes).sum::<usize>() > before
    }

    /// Writes what a rule changed, and updates the state of the node.
    pub(crate) fn store(&self, written: RecordChange, module: &mut Module) {
        match (&self.record, written) {
            (_, RecordChange::Nothing) | (None, RecordChange::Lifetime | RecordChange::Record) => {}
            (_, RecordChange::Removed) => {
                self.key.unlink();
                self.context.replicate_unlink(self.name);
                self.context.signal_modified(self.name);
            }
            (Some(record), RecordChange::Lifetime) => {
                let lifetime = OwnedText::new(codec::encode_lifetime(&record.lifetime).as_bytes());
                let field = OwnedText::new(codec::LIFETIME_FIELD.as_bytes());
                let pair = [field.text(), lifetime.text()];
                set(self.context, self.name, &self.key, &[pair]);
                self.expire(record);
            }
            (Some(record), RecordChange::Record) => {
                if self.lifetime_before.is_none() {
                    self.write_whole(record, &module.fields);
                } else {
                    let changes = codec::changes(self.before.iter(), record);
                    self.write_changes(&changes, &module.fields);
                }
                self.context.signal_modified(self.name);
                self.expire(record);
            }
        }
        self.update_node(written, module);
    }

    fn expire(&self, record: &Record) {
        if self.lifetime_before != Some(record.lifetime) {
            let end = record.tombstone_ends_at(&settings::tuning());
            expire(self.context, self.name, &self.key, &record.lifetime, end);
        }
    }

    /// Updates the index and the floor of numbers.
    fn update_node(&self, written: RecordChange, module: &mut Module) {
        let Moment { now, database, key } = self.moment;
        let key = key.as_bytes();
        let record = self.record.as_ref();
        let inputs = RuleInputs::at(module, &self.moment);
        module.floor = inputs
            .context()
            .floor_after(record.map(|record| record.numbers_to_follow(now)));
        let indexes = &mut module.indexes;
        match (record, written) {
            (Some(_), RecordChange::Nothing) => {}
            (Some(record), RecordChange::Lifetime) => {
                indexes.slide(database, key, &record.lifetime, now)
            }
            (Some(record), RecordChange::Record) => {
                indexes.put(database, key, &BorrowedRecord::of(record), now);
            }
            (None, _) | (_, RecordChange::Removed) => indexes.remove(database, key),
        }
        // Every command on a session is a use of it, even if it is not written to the record.
        indexes.note_use(database, key, now);
    }

    /// Writes a new record, without a comparison.
    fn write_whole(&self, record: &Record, fields: &FieldNames) {
        let mut made = Vec::with_capacity(NEW_RECORD_FIELDS);
        codec::each_field(record, |field, value| {
            made.push((fields.named(field), OwnedText::new(value.as_bytes())));
        });
        self.set_all(&made);
    }

    fn write_changes(&self, changes: &Changes, fields: &FieldNames) {
        let made: Vec<_> = changes
            .set
            .iter()
            .map(|(field, value)| (fields.named(field), OwnedText::new(value.as_bytes())))
            .collect();
        self.set_all(&made);
        let owned: Vec<OwnedText> = changes
            .delete
            .iter()
            .map(|field| OwnedText::new(field.as_bytes()))
            .collect();
        if !owned.is_empty() {
            let fields: Vec<Text<'_>> = owned.iter().map(OwnedText::text).collect();
            self.key.delete(&fields);
            self.context.replicate_delete(self.name, &fields);
        }
    }

    fn set_all(&self, made: &[(FieldName<'_>, OwnedText)]) {
        let pairs: Vec<[Text<'_>; 2]> = made
            .iter()
            .map(|(field, value)| [field.text(), value.text()])
            .collect();
        set(self.context, self.name, &self.key, &pairs);
    }
}

/// Applies a rule to the record under `name`, stores what it changed, and returns both.
///
/// # Errors
/// As [`Slot::load`], and what the rule refuses. Nothing was changed then.
pub(crate) fn apply<'c, T>(
    context: &'c Context,
    module: &mut Module,
    name: Text<'c>,
    rule: impl FnOnce(
        &mut Option<Record>,
        &mooring_session::Context<'_>,
    ) -> Result<Decision<T>, Refusal>,
) -> Result<(Slot<'c>, Decision<T>), Failure> {
    let mut slot = Slot::load(context, name)?;
    let inputs = RuleInputs::at(module, slot.moment());
    let decided = rule(&mut slot.record, &inputs.context())?;
    slot.store(decided.written, module);
    Ok((slot, decided))
}

/// Drops a record that cannot be read.
///
/// # Errors
/// The reason, if the hash lacks the first field of a record: then it does not belong to the module.
pub(crate) fn drop_unreadable(
    context: &Context,
    module: &mut Module,
    name: Text<'_>,
    reason: &CorruptRecord,
) -> Result<(), Failure> {
    let key = context.open(name);
    let lifetime = OwnedText::new(codec::LIFETIME_FIELD.as_bytes());
    let [Some(_)] = key.read([lifetime.text()]) else {
        return Err(reason.clone().into());
    };
    key.unlink();
    context.replicate_unlink(name);
    context.signal_modified(name);
    let moment = Moment::of(context, name);
    module.forget_numbers(moment.now);
    module.indexes.remove(moment.database, name.as_bytes());
    claims::settle_session(module, &moment);
    Ok(())
}

/// Reads only the lifetime of a record, which must belong to the principal. `fields` are the names of lifetime and
/// principal.
///
/// # Errors
/// `NOSESSION`, `DENIED`, and as [`Slot::load`].
pub(crate) fn own_lifetime(
    key: &Key<'_>,
    [lifetime_field, principal_field]: [Text<'_>; 2],
    principal: &str,
) -> Result<SessionLifetime, Failure> {
    check_kind(key)?;
    let [lifetime, stored] = key.read([lifetime_field, principal_field]);
    compare_principal(stored, principal_field, principal)?;
    decode_lifetime(lifetime, lifetime_field)
}

/// Refuses a key that holds no record of the principal. Reads only the field of the principal.
///
/// # Errors
/// `NOSESSION`, `DENIED`, and as [`Slot::load`].
pub(crate) fn check_principal(
    key: &Key<'_>,
    field: Text<'_>,
    principal: &str,
) -> Result<(), Failure> {
    check_kind(key)?;
    let [stored] = key.read([field]);
    compare_principal(stored, field, principal)
}

/// Reads only the lifetime of a record.
///
/// # Errors
/// As [`Slot::load`].
pub(crate) fn lifetime(key: &Key<'_>, field: Text<'_>) -> Result<SessionLifetime, Failure> {
    let [lifetime] = key.read([field]);
    decode_lifetime(lifetime, field)
}

fn check_kind(key: &Key<'_>) -> Result<(), Failure> {
    match key.kind() {
        KeyKind::Hash => Ok(()),
        KeyKind::Empty => Err(Refusal::NoSession.into()),
        KeyKind::String | KeyKind::Other => Err(Failure::WrongType),
    }
}

fn compare_principal(
    stored: Option<OwnedText>,
    field: Text<'_>,
    principal: &str,
) -> Result<(), Failure> {
    let stored = stored.ok_or_else(|| CorruptRecord::field(field.as_bytes()))?;
    if stored.as_bytes() != principal.as_bytes() {
        return Err(Refusal::Denied.into());
    }
    Ok(())
}

fn decode_lifetime(stored: Option<OwnedText>, field: Text<'_>) -> Result<SessionLifetime, Failure> {
    let stored = stored.ok_or_else(|| CorruptRecord::field(field.as_bytes()))?;
    Ok(codec::decode_lifetime(stored.as_bytes())?)
}

/// Writes the lifetime that a use has changed, if it has, and records the use in the index.
pub(crate) fn store_use(
    context: &Context,
    indexes: &mut Indexes,
    moment: &Moment<'_>,
    key: &Key<'_>,
    field: Text<'_>,
    [before, after]: [&SessionLifetime; 2],
) {
    let Moment {
        now,
        database,
        key: name,
    } = *moment;
    if before == after {
        indexes.note_use(database, name.as_bytes(), now);
        return;
    }
    let value = OwnedText::new(codec::encode_lifetime(after).as_bytes());
    set(context, name, key, &[[field, value.text()]]);
    let end = after.tombstone_ends_at(&settings::tuning());
    expire(context, name, key, after, end);
    indexes.slide(database, name.as_bytes(), after, now);
}

/// Reads the record under `name`, without changing it.
///
/// # Errors
/// As [`Slot::load`].
pub(crate) fn look(context: &Context, name: Text<'_>) -> Result<Option<Record>, Failure> {
    let (_, record) = read(&context.open_to_read(name))?;
    Ok(record)
}

/// Reads the fields under `name` without noting an access, for the node's own state. One field is enough to recognize a
/// hash that does not belong to the module; such a hash may be large and change often.
///
/// # Errors
/// As [`Slot::load`].
pub(crate) fn peek(context: &Context, name: Text<'_>) -> Result<Fields, Failure> {
    let key = context.open_to_look(name);
    if key.kind() == KeyKind::Hash {
        let lifetime = OwnedText::new(codec::LIFETIME_FIELD.as_bytes());
        let [value] = key.read([lifetime.text()]);
        if value.is_none() {
            return Err(CorruptRecord::field(codec::LIFETIME_FIELD.as_bytes()).into());
        }
    }
    read_fields(&key)
}

fn read(key: &Key<'_>) -> Result<(Fields, Option<Record>), Failure> {
    let fields = read_fields(key)?;
    let record = match key.kind() {
        KeyKind::Empty => None,
        _ => Some(codec::decode(fields.iter())?),
    };
    Ok((fields, record))
}

/// The fields of a hash; empty if the key does not exist.
fn read_fields(key: &Key<'_>) -> Result<Fields, Failure> {
    match key.kind() {
        KeyKind::Empty => Ok(Fields::default()),
        KeyKind::String | KeyKind::Other => Err(Failure::WrongType),
        KeyKind::Hash => {
            if key.fields() > RECORD_FIELDS_MAX {
                let field = format!("more than {RECORD_FIELDS_MAX} fields");
                return Err(CorruptRecord::Field(field.into()).into());
            }
            Ok(key.read_all())
        }
    }
}

/// Sets fields and replicates that.
pub(crate) fn set(context: &Context, name: Text<'_>, key: &Key<'_>, pairs: &[[Text<'_>; 2]]) {
    if !pairs.is_empty() {
        key.set(pairs);
        context.replicate_set(name, pairs);
    }
}

/// Sets the key to expire when the record's tombstone ends, at `end`, or somewhat later, and replicates a change.
pub(crate) fn expire(
    context: &Context,
    name: Text<'_>,
    key: &Key<'_>,
    lifetime: &SessionLifetime,
    end: Timestamp,
) {
    let written = key
        .expires_at()
        .and_then(|written| u64::try_from(written).ok());
    let written = written.map(Timestamp::from_unix_ms);
    if let Some(expiry) = lifetime.key_expiry(end, written) {
        let expiry = i64::try_from(expiry.unix_ms()).unwrap_or(i64::MAX);
        key.expire_at(expiry);
        context.replicate_expire_at(name, expiry);
    }
}
