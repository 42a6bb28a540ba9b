//! The running callback's view of the server: its keys, its clock, its state.

use std::ffi::CStr;
use std::marker::PhantomData;
use std::ptr;

use mooring_session::RequestDigest;
use redis_module::raw;

use super::{Arguments, Key, OK, Text};

/// The server's id of a client's connection. Never reused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct ClientId(pub(crate) u64);

/// The running callback's view of the server.
pub(crate) struct Context {
    pub(super) raw: *mut raw::RedisModuleCtx,
    /// The digest of the running command; without meaning in other callbacks.
    pub(crate) request: RequestDigest,
}

impl Context {
    /// The context of a command with these arguments.
    pub(super) fn of_command(raw: *mut raw::RedisModuleCtx, arguments: Arguments<'_>) -> Self {
        Self {
            raw,
            request: RequestDigest::of(arguments.words()),
        }
    }

    /// The context of any other callback.
    pub(super) fn outside_commands(raw: *mut raw::RedisModuleCtx) -> Self {
        Self {
            raw,
            request: RequestDigest::default(),
        }
    }

    /// Opens the key for reading and writing. An expired key is deleted by this.
    pub(crate) fn open(&self, name: Text<'_>) -> Key<'_> {
        self.open_as(name, raw::REDISMODULE_READ | raw::REDISMODULE_WRITE)
    }

    /// Opens the key for reading, also on a replica. Only its access time changes.
    pub(crate) fn open_to_read(&self, name: Text<'_>) -> Key<'_> {
        self.open_as(name, raw::REDISMODULE_READ)
    }

    /// Opens the key without updating its access time or counting a miss, if this server supports that (Redis 7.0
    /// ignores the flags that it does not know).
    pub(crate) fn open_to_look(&self, name: Text<'_>) -> Key<'_> {
        self.open_as(
            name,
            raw::REDISMODULE_READ
                | raw::REDISMODULE_OPEN_KEY_NOTOUCH
                | raw::REDISMODULE_OPEN_KEY_NONOTIFY
                | raw::REDISMODULE_OPEN_KEY_NOSTATS,
        )
    }

    fn open_as(&self, name: Text<'_>, mode: u32) -> Key<'_> {
        Key {
            raw: api!(
                RedisModule_OpenKey(self.raw, name.raw, mode.cast_signed()),
                ptr::null_mut()
            ),
            lives: PhantomData,
        }
    }

    /// The server's wall clock, in milliseconds since the Unix epoch.
    pub(crate) fn unix_ms(&self) -> u64 {
        u64::try_from(api!(RedisModule_Milliseconds(), 0)).unwrap_or(0)
    }

    /// The client of the running command.
    pub(crate) fn client(&self) -> ClientId {
        ClientId(api!(RedisModule_GetClientId(self.raw), 0))
    }

    /// The database of this callback.
    pub(crate) fn database(&self) -> i32 {
        api!(RedisModule_GetSelectedDb(self.raw), 0)
    }

    /// Selects another database, and returns whether the server has it. Only for callbacks without a client: a command
    /// would leave its client in that database.
    pub(crate) fn select(&self, database: i32) -> bool {
        api!(RedisModule_SelectDb(self.raw, database), 1) == OK
    }

    /// How many keys the database holds.
    pub(crate) fn database_size(&self) -> u64 {
        api!(RedisModule_DbSize(self.raw), 0)
    }

    /// Whether the client must not be blocked: in MULTI, in a script, and wherever else the server forbids it.
    pub(crate) fn denies_blocking(&self) -> bool {
        self.has_any_flag(
            raw::REDISMODULE_CTX_FLAGS_DENY_BLOCKING
                | raw::REDISMODULE_CTX_FLAGS_MULTI
                | raw::REDISMODULE_CTX_FLAGS_LUA,
        )
    }

    /// Whether the server has reached maxmemory and never evicts. With an eviction policy it has freed memory before
    /// the command, and exceeds the limit only by what this command, or this transaction, has written since. Sessions
    /// expire, so every policy may evict them before the next command.
    pub(crate) fn is_out_of_memory(&self) -> bool {
        self.has_any_flag(raw::REDISMODULE_CTX_FLAGS_OOM)
            && !self.has_any_flag(raw::REDISMODULE_CTX_FLAGS_EVICT)
    }

    /// Whether this server is a primary.
    pub(crate) fn is_primary(&self) -> bool {
        self.has_any_flag(raw::REDISMODULE_CTX_FLAGS_MASTER)
    }

    /// Whether this server is a replica that refuses writes of clients.
    pub(crate) fn is_read_only_replica(&self) -> bool {
        self.has_any_flag(raw::REDISMODULE_CTX_FLAGS_READONLY)
    }

    /// Whether this server is a primary that is not loading its data, so that it may write without a client.
    pub(crate) fn is_serving_primary(&self) -> bool {
        self.is_primary() && !self.has_any_flag(raw::REDISMODULE_CTX_FLAGS_LOADING)
    }

    /// Whether the server loads data while it serves the previous data: a replica in a full synchronization.
    pub(crate) fn is_loading_aside(&self) -> bool {
        self.has_any_flag(raw::REDISMODULE_CTX_FLAGS_ASYNC_LOADING)
    }

    /// Whether a script is running the callback.
    pub(super) fn is_in_script(&self) -> bool {
        self.has_any_flag(raw::REDISMODULE_CTX_FLAGS_LUA)
    }

    fn has_any_flag(&self, flags: u32) -> bool {
        api!(RedisModule_GetContextFlags(self.raw), 0).cast_unsigned() & flags != 0
    }

    /// Signals to clients that cache or watch the key that its data changed.
    pub(crate) fn signal_modified(&self, key: Text<'_>) {
        api!(RedisModule_SignalModifiedKey(self.raw, key.raw), 0);
    }

    /// Publishes a keyspace event of class module (`d` in `notify-keyspace-events`).
    pub(crate) fn notify(&self, event: &'static CStr, key: Text<'_>) {
        api!(
            RedisModule_NotifyKeyspaceEvent(
                self.raw,
                raw::REDISMODULE_NOTIFY_MODULE,
                event.as_ptr(),
                key.raw
            ),
            0
        );
    }

    /// The value of one of the server's own settings.
    pub(crate) fn server_setting(&self, name: &CStr) -> Option<Vec<u8>> {
        let reply = api!(
            RedisModule_Call(
                self.raw,
                c"CONFIG".as_ptr(),
                c"cc".as_ptr(),
                c"GET".as_ptr(),
                name.as_ptr()
            ),
            ptr::null_mut()
        );
        if reply.is_null() {
            return None;
        }
        let value = api!(RedisModule_CallReplyArrayElement(reply, 1), ptr::null_mut());
        let mut bytes = None;
        if !value.is_null() {
            let mut length = 0;
            let start = api!(
                RedisModule_CallReplyStringPtr(value, &raw mut length),
                ptr::null()
            );
            if !start.is_null() {
                // SAFETY: the reply, which is freed below, holds `length` bytes from `start` on.
                bytes = Some(unsafe { std::slice::from_raw_parts(start.cast(), length) }.to_vec());
            }
        }
        api!(RedisModule_FreeCallReply(reply), ());
        bytes
    }
}
