//! The events of the server: of keys, and of the server itself.
//!
//! Invariants: the name of a key is only passed as bytes. While the server loads its data, the string of the name is on
//! the stack, and retaining it aborts the server. Unknown events are ignored.

use std::ffi::{CStr, c_char, c_int, c_void};

use redis_module::raw;

use super::loading::{LoadError, Loading, check};
use super::{ClientId, Context, ERR, KeyEvent, OK, ServerEvent, Text, callbacks};

/// All classes but the module's own, misses, and events that duplicate those of other classes.
const CLASSES: c_int = raw::REDISMODULE_NOTIFY_GENERIC
    | raw::REDISMODULE_NOTIFY_STRING
    | raw::REDISMODULE_NOTIFY_LIST
    | raw::REDISMODULE_NOTIFY_SET
    | raw::REDISMODULE_NOTIFY_HASH
    | raw::REDISMODULE_NOTIFY_ZSET
    | raw::REDISMODULE_NOTIFY_EXPIRED
    | raw::REDISMODULE_NOTIFY_EVICTED
    | raw::REDISMODULE_NOTIFY_STREAM
    | raw::REDISMODULE_NOTIFY_LOADED
    | raw::REDISMODULE_NOTIFY_KEY_TRIMMED;

/// The events subscribed to. Redis 7.0 has all of them.
const EVENTS: [u64; 7] = [
    raw::REDISMODULE_EVENT_REPLICATION_ROLE_CHANGED,
    raw::REDISMODULE_EVENT_FLUSHDB,
    raw::REDISMODULE_EVENT_LOADING,
    raw::REDISMODULE_EVENT_SWAPDB,
    raw::REDISMODULE_EVENT_REPL_ASYNC_LOAD,
    raw::REDISMODULE_EVENT_CRON_LOOP,
    raw::REDISMODULE_EVENT_CLIENT_CHANGE,
];

impl Loading<'_> {
    /// Subscribes to all events of keys and of the server. The server drops the subscription with the module.
    pub(crate) fn subscribe(&self) -> Result<(), LoadError> {
        check(
            api!(
                RedisModule_SubscribeToKeyspaceEvents(
                    self.context().raw,
                    CLASSES,
                    Some(key_changed)
                ),
                ERR
            ),
            LoadError::Refused("the subscription to events"),
        )?;
        for id in EVENTS {
            let event = raw::RedisModuleEvent { id, dataver: 1 };
            check(
                api!(
                    RedisModule_SubscribeToServerEvent(
                        self.context().raw,
                        event,
                        Some(server_changed)
                    ),
                    ERR
                ),
                LoadError::Refused("the subscription to events"),
            )?;
        }
        Ok(())
    }
}

extern "C" fn key_changed(
    context: *mut raw::RedisModuleCtx,
    class: c_int,
    event: *const c_char,
    key: *mut raw::RedisModuleString,
) -> c_int {
    // SAFETY: the server's name of the key lives for the length of this callback.
    let key = unsafe { Text::borrow(key) }.as_bytes();
    let what = match class {
        raw::REDISMODULE_NOTIFY_LOADED => KeyEvent::Loaded,
        raw::REDISMODULE_NOTIFY_EVICTED => KeyEvent::Evicted,
        raw::REDISMODULE_NOTIFY_HASH => KeyEvent::FieldsChanged,
        raw::REDISMODULE_NOTIFY_EXPIRED => KeyEvent::Gone,
        // Setting a deadline in the past sends `del`.
        raw::REDISMODULE_NOTIFY_GENERIC if is_one_of(event, [c"expire", c"persist"]) => return OK,
        raw::REDISMODULE_NOTIFY_GENERIC if is_one_of(event, [c"del"]) => KeyEvent::Gone,
        raw::REDISMODULE_NOTIFY_GENERIC if is_one_of(event, [c"restore"]) => KeyEvent::Restored,
        _ => KeyEvent::Changed,
    };
    callbacks::call(|module| {
        module.key_changed(&Context::outside_commands(context), what, key);
    });
    OK
}

/// Whether it is one of these events. `expire` and `persist` only mean that the key got another TTL, or none: a
/// session's deadline is in its record.
fn is_one_of<const N: usize>(event: *const c_char, names: [&CStr; N]) -> bool {
    // SAFETY: the server names every event by a string that lives for the length of the callback.
    let event = unsafe { CStr::from_ptr(event) };
    names.contains(&event)
}

