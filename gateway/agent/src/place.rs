//! Where the record of a conversation is, and what in it has which name.
//!
//! Invariant: key and id follow from server, principal and parent alone, so every process derives the same ones.

use mooring_session::names::{NameError, Principal, ServerName, SessionId};

use super::parent::key_part;
use mooring_secrets::digest;
use mooring_store::{SessionKey, Store, UserSlug};

/// The label that holds the parent as the client wrote it.
pub const PARENT_LABEL: &str = "parent";
/// The label of the folder in which the agent worked last.
pub(crate) const FOLDER_LABEL: &str = "work_folder";
/// The label that holds the last run: its end in milliseconds since 1970, a space, and what came of it.
pub const LAST_RUN_LABEL: &str = "last_run";
/// What stands for the instance in the bindings of agents: what they remember is in stores of their own.
pub(crate) const INSTANCE: &[u8] = b"agent";
/// Hexadecimal digits of a session's id.
const ID_DIGITS: usize = 24;

/// Where the record of a parent is, and its id.
pub(crate) fn place(
    store: &Store,
    server: &ServerName,
    principal: &Principal,
    parent: &str,
) -> Result<(SessionKey, SessionId), NameError> {
    let material = format!("{server}:{}:agent:{parent}", principal.as_str());
    let hash = digest::hex(material.as_bytes());
    let id = SessionId::parse(hash.get(..ID_DIGITS).unwrap_or_default().as_bytes())?;
    let slug = UserSlug::of(principal);
    let key = store.agent_key(server, slug.as_str(), &key_part(parent), &id)?;
    Ok((key, id))
}
