//! Sessions in a store: finding, listing, showing and ending them. Nothing here checks rights: commands on the store have
//! no caller.

mod filter;
mod find;
mod list;
mod select;
mod views;

pub use self::filter::{FilterError, LabelFilter, SearchText, SessionFilter, SessionSearch};
pub use self::find::{SessionFindError, SessionName, find_session};
pub use self::list::{SessionCursor, SessionList, SessionListRequest, list_sessions};
pub use self::select::{Selection, StoredSession, select_sessions};
pub use self::views::{AgentSessionId, BindingDetail, BindingOwner, SessionDetail, SessionSummary};
