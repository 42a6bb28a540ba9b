//! What replicas and the append-only file are told: plain commands with absolute effects, which need neither a clock
//! nor this module to be repeated.

use std::ffi::c_longlong;

use redis_module::raw;

use super::{Context, Text};

impl Context {
    /// Sends `HSET key field value ...`.
    pub(crate) fn replicate_set(&self, key: Text<'_>, pairs: &[[Text<'_>; 2]]) {
        api!(
            RedisModule_Replicate(
                self.raw,
                c"HSET".as_ptr(),
                c"sv".as_ptr(),
                key.raw,
                pairs.as_ptr().cast::<*mut raw::RedisModuleString>(),
                pairs.len() * 2,
            ),
            0
        );
    }

    /// Sends `HDEL key field ...`.
    pub(crate) fn replicate_delete(&self, key: Text<'_>, fields: &[Text<'_>]) {
        api!(
            RedisModule_Replicate(
                self.raw,
                c"HDEL".as_ptr(),
                c"sv".as_ptr(),
                key.raw,
                fields.as_ptr().cast::<*mut raw::RedisModuleString>(),
                fields.len(),
            ),
            0
        );
    }

    /// Sends `PEXPIREAT key unix_ms`.
    pub(crate) fn replicate_expire_at(&self, key: Text<'_>, unix_ms: i64) {
        api!(
            RedisModule_Replicate(
                self.raw,
                c"PEXPIREAT".as_ptr(),
                c"sl".as_ptr(),
                key.raw,
                c_longlong::from(unix_ms),
            ),
            0
        );
    }

    /// Sends `UNLINK key`.
    pub(crate) fn replicate_unlink(&self, key: Text<'_>) {
        api!(
            RedisModule_Replicate(self.raw, c"UNLINK".as_ptr(), c"s".as_ptr(), key.raw),
            0
        );
    }

    /// Sends `SET key value PXAT unix_ms`.
    pub(crate) fn replicate_set_string(&self, key: Text<'_>, value: Text<'_>, unix_ms: i64) {
        api!(
            RedisModule_Replicate(
                self.raw,
                c"SET".as_ptr(),
                c"sscl".as_ptr(),
                key.raw,
                value.raw,
                c"PXAT".as_ptr(),
                c_longlong::from(unix_ms),
            ),
            0
        );
    }
}
