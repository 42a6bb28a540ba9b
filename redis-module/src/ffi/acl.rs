//! The user of the running command, and the keys that it may read.
//!
//! Invariant: a check uses the current ACL rules; nothing is cached between commands.

use std::ptr;

use redis_module::raw;

use super::{Context, OK, OwnedText, Text};

/// The user of the running command.
pub(crate) struct Reader {
    /// Null for a command of the server itself, which has no user and may do anything.
    raw: *mut raw::RedisModuleUser,
    may_read_all: bool,
}

impl Context {
    /// The user of the running command.
    pub(crate) fn reader(&self) -> Reader {
        let Some(name) = self.user_name() else {
            return Reader {
                raw: ptr::null_mut(),
                may_read_all: true,
            };
        };
        Reader {
            raw: api!(
                RedisModule_GetModuleUserFromUserName(name.raw),
                ptr::null_mut()
            ),
            may_read_all: false,
        }
    }

    /// `None` for the server's internal clients. They have no user, and a query for the current user would make Redis
    /// 7.0 dereference a null pointer. A script runs as its caller, which is not in the list of clients.
    fn user_name(&self) -> Option<OwnedText> {
        let raw = if self.is_in_script() {
            api!(RedisModule_GetCurrentUserName(self.raw), ptr::null_mut())
        } else {
            let client = api!(RedisModule_GetClientId(self.raw), 0);
            api!(
                RedisModule_GetClientUserNameById(self.raw, client),
                ptr::null_mut()
            )
        };
        (!raw.is_null()).then_some(OwnedText { raw })
    }
}

impl Reader {
    /// Whether the user may read the key. A user that has been deleted may read none.
    pub(crate) fn may_read(&self, key: Text<'_>) -> bool {
        if self.raw.is_null() {
            return self.may_read_all;
        }
        let access = raw::REDISMODULE_CMD_KEY_ACCESS.cast_signed();
        api!(
            RedisModule_ACLCheckKeyPermissions(self.raw, key.raw, access),
            1
        ) == OK
    }
}

impl Drop for Reader {
    fn drop(&mut self) {
        if !self.raw.is_null() {
            api!(RedisModule_FreeModuleUser(self.raw), ());
        }
    }
}
