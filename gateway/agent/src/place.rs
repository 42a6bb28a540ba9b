//! Key, id and labels of a conversation's record.
//!
//! Invariant: key and id are derived from server, principal and parent only, so every process derives the same ones.

use mooring_session::names::{NameError, Principal, ServerName, SessionId};

use super::parent::key_part;
use mooring_secrets::digest;
use mooring_store::{SessionKey, Store, UserSlug};

/// The label with the parent as the client named it.
pub const PARENT_LABEL: &str = "parent";
/// The label with the folder of the last run.
pub(crate) const FOLDER_LABEL: &str = "work_folder";
/// The label with the last run: its end in milliseconds since 1970, a space, and its outcome.
pub const LAST_RUN_LABEL: &str = "last_run";
/// Replaces the instance in the bindings of agents, which keep their state in their own files.
pub(crate) const INSTANCE: &[u8] = b"agent";
/// Number of hexadecimal digits of a session's id.
const ID_DIGITS: usize = 24;

/// The key of a parent's record, and its id.
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
