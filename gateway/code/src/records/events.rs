//! Security events: what was refused, and what met a limit or an isolation layer. They outlive the session and the run.
//!
//! One event is one file, `events/<day>/<id>.<kind>.<user>`, whose name has all that lists are filtered by; it is made
//! once and never changes.
//!
//! Invariant: events cost a server a bounded number of files a minute, whatever its clients do.

use std::io;

use mooring_session::names::Principal;
use serde::{Deserialize, Serialize};
use strum::{Display, EnumString, IntoStaticStr, VariantNames};

use super::id::{RunId, days, name_mark};
use super::versioned::{self, VERSION, head};
use crate::volume::Area;

/// The directory of security events.
pub(super) const EVENTS: &str = "events";
/// Longest message kept, in characters.
const MESSAGE_CHARS_MAX: usize = 2_000;
/// Longest name of a tool kept, in characters.
const TOOL_CHARS_MAX: usize = 256;
/// Most bytes of a stored event.
const BYTES_MAX: usize = 64 * 1024;
/// Most names looked at for one list.
const LOOKED_AT_MAX: usize = 200_000;

/// What happened.
#[derive(
    Clone,
    Copy,
    Debug,
    PartialEq,
    Eq,
    Hash,
    Serialize,
    Deserialize,
    Display,
    EnumString,
    IntoStaticStr,
    VariantNames,
)]
#[serde(rename_all = "snake_case")]
#[strum(serialize_all = "snake_case")]
pub enum EventKind {
    /// A pattern stopped code before it ran, or a skill before it was stored.
    PolicyBlock,
    /// Code that ran meets a pattern that only warns.
    PolicyWarning,
    /// A call of a tool was refused by the policy, or of a tool that is not mounted.
    ToolCallBlocked,
    /// A call of a tool failed.
    ToolCallError,
    /// A run met a limit.
    LimitHit,
    /// A run did what an isolation layer forbids.
    SandboxViolation,
    /// A file that a run wrote was not kept.
    FileRefused,
    /// A connection of a run was refused.
    NetworkRefused,
    /// A run did not keep to the protocol of the bridge.
    BridgeViolation,
    /// A principal ran too much lately.
    RateLimited,
    /// A replay came to a call that the record does not have.
    ReplayDiverged,
}

/// One event, before it is stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SecurityEvent {
    /// What happened.
    pub(crate) kind: EventKind,
    /// The same in a sentence: it names no path of the host and no address of the gateway's.
    pub(crate) message: String,
    /// `<server>/<tool>`, where it is about one.
    pub(crate) tool: Option<String>,
    /// The number of the call within the run, from 1, where it is about one.
    pub(crate) call: Option<u64>,
}

impl SecurityEvent {
    /// An event that is about no tool.
    pub fn new(kind: EventKind, message: impl Into<String>) -> Self {
        Self {
            kind,
            message: message.into(),
            tool: None,
            call: None,
        }
    }

    /// The same about a tool.
    #[must_use]
    pub(crate) fn of_tool(mut self, tool: impl Into<String>) -> Self {
        self.tool = Some(tool.into());
        self
    }

    /// The same about a call of the run, by its number.
    #[must_use]
    pub(crate) fn of_call(mut self, call: u64) -> Self {
        self.call = Some(call);
        self
    }
}

/// One event, as it is stored.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StoredEvent {
    #[serde(deserialize_with = "versioned::version")]
    pub(super) version: u32,
    /// The event's id, which holds its time.
    pub(crate) id: String,
    /// What happened.
    pub(crate) kind: EventKind,
    /// The same in a sentence.
    pub(crate) message: String,
    /// The server.
    pub(crate) server_id: String,
    /// The principal.
    pub(crate) user_email: String,
    /// The run, if there was one.
    pub run_id: Option<String>,
    /// `<server>/<tool>`, where it is about one.
    pub(crate) tool: Option<String>,
    /// The number of the call within the run.
    pub(crate) call: Option<u64>,
    /// When, in milliseconds since 1970.
    pub(crate) created_at_ms: u64,
}

impl StoredEvent {
    pub(super) fn new(
        server: &str,
        principal: &Principal,
        run: Option<&str>,
        event: &SecurityEvent,
    ) -> Self {
        let id = RunId::new();
        Self {
            version: VERSION,
            created_at_ms: id.made_at_ms(),
            id: id.as_str().to_owned(),
            kind: event.kind,
            message: head(&event.message, MESSAGE_CHARS_MAX),
            server_id: server.to_owned(),
            user_email: principal.as_str().to_owned(),
            run_id: run.map(str::to_owned),
            tool: event.tool.as_deref().map(|tool| head(tool, TOOL_CHARS_MAX)),
            call: event.call,
        }
    }

    fn file_name(&self) -> String {
        let user = name_mark(&self.user_email);
        format!("{}.{}.{user}", self.id, self.kind)
    }
}

/// Which events are asked for.
#[derive(Clone, Debug, Default)]
pub struct EventFilter {
    /// Only those of this principal.
    pub user: Option<String>,
    /// Only those of this kind.
    pub kind: Option<EventKind>,
    /// Only those since then, in milliseconds since 1970.
    pub since_ms: Option<u64>,
    /// At most so many.
    pub limit: usize,
}

/// Stores an event.
pub(super) fn store(area: &Area, event: &StoredEvent) -> io::Result<()> {
    let Some(id) = RunId::parse(&event.id) else {
        return Err(io::ErrorKind::InvalidInput.into());
    };
    let bytes = serde_json::to_vec(event)?;
    let directory = format!("{EVENTS}/{}", id.day());
    area.replace(&directory, &event.file_name(), &bytes)
}

/// The events asked for, newest first.
pub(crate) fn list(area: &Area, filter: &EventFilter) -> io::Result<Vec<StoredEvent>> {
    let user = filter.user.as_deref().map(name_mark);
    let is_wanted = |name: &str| {
        let mut parts = name.split('.');
        let id = parts.next().and_then(RunId::parse);
        let (kind, of) = (parts.next(), parts.next());
        id.is_some_and(|id| filter.since_ms.is_none_or(|since| id.made_at_ms() >= since))
            && filter.kind.is_none_or(|wanted| kind == Some(wanted.into()))
            && user.as_deref().is_none_or(|user| of == Some(user))
    };
    let since_day = filter.since_ms.map(super::id::day_directory);
    let mut events = Vec::new();
    let mut looked_at = 0_usize;
    for day in days(area, EVENTS)? {
        if since_day.as_ref().is_some_and(|since| day < *since) || looked_at >= LOOKED_AT_MAX {
            break;
        }
        let mut names = area.names(&format!("{EVENTS}/{day}"))?;
        looked_at = looked_at.saturating_add(names.len());
        names.retain(|name| is_wanted(name));
        names.sort_unstable_by(|a, b| b.cmp(a));
        for name in names {
            if events.len() >= filter.limit {
                return Ok(events);
            }
            // Pruned meanwhile, or of a later version.
            let path = format!("{EVENTS}/{day}/{name}");
            let bytes = area.read(&path, BYTES_MAX)?.unwrap_or_default();
            let event: Option<StoredEvent> = versioned::read(&bytes);
            // Two principals may share a mark.
            let is_of = |event: &StoredEvent| {
                filter
                    .user
                    .as_ref()
                    .is_none_or(|user| event.user_email == *user)
            };
            events.extend(event.filter(is_of));
        }
    }
    Ok(events)
}
