//! The primitives of replies: each writes one value to the client of the running callback.

use redis_module::raw;

use super::Context;
use super::log::one_line;

impl Context {
    /// Begins a map of `pairs` names and values: flat in RESP2.
    pub(crate) fn reply_map(&self, pairs: usize) {
        let pairs = i64::try_from(pairs).unwrap_or(0);
        api!(RedisModule_ReplyWithMap(self.raw, pairs), 0);
    }

    /// Begins an array of `length` values.
    pub(crate) fn reply_array(&self, length: usize) {
        let length = i64::try_from(length).unwrap_or(0);
        api!(RedisModule_ReplyWithArray(self.raw, length), 0);
    }

    /// A bulk string.
    pub(crate) fn reply_bytes(&self, bytes: &[u8]) {
        api!(
            RedisModule_ReplyWithStringBuffer(self.raw, bytes.as_ptr().cast(), bytes.len()),
            0
        );
    }

    /// A line of text, as in replies of the server's own HELP subcommands.
    pub(crate) fn reply_line(&self, line: &str) {
        let line = one_line(line);
        api!(
            RedisModule_ReplyWithSimpleString(self.raw, line.as_ptr()),
            0
        );
    }

    /// An integer.
    pub(crate) fn reply_integer(&self, value: i64) {
        api!(RedisModule_ReplyWithLongLong(self.raw, value), 0);
    }

    /// Null.
    pub(crate) fn reply_null(&self) {
        api!(RedisModule_ReplyWithNull(self.raw), 0);
    }

    /// An error: one line whose first word is its code.
    pub(crate) fn reply_error(&self, message: &str) {
        let line = one_line(message);
        api!(RedisModule_ReplyWithError(self.raw, line.as_ptr()), 0);
    }
}
