//! Clients that wait for their reply.
//!
//! Invariant: what was blocked is handed back exactly once, when its [`BlockedClient`] is dropped. That is the way to
//! wake a client, and it is due as well after its disconnect: the server keeps a module with blocked
//! clients loaded, and frees them only when they are handed back.

use std::ffi::{c_int, c_longlong};
use std::ptr;

use redis_module::raw;

use super::{Context, OK};
use crate::handler;

/// A client that waits. Dropped, it is woken: on the next turn of the server's loop
/// [`handler::wake`](crate::handler::wake) writes its reply, unless it went away before.
pub(crate) struct BlockedClient {
    raw: *mut raw::RedisModuleBlockedClient,
}

// SAFETY: the handle is a block of the server's without ties to a thread, and `RM_UnblockClient`, the only use made of
// it, may be called from any.
unsafe impl Send for BlockedClient {}

/// Which of the waiting clients: unique among those that were not handed back yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct BlockedId(usize);

impl Context {
    /// Makes the client of the running command wait, without an end of the server's own: a client whose time is over in
    /// the turn of the loop in which it is woken would get no reply at all (Redis 7.0 unblocks it and calls nothing).
    /// The command must not reply. Where an operator unblocks the client,
    /// [`handler::wake`](crate::handler::wake) replies as well; where it goes away,
    /// [`handler::forsake`](crate::handler::forsake) is told.
    /// Never where [`Context::denies_blocking`]. None where this server cannot.
    pub(crate) fn block_client(&self) -> Option<BlockedClient> {
        const NO_TIMEOUT: c_longlong = 0;
        let raw = api!(
            RedisModule_BlockClient(self.raw, Some(reply), Some(reply), None, NO_TIMEOUT),
            ptr::null_mut()
        );
        if raw.is_null() {
            return None;
        }
        api!(
            RedisModule_SetDisconnectCallback(raw, Some(disconnected)),
            ()
        );
        Some(BlockedClient { raw })
    }

    fn blocked_id(&self) -> BlockedId {
        BlockedId::of(api!(
            RedisModule_GetBlockedClientHandle(self.raw),
            ptr::null_mut()
        ))
    }
}

impl BlockedClient {
    /// Which client this is.
    pub(crate) fn id(&self) -> BlockedId {
        BlockedId::of(self.raw)
    }
}

impl BlockedId {
    fn of(raw: *mut raw::RedisModuleBlockedClient) -> Self {
        Self(raw.addr())
    }
}

impl Drop for BlockedClient {
    fn drop(&mut self) {
        api!(RedisModule_UnblockClient(self.raw, ptr::null_mut()), 0);
    }
}

extern "C" fn reply(
    context: *mut raw::RedisModuleCtx,
    _argv: *mut *mut raw::RedisModuleString,
    _argc: c_int,
) -> c_int {
    let context = Context::outside_commands(context);
    handler::wake(&context, context.blocked_id());
    OK
}

extern "C" fn disconnected(
    _context: *mut raw::RedisModuleCtx,
    client: *mut raw::RedisModuleBlockedClient,
) {
    handler::forsake(BlockedId::of(client));
}
