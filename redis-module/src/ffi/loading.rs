//! Loading and unloading: the calls that only `RedisModule_OnLoad` and `RedisModule_OnUnload` may make.
//!
//! Invariant: everything passed to the server here is either copied by it (descriptions) or lives as long as the module
//! (settings, functions).

use std::ffi::{CStr, c_int};
use std::ptr;

use redis_module::raw;

use super::describe::describe;
use super::text::Secrets;
use super::{Arguments, Context, ERR, Level, OK, Report};
use crate::handler;
use crate::registrar::{CommandSpec, KeyAccess};

const API_VERSION: c_int = raw::REDISMODULE_APIVER_1.cast_signed();

/// The server refused a step of the loading; its own log line has the details.
#[derive(Debug, thiserror::Error)]
pub(crate) enum LoadError {
    /// Another module has this name, or the server does not support this version of the API.
    #[error("the server refused the module")]
    Init,
    /// A server older than Redis 7.0.
    #[error("this server lacks {0}, which Redis has since 7.0")]
    Missing(&'static str),
    /// A setting that the server refused.
    #[error("the server refused the setting {0:?}")]
    Setting(&'static CStr),
    /// Values of settings, in the configuration file or on the command line, that are out of range.
    #[error("the settings of the module could not be read")]
    Settings,
    /// A command whose name is taken.
    #[error("the server refused the command {0:?}")]
    Command(&'static CStr),
    /// The description of a command.
    #[error("the server refused the description of the command {0:?}")]
    Description(&'static CStr),
    /// The INFO section.
    #[error("the server refused the INFO section")]
    Info,
    /// The subscription to events.
    #[error("the server refused the subscription to events")]
    Events,
}

/// The loading of the module: the calls that only [`RedisModule_OnLoad`] may make.
pub(crate) struct Loading<'a> {
    context: &'a Context,
}

impl<'a> Loading<'a> {
    /// Registers the module, and checks once that the server has all required functions.
    fn begin(context: &'a Context) -> Result<Self, LoadError> {
        // SAFETY: called once, with the context that the server gave to `RedisModule_OnLoad`; this is what fills the
        // table of function pointers that everything else reads.
        let status = unsafe {
            raw::Export_RedisModule_Init(
                context.raw,
                crate::NAME.as_ptr(),
                crate::VERSION,
                API_VERSION,
            )
        };
        if status != OK {
            return Err(LoadError::Init);
        }
        macro_rules! require {
            ($($function:ident)*) => {$(
                // SAFETY: written by `RedisModule_Init` just now, and only read from here on.
                if unsafe { raw::$function }.is_none() {
                    return Err(LoadError::Missing(stringify!($function)));
                }
            )*};
        }
        require! {
            RedisModule_Alloc RedisModule_Calloc RedisModule_Realloc RedisModule_Free RedisModule_StringPtrLen
            RedisModule_CreateString RedisModule_FreeString RedisModule_OpenKey RedisModule_CloseKey
            RedisModule_KeyType RedisModule_ValueLength RedisModule_HashGet RedisModule_HashSet RedisModule_ScanKey
            RedisModule_ScanCursorCreate RedisModule_ScanCursorDestroy RedisModule_Scan RedisModule_SetAbsExpire
            RedisModule_GetAbsExpire
            RedisModule_UnlinkKey RedisModule_StringDMA RedisModule_StringSet RedisModule_DbSize
            RedisModule_GetSelectedDb RedisModule_SelectDb RedisModule_GetContextFlags
            RedisModule_Milliseconds RedisModule_SignalModifiedKey RedisModule_NotifyKeyspaceEvent
            RedisModule_Replicate RedisModule_Log RedisModule_ReplyWithMap RedisModule_ReplyWithArray
            RedisModule_ReplyWithStringBuffer RedisModule_ReplyWithLongLong RedisModule_ReplyWithNull
            RedisModule_ReplyWithError RedisModule_BlockClient RedisModule_UnblockClient
            RedisModule_GetBlockedClientHandle RedisModule_SetDisconnectCallback
            RedisModule_CreateTimer RedisModule_StopTimer RedisModule_GetClientId
            RedisModule_GetClientUserNameById RedisModule_GetCurrentUserName
            RedisModule_GetModuleUserFromUserName RedisModule_ACLCheckKeyPermissions RedisModule_FreeModuleUser
            RedisModule_CreateCommand RedisModule_GetCommand RedisModule_SetCommandInfo
            RedisModule_RegisterNumericConfig RedisModule_RegisterBoolConfig RedisModule_RegisterStringConfig
            RedisModule_LoadConfigs
            RedisModule_RegisterInfoFunc RedisModule_SetModuleOptions RedisModule_SubscribeToServerEvent
            RedisModule_SubscribeToKeyspaceEvents
        }
        Ok(Self { context })
    }

    /// The context for commands.
    pub(crate) fn context(&self) -> &Context {
        self.context
    }

    /// Declares the options that the module supports.
    pub(crate) fn set_options(&self) {
        // Diskless loading and the atomic migration of slots of Valkey 9 stay possible: a server with one module that
        // does not declare support has neither of them, for all keys. The last bit is not in the header of the
        // `redis-module` crate.
        const ATOMIC_SLOT_MIGRATION: u32 = 1 << 5;
        let wanted = raw::REDISMODULE_OPTIONS_HANDLE_IO_ERRORS
            | raw::REDISMODULE_OPTIONS_HANDLE_REPL_ASYNC_LOAD
            | raw::REDISMODULE_OPTION_NO_IMPLICIT_SIGNAL_MODIFIED
            | ATOMIC_SLOT_MIGRATION;
        let options = match api!(RedisModule_GetModuleOptionsAll(), 0) {
            0 => wanted.cast_signed(),
            known => wanted.cast_signed() & known,
        };
        api!(RedisModule_SetModuleOptions(self.context.raw, options), ());
    }

    /// Registers the INFO section.
    pub(crate) fn register_report(&self) -> Result<(), LoadError> {
        check(
            api!(
                RedisModule_RegisterInfoFunc(self.context.raw, Some(report)),
                ERR
            ),
            LoadError::Info,
        )
    }

    /// Adds an ACL category, if the server supports that and does not have it from an earlier load.
    pub(crate) fn add_acl_category(&self, name: &CStr) {
        api!(
            RedisModule_AddACLCategory(self.context.raw, name.as_ptr()),
            0
        );
    }

    /// Registers a command with its description.
    pub(crate) fn register_command(&self, spec: &'static CommandSpec) -> Result<(), LoadError> {
        let (first, last, step) = match spec.key {
            KeyAccess::Keyless => (0, 0, 0),
            _ => (1, 1, 1),
        };
        let status = api!(
            RedisModule_CreateCommand(
                self.context.raw,
                spec.name.as_ptr(),
                Some(spec.entry),
                spec.flags.as_ptr(),
                first,
                last,
                step
            ),
            ERR
        );
        check(status, LoadError::Command(spec.name))?;
        let command = api!(
            RedisModule_GetCommand(self.context.raw, spec.name.as_ptr()),
            ptr::null_mut()
        );
        if command.is_null() {
            return Err(LoadError::Command(spec.name));
        }
        describe(command, spec)?;
        // Redis before 7.2 has no categories for commands of modules, and 7.2 has only its own: it logs every other
        // category as a defect, so they are not set there. SAFETY: `RedisModule_Init` wrote this pointer once, before
        // any other code of the module ran.
        let adds_categories = unsafe { raw::RedisModule_AddACLCategory }.is_some();
        let categories = if adds_categories {
            spec.categories
        } else {
            spec.core_categories
        };
        api!(
            RedisModule_SetCommandACLCategories(command, categories.as_ptr()),
            OK
        );
        Ok(())
    }
}

pub(super) fn check(status: c_int, error: LoadError) -> Result<(), LoadError> {
    if status == OK { Ok(()) } else { Err(error) }
}

extern "C" fn report(context: *mut raw::RedisModuleInfoCtx, _for_crash_report: c_int) {
    // A section without a name is `# mooring`.
    if api!(RedisModule_InfoAddSection(context, ptr::null()), ERR) == OK {
        handler::report(&Report { raw: context });
    }
}

/// Redis calls this when it loads the module.
///
/// # Safety
/// Called by Redis, with a context and `argc` strings that live until it returns.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn RedisModule_OnLoad(
    context: *mut raw::RedisModuleCtx,
    argv: *mut *mut raw::RedisModuleString,
    argc: c_int,
) -> c_int {
    let context = Context::outside_commands(context);
    let secrets = Secrets::default();
    // SAFETY: Redis passes `argc` strings that live until this function returns.
    let arguments = unsafe { Arguments::from_raw(argv, argc, &secrets) };
    match Loading::begin(&context) {
        Ok(loading) if handler::load(&loading, arguments) => OK,
        Ok(_) => ERR,
        Err(error) => {
            context.log(Level::Warning, &error.to_string());
            ERR
        }
    }
}

/// Redis calls this before it unloads the module.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn RedisModule_OnUnload(context: *mut raw::RedisModuleCtx) -> c_int {
    handler::unload(&Context::outside_commands(context));
    OK
}
