//! What operators want of the fleet: what is parked, which gateways drain, and which servers were added.
//!
//! It is one set of fields with text, the same in every store: `version`, and one field for each item, whose value is JSON.
//! Invariants: the version differs after every change, and never repeats, also where a store lost its data: it is the last
//! one plus one, or microseconds of the wall clock; a field that this release does not know is kept and has no effect, so
//! that an older gateway of a fleet disturbs no newer one.

use std::collections::BTreeMap;

use mooring_session::names::{InstanceName, ServerName, WorkerId};
use mooring_session::time::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::clock::rfc3339;

/// Most items.
pub const DESIRED_ITEMS_MAX: usize = 1_000;
/// Longest definition of a server as JSON, in bytes.
pub const DEFINITION_BYTES_MAX: usize = 64 * 1024;
/// Most bytes of all fields and their values: every gateway reads them after each change.
pub const DESIRED_BYTES_MAX: usize = 1024 * 1024;
/// Longest note, in bytes.
pub const NOTE_BYTES_MAX: usize = 512;
/// Longest name of an operator, in bytes: that of a principal.
const OPERATOR_BYTES_MAX: usize = 320;

/// The field with the version.
pub(super) const VERSION_FIELD: &str = "version";

/// The fields and values of a store.
pub(super) type DesiredFields = BTreeMap<String, String>;

/// What operators want of the fleet.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct DesiredState {
    /// Differs after every change; 0 before the first one.
    pub version: u64,
    /// What gets no new bindings and no calls without a session.
    pub parked: BTreeMap<ParkedPart, OperatorNote>,
    /// The gateways that drain, by worker id for one run of a gateway, or by name for every run.
    pub draining: BTreeMap<WorkerId, OperatorNote>,
    /// The servers that were added to those of the settings.
    pub servers: BTreeMap<ServerName, AddedServer>,
}

/// A server that is parked, or one of its instances.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ParkedPart {
    /// The server.
    pub server: ServerName,
    /// The instance; none for the whole server.
    pub instance: Option<InstanceName>,
}

/// Who wants it, since when, and why.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct OperatorNote {
    /// The operator.
    pub by: Box<str>,
    /// When it was asked for, in Unix milliseconds.
    pub at_ms: u64,
    /// Why, in the operator's words; empty if they gave none.
    #[serde(default, skip_serializing_if = "str::is_empty")]
    pub note: Box<str>,
}

/// A server that was added while the fleet ran.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct AddedServer {
    /// Its definition, in the form of a server of the settings.
    pub definition: Value,
    /// Who added it.
    #[serde(flatten)]
    pub note: OperatorNote,
}

/// One change of what is wanted.
#[derive(Clone, Debug, PartialEq)]
pub enum DesiredChange {
    /// Gives it no new bindings.
    Park(ParkedPart, OperatorNote),
    /// Gives it new bindings again.
    Unpark(ParkedPart),
    /// Drains a gateway, by worker id or name.
    Drain(WorkerId, OperatorNote),
    /// Ends the draining that was asked for by exactly this id or name.
    Undrain(WorkerId),
    /// Adds a server, or replaces its definition.
    PutServer(ServerName, AddedServer),
    /// Removes a server that was added.
    RemoveServer(ServerName),
}

/// Which limit a change exceeds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DesiredLimit {
    /// More items than [`DESIRED_ITEMS_MAX`].
    #[error("there would be {0} items (limit {DESIRED_ITEMS_MAX}); remove some first")]
    Items(usize),
    /// More bytes than [`DESIRED_BYTES_MAX`].
    #[error("all items would have {0} bytes (limit {DESIRED_BYTES_MAX}); remove some first")]
    Bytes(usize),
    /// A definition longer than [`DEFINITION_BYTES_MAX`].
    #[error("the definition of the server has {0} bytes (limit {DEFINITION_BYTES_MAX})")]
    Definition(usize),
    /// A note longer than [`NOTE_BYTES_MAX`].
    #[error("the note has {0} bytes (limit {NOTE_BYTES_MAX})")]
    Note(usize),
    /// The name of the operator is longer than that of a principal.
    #[error("the name of the operator has {0} bytes (limit {OPERATOR_BYTES_MAX})")]
    Operator(usize),
}

