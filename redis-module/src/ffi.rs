//! The boundary to Redis: every call of its module API, and with its parts the only `unsafe` code of the workspace.
//!
//! Invariants that are kept here, so that other code need not know them:
//! * Text is bytes with a length. Nothing goes through a C string that a client chose, no message is ever used as a
//!   printf format, and a NUL byte or invalid UTF-8 is data like any other.
//! * What is opened is closed and what is allocated is freed, by `Drop`, also when a handler unwinds.
//! * No panic reaches the server: callbacks end in [`Callbacks`] and [`EntryPoint`], which let none out; those of settings
//!   and of scans are guarded in the parts.
//! * Redis runs commands and callbacks on one thread at a time. A [`Context`] and what borrows from it cannot outlive
//!   their callback.
//! * A function of the API that this server does not have is a null pointer: the required ones are checked once at load
//!   ([`loading`]), the others do nothing.

#![allow(
    unsafe_code,
    reason = "the module API of Redis is a table of C function pointers"
)]

use std::ffi::c_int;

/// The two return values of functions and callbacks of the API.
const OK: c_int = 0;
const ERR: c_int = 1;

/// Calls a function of the module API, or returns `$absent` if this server does not have it.
macro_rules! api {
    ($function:ident($($argument:expr),* $(,)?), $absent:expr) => {
        // SAFETY: `RedisModule_Init` wrote this pointer once, before any other code of the module ran; it is only
        // read afterwards. Its type is the one that Redis declares for it, and every caller, here and in the parts,
        // passes pointers that Redis provided for the running callback or that it keeps alive across the call.
        unsafe {
            match raw::$function {
                Some(function) => function($($argument),*),
                None => $absent,
            }
        }
    };
}

// After the macro, which its parts use.
mod acl;
#[cfg(not(any(test, fuzzing)))]
mod allocator;
mod blocking;
mod callbacks;
mod context;
mod describe;
mod entry;
mod events;
mod fields;
mod key;
pub(crate) mod loading;
mod log;
mod replicate;
mod reply;
mod scan;
mod setting;
mod text;
mod timer;

pub(crate) use blocking::{BlockedClient, BlockedId};
pub(crate) use callbacks::{Callbacks, KeyEvent, ServerEvent};
pub(crate) use context::{ClientId, Context};
pub(crate) use entry::{EntryPoint, Report, entry};
pub(crate) use fields::Fields;
pub(crate) use key::{Key, KeyKind};
pub(crate) use log::{Level, log_warning};
pub(crate) use scan::{Scan, ScanState};
pub(crate) use setting::TextSetting;
pub(crate) use text::{Arguments, OwnedText, Text};
pub(crate) use timer::Timer;
