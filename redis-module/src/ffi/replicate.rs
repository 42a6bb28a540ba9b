//! Replication to replicas and the append-only file: plain commands with absolute effects, which can be repeated
//! without a clock and without this module.

use std::ffi::{CStr, c_longlong};
use std::io::{Error, ErrorKind};
use std::ptr;

use redis_module::raw;

use super::{Context, Text};

const HSET: &CStr = c"HSET";
const HDEL: &CStr = c"HDEL";
const PEXPIREAT: &CStr = c"PEXPIREAT";
const UNLINK: &CStr = c"UNLINK";
const SET: &CStr = c"SET";

impl Context {
    /// The first of the commands below that this server lacks, because of `rename-command`. Without it a change would
    /// reach only the keyspace, and no call reports that in time to refuse the change.
    pub(crate) fn missing_effect(&self) -> Option<&'static CStr> {
        let effects = [HSET, HDEL, PEXPIREAT, UNLINK, SET];
        effects.into_iter().find(|name| !self.has_command(name))
    }

    /// Whether the server has a command of this name. The command must require arguments: called without any, it is
    /// refused before it runs.
    fn has_command(&self, name: &CStr) -> bool {
        let reply = api!(
            RedisModule_Call(self.raw, name.as_ptr(), c"".as_ptr()),
            ptr::null_mut()
        );
        let is_missing = reply.is_null() && Error::last_os_error().kind() == ErrorKind::NotFound;
        if !reply.is_null() {
            api!(RedisModule_FreeCallReply(reply), ());
        }
        !is_missing
    }

    /// Sends `HSET key field value ...`.
    pub(crate) fn replicate_set(&self, key: Text<'_>, pairs: &[[Text<'_>; 2]]) {
        api!(
            RedisModule_Replicate(
                self.raw,
                HSET.as_ptr(),
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
                HDEL.as_ptr(),
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
                PEXPIREAT.as_ptr(),
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
            RedisModule_Replicate(self.raw, UNLINK.as_ptr(), c"s".as_ptr(), key.raw),
            0
        );
    }

    /// Sends `SET key value PXAT unix_ms`.
    pub(crate) fn replicate_set_string(&self, key: Text<'_>, value: Text<'_>, unix_ms: i64) {
        api!(
            RedisModule_Replicate(
                self.raw,
                SET.as_ptr(),
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