/// What a change makes of the fields.
#[derive(Clone, Debug)]
pub(super) struct DesiredWrite {
    /// The version that has to be stored for the write to be made.
    pub(super) expected: u64,
    /// The fields to set, with the new version among them, and those without a value to remove.
    pub(super) fields: BTreeMap<String, Option<String>>,
}

impl DesiredWrite {
    /// Writes the fields in memory.
    pub(super) fn apply(&self, fields: &mut DesiredFields) {
        for (field, value) in &self.fields {
            match value {
                Some(value) => fields.insert(field.clone(), value.clone()),
                None => fields.remove(field),
            };
        }
    }
}

impl OperatorNote {
    /// What this operator wants from now on.
    #[must_use]
    pub fn now(by: &str, note: &str) -> Self {
        Self {
            by: by.into(),
            at_ms: super::unix_now_ms(),
            note: note.into(),
        }
    }

    /// When it was asked for, as RFC 3339 has it.
    #[must_use]
    pub fn at(&self) -> String {
        rfc3339(self.at_ms)
    }
}

impl DesiredState {
    /// Whether the server as a whole is parked.
    #[must_use]
    pub fn parks_server(&self, server: &ServerName) -> bool {
        self.parks(server, None)
    }

    /// Whether this instance gets nothing new: because it is parked, or its whole server is.
    #[must_use]
    pub fn parks_instance(&self, server: &ServerName, instance: &InstanceName) -> bool {
        self.parks_server(server) || self.parks(server, Some(instance))
    }

    fn parks(&self, server: &ServerName, instance: Option<&InstanceName>) -> bool {
        // Most fleets have nothing parked, and then no name is copied.
        !self.parked.is_empty()
            && self.parked.contains_key(&ParkedPart {
                server: server.clone(),
                instance: instance.cloned(),
            })
    }

    /// Why this gateway drains; none if it does not.
    #[must_use]
    pub fn draining_note(&self, worker: &WorkerId) -> Option<&OperatorNote> {
        let is_named = |wanted: &WorkerId| wanted == worker || wanted.as_str() == worker.name();
        let mut draining = self.draining.iter();
        draining.find_map(|(wanted, note)| is_named(wanted).then_some(note))
    }

    /// How many items there are.
    #[must_use]
    pub fn items(&self) -> usize {
        self.parked.len() + self.draining.len() + self.servers.len()
    }

    /// Reads the fields. Unknown ones, and those that cannot be read, count as absent.
    pub(super) fn of_fields(fields: &DesiredFields) -> Self {
        let mut state = Self {
            version: version_of(fields),
            ..Self::default()
        };
        for (field, value) in fields {
            if field != VERSION_FIELD && state.read(field, value).is_none() {
                tracing::warn!(%field, "desired state: item ignored, because this release cannot read it");
            }
        }
        state
    }

    fn read(&mut self, field: &str, value: &str) -> Option<()> {
        let (kind, name) = field.split_once(':')?;
        let note = || serde_json::from_str(value).ok();
        match kind {
            "parked" => {
                let part = ParkedPart::parse(name)?;
                self.parked.insert(part, note()?);
            }
            "draining" => {
                let worker = WorkerId::parse(name.as_bytes()).ok()?;
                self.draining.insert(worker, note()?);
            }
            "server" => {
                let server = ServerName::parse(name.as_bytes()).ok()?;
                let added = serde_json::from_str(value).ok()?;
                self.servers.insert(server, added);
            }
            _ => return None,
        }
        Some(())
    }
}

impl ParkedPart {
    /// The server, and the instance behind a space: neither has one in its name.
    fn parse(text: &str) -> Option<Self> {
        let (server, instance) = match text.split_once(' ') {
            Some((server, instance)) => (server, Some(instance)),
            None => (text, None),
        };
        let instance = instance.map(|instance| InstanceName::parse(instance.as_bytes()));
        Some(Self {
            server: ServerName::parse(server.as_bytes()).ok()?,
            instance: instance.transpose().ok()?,
        })
    }
}

