//! What operators see of a fleet, and what they do with it: views, acts, the rights that these need and the audit lines that
//! acts leave. The admin API, the page and the commands are all over this crate.
//!
//! [`Operator`] is the entry for callers with rights. The functions of [`sessions`] work on a store alone, for commands that
//! have no gateway.
//!
//! Invariant: no view holds a secret: ids of sessions and of upstream sessions are shown as digests. Nothing is read or done
//! for a caller without the right, and no act without an audit line.

mod acts;
mod caller_rights;
mod fleet;
mod local_gateway;
mod note_view;
mod operator;
mod operator_error;
mod servers;
mod session_life;
mod session_views;
pub mod sessions;
mod tally;
mod traffic;
mod words;
mod workers;

pub use self::acts::{
    ActPreview, ActProgress, ActReply, DrainChange, ParkChange, ParkRequest, SessionMove,
};
pub use self::caller_rights::{CallerRights, ServerAccess};
pub use self::fleet::{FleetView, GatewayLoad, InstanceLoad, ServerLoad};
pub use self::local_gateway::{LocalGatewayView, StoreView};
pub use self::note_view::NoteView;
pub use self::operator::{AUDIT_TARGET, Operator, OperatorCache, OperatorIdentity};
pub use self::operator_error::OperatorError;
pub use self::servers::{ContactView, InstanceView, ServerDetail, ServerList, ServerView};
pub use self::session_life::{SessionEvent, SessionHistory, SessionWaits};
pub use self::traffic::{GatewayTraffic, TrafficView, UserRefusals, answer_figures};
pub use self::words::{GatewayState, Health, ServerKindName, SessionKind, SessionStatus};
pub use self::workers::{WorkerList, WorkerView};
