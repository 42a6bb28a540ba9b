//! Lines of the server's log.
//!
//! Invariant: a message is data, never a printf format, and it is always one line.

use std::ffi::CString;
use std::ptr;

use redis_module::raw;

use super::Context;

/// How serious a log line is.
#[derive(Clone, Copy)]
pub(crate) enum Level {
    /// Relevant to operators in normal operation.
    Notice,
    /// Something is wrong.
    Warning,
}

/// Logs a warning outside any callback, for the panic hook.
pub(crate) fn log_warning(message: &str) {
    log_to(ptr::null_mut(), Level::Warning, message);
}

fn log_to(context: *mut raw::RedisModuleCtx, level: Level, message: &str) {
    let level = match level {
        Level::Notice => c"notice",
        Level::Warning => c"warning",
    };
    let line = one_line(message);
    api!(
        RedisModule_Log(context, level.as_ptr(), c"%s".as_ptr(), line.as_ptr()),
        ()
    );
}

/// The text as one line without control characters, which could forge log lines and break replies.
pub(super) fn one_line(message: &str) -> CString {
    let mut line = String::with_capacity(message.len() + 1);
    for character in message.chars() {
        if character.is_control() {
            line.extend(character.escape_default());
        } else {
            line.push(character);
        }
    }
    CString::new(line).unwrap_or_default()
}

impl Context {
    /// Writes a line to the server's log. The message is data, never a format; what is not printable is escaped.
    pub(crate) fn log(&self, level: Level, message: &str) {
        log_to(self.raw, level, message);
    }
}