impl DesiredChange {
    /// The field that it changes, and its value; none to remove it.
    fn field(&self) -> Result<(String, Option<String>), DesiredLimit> {
        let (field, value) = match self {
            Self::Park(part, note) => (parked_field(part), Some(to_json(note))),
            Self::Unpark(part) => (parked_field(part), None),
            Self::Drain(worker, note) => (format!("draining:{worker}"), Some(to_json(note))),
            Self::Undrain(worker) => (format!("draining:{worker}"), None),
            Self::PutServer(server, added) => {
                let definition = to_json(&added.definition).len();
                if definition > DEFINITION_BYTES_MAX {
                    return Err(DesiredLimit::Definition(definition));
                }
                (format!("server:{server}"), Some(to_json(added)))
            }
            Self::RemoveServer(server) => (format!("server:{server}"), None),
        };
        if let Some(note) = self.note() {
            note.check()?;
        }
        Ok((field, value))
    }

    fn note(&self) -> Option<&OperatorNote> {
        match self {
            Self::Park(_, note) | Self::Drain(_, note) => Some(note),
            Self::PutServer(_, added) => Some(&added.note),
            Self::Unpark(_) | Self::Undrain(_) | Self::RemoveServer(_) => None,
        }
    }
}

impl OperatorNote {
    fn check(&self) -> Result<(), DesiredLimit> {
        if self.note.len() > NOTE_BYTES_MAX {
            return Err(DesiredLimit::Note(self.note.len()));
        }
        if self.by.len() > OPERATOR_BYTES_MAX {
            return Err(DesiredLimit::Operator(self.by.len()));
        }
        Ok(())
    }
}

fn parked_field(part: &ParkedPart) -> String {
    match &part.instance {
        Some(instance) => format!("parked:{} {instance}", part.server),
        None => format!("parked:{}", part.server),
    }
}

/// Text and numbers always become JSON.
fn to_json(value: &impl Serialize) -> String {
    serde_json::to_string(value).unwrap_or_default()
}

/// The version in the fields; 0 without one.
pub(super) fn version_of(fields: &DesiredFields) -> u64 {
    let version = fields.get(VERSION_FIELD);
    version.map_or(0, |text| parse_version(text))
}

/// A version that cannot be read, which must have been edited by hand, counts as none.
pub(super) fn parse_version(text: &str) -> u64 {
    text.parse().unwrap_or(0)
}

/// The write that makes these changes to the fields; none if they change nothing.
///
/// # Errors
/// The limit that it would exceed.
pub(super) fn plan(
    fields: &DesiredFields,
    changes: &[DesiredChange],
    now: Timestamp,
) -> Result<Option<DesiredWrite>, DesiredLimit> {
    let expected = version_of(fields);
    let mut write = DesiredWrite {
        expected,
        fields: BTreeMap::new(),
    };
    for change in changes {
        let (field, value) = change.field()?;
        write.fields.insert(field, value);
    }
    let is_change = |field: &str, value: Option<&String>| fields.get(field) != value;
    write
        .fields
        .retain(|field, value| is_change(field, value.as_ref()));
    if write.fields.is_empty() {
        return Ok(None);
    }
    let microseconds = now.unix_ms().saturating_mul(1_000);
    let version = microseconds.max(expected.saturating_add(1)).to_string();
    write.fields.insert(VERSION_FIELD.to_owned(), Some(version));
    let mut after = fields.clone();
    write.apply(&mut after);
    check_size(fields, &after)?;
    Ok(Some(write))
}

/// What is too large may still shrink.
fn check_size(before: &DesiredFields, after: &DesiredFields) -> Result<(), DesiredLimit> {
    let items = |fields: &DesiredFields| {
        let items = fields.keys().filter(|field| *field != VERSION_FIELD);
        items.count()
    };
    let bytes = |fields: &DesiredFields| -> usize {
        let lengths = fields
            .iter()
            .map(|(field, value)| field.len() + value.len());
        lengths.sum()
    };
    if items(after) > DESIRED_ITEMS_MAX.max(items(before)) {
        return Err(DesiredLimit::Items(items(after)));
    }
    if bytes(after) > DESIRED_BYTES_MAX.max(bytes(before)) {
        return Err(DesiredLimit::Bytes(bytes(after)));
    }
    Ok(())
}

#[cfg(test)]
mod tests;
