//! Groups: several of the configured servers behind one endpoint.
//!
//! A group has no state outside of the session. Its session is one record in the store with a binding for each member,
//! and a call is served like a call to the member itself. This module has what is specific to groups: names
//! ([`names`]), lists ([`merge`], [`gather`]), the handshake ([`open`], [`initialize`]), streams ([`listen`],
//! [`event_ids`]), finding the member for a name or URI ([`directory`], [`template`]), and what is remembered of members
//! so that their programs need not be started ([`known`]). [`serve`] tells which messages are for one member.
//!
//! Invariant: members' messages reach the client byte for byte, except for names of tools and prompts and event ids,
//! which are mapped back in requests.

mod calls;
mod directory;
mod event_ids;
mod gather;
mod initialize;
mod known;
mod listen;
mod lists;
mod member_reply;
mod members;
mod merge;
mod message;
mod names;
mod one_way;
mod open;
mod serve;
mod session_members;
mod template;

pub(crate) use self::listen::get;
pub use self::members::{Group, Groups, Member};
pub(crate) use self::serve::post;
