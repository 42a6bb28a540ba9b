//! Blocked clients.
//!
//! Invariant: a blocked client is returned to the server exactly once, when its [`BlockedClient`] is dropped. That
//! wakes a client, and is also necessary after its disconnect: the server frees blocked clients only when they are
//! returned, and refuses to unload a module that has any.

use std::ffi::{c_int, c_longlong};
use std::ptr;

use redis_module::raw;

use super::{Context, OK, callbacks};

/// A blocked client. Dropping it wakes the client: in the next iteration of the server's loop
/// [`Callbacks::wake`](super::Callbacks::wake) writes its reply, unless it has disconnected.
pub(crate) struct BlockedClient {
    raw: *mut raw::RedisModuleBlockedClient,
}

// SAFETY: the handle is a block of the server that is not tied to a thread, and `RM_UnblockClient`, its only use, may
// be called from any thread.
unsafe impl Send for BlockedClient {}

/// Identifies a blocked client: unique among those that were not returned yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct BlockedId(usize);

impl Context {
    /// Blocks the client of the running command, without a timeout of the server: a client whose timeout passes in the
    /// iteration of the loop in which it is woken would get no reply at all (Redis 7.0 unblocks it and calls no
    /// callback). The command must not reply. If an operator unblocks the client,
    /// [`Callbacks::wake`](super::Callbacks::wake) replies as well; if it disconnects,
    /// [`Callbacks::on_client_gone`](super::Callbacks::on_client_gone) is called. Do not call this if
    /// [`Context::denies_blocking`]. `None` if this server cannot block clients.
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
    /// The id of the client.
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
    callbacks::call(|module| module.wake(&context, context.blocked_id()));
    OK
}

extern "C" fn disconnected(
    _context: *mut raw::RedisModuleCtx,
    client: *mut raw::RedisModuleBlockedClient,
) {
    callbacks::call(|module| module.on_client_gone(BlockedId::of(client)));
}