extern "C" fn server_changed(
    context: *mut raw::RedisModuleCtx,
    event: raw::RedisModuleEvent,
    part: u64,
    data: *mut c_void,
) {
    if let Some(event) = read(event.id, part, data) {
        callbacks::call(|module| {
            module.server_changed(&Context::outside_commands(context), event);
        });
    }
}

fn read(id: u64, part: u64, data: *mut c_void) -> Option<ServerEvent> {
    let event = match (id, part) {
        (raw::REDISMODULE_EVENT_CRON_LOOP, _) => return ticked(data),
        (
            raw::REDISMODULE_EVENT_REPLICATION_ROLE_CHANGED,
            raw::REDISMODULE_EVENT_REPLROLECHANGED_NOW_MASTER,
        ) => ServerEvent::Promoted,
        (
            raw::REDISMODULE_EVENT_REPLICATION_ROLE_CHANGED,
            raw::REDISMODULE_EVENT_REPLROLECHANGED_NOW_REPLICA,
        ) => ServerEvent::Demoted,
        (raw::REDISMODULE_EVENT_FLUSHDB, raw::REDISMODULE_SUBEVENT_FLUSHDB_START) => {
            return flushing(data);
        }
        (raw::REDISMODULE_EVENT_SWAPDB, _) => return swapped(data),
        (
            raw::REDISMODULE_EVENT_CLIENT_CHANGE,
            raw::REDISMODULE_SUBEVENT_CLIENT_CHANGE_DISCONNECTED,
        ) => return disconnected(data),
        (raw::REDISMODULE_EVENT_LOADING, part) => match part {
            raw::REDISMODULE_SUBEVENT_LOADING_RDB_START
            | raw::REDISMODULE_SUBEVENT_LOADING_AOF_START
            | raw::REDISMODULE_SUBEVENT_LOADING_REPL_START => ServerEvent::LoadingStarted,
            raw::REDISMODULE_SUBEVENT_LOADING_ENDED => ServerEvent::LoadingEnded,
            raw::REDISMODULE_SUBEVENT_LOADING_FAILED => ServerEvent::LoadingFailed,
            _ => return None,
        },
        (raw::REDISMODULE_EVENT_REPL_ASYNC_LOAD, part) => match part {
            raw::REDISMODULE_SUBEVENT_REPL_ASYNC_LOAD_STARTED => ServerEvent::AsideStarted,
            raw::REDISMODULE_SUBEVENT_REPL_ASYNC_LOAD_ABORTED => ServerEvent::AsideAborted,
            raw::REDISMODULE_SUBEVENT_REPL_ASYNC_LOAD_COMPLETED => ServerEvent::AsideCompleted,
            _ => return None,
        },
        _ => return None,
    };
    Some(event)
}

fn ticked(data: *mut c_void) -> Option<ServerEvent> {
    if data.is_null() {
        return None;
    }
    // SAFETY: the event CRON_LOOP carries this structure, which lives for the length of the callback.
    let info = unsafe { &*data.cast::<raw::RedisModuleCronLoopInfo>() };
    Some(ServerEvent::Tick {
        hz: u64::try_from(info.hz).unwrap_or(0),
    })
}

fn flushing(data: *mut c_void) -> Option<ServerEvent> {
    if data.is_null() {
        return None;
    }
    // SAFETY: the event FLUSHDB carries this structure, which lives for the length of the callback.
    let info = unsafe { &*data.cast::<raw::RedisModuleFlushInfo>() };
    Some(ServerEvent::Flushing {
        // -1 means all databases.
        database: (info.dbnum >= 0).then_some(info.dbnum),
    })
}

fn swapped(data: *mut c_void) -> Option<ServerEvent> {
    if data.is_null() {
        return None;
    }
    // SAFETY: the event SWAPDB carries this structure, which lives for the length of the callback.
    let info = unsafe { &*data.cast::<raw::RedisModuleSwapDbInfo>() };
    Some(ServerEvent::Swapped {
        first: info.dbnum_first,
        second: info.dbnum_second,
    })
}

fn disconnected(data: *mut c_void) -> Option<ServerEvent> {
    if data.is_null() {
        return None;
    }
    // SAFETY: the event CLIENT_CHANGE carries this structure, which lives for the length of the callback.
    let info = unsafe { &*data.cast::<raw::RedisModuleClientInfo>() };
    Some(ServerEvent::Disconnected {
        client: ClientId(info.id),
    })
}
