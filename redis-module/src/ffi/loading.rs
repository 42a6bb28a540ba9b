//! Loading and unloading: the calls that only `RedisModule_OnLoad` and `RedisModule_OnUnload` may make.
//!
//! Invariant: everything passed to the server here is either copied by it (descriptions) or lives as long as the module
//! (settings, functions).

use std::ffi::{CStr, CString, c_int};
use std::ptr;

use redis_module::raw;

use super::describe::describe;
use super::text::Secrets;
use super::{Arguments, Callbacks, Context, ERR, Level, OK, Report, callbacks};
use crate::command_spec::{CommandSpec, KeyAccess};

const API_VERSION: c_int = raw::REDISMODULE_APIVER_1.cast_signed();

/// The module as the server registers it.
pub(crate) struct ModuleIdentity {
    /// The prefix of its settings and of its INFO section.
    pub(crate) name: &'static CStr,
    /// Its version as Redis shows it: major, minor and patch, two digits each.
    pub(crate) version: c_int,
}

/// The server refused a step of the loading; its own log line has the details.
#[derive(Debug, thiserror::Error)]
pub(crate) enum LoadError {
    /// A server older than Redis 7.0.
    #[error("this server lacks {0}, which Redis has since 7.0")]
    Missing(&'static str),
    /// It refused this.
    #[error("the server refused {0}")]
    Refused(&'static str),
    /// It refused something of this name.
    #[error("the server refused {0} {1:?}")]
    RefusedName(&'static str, &'static CStr),
}

/// The loading of the module: the calls that only `RedisModule_OnLoad` may make.
pub(crate) struct Loading<'a> {
    context: &'a Context,
}

impl<'a> Loading<'a> {
    /// Registers the module, and checks once that the server has all required functions.
    fn begin(context: &'a Context, identity: &ModuleIdentity) -> Result<Self, LoadError> {
        // SAFETY: called once, with the context that the server gave to `RedisModule_OnLoad`; this is what fills the
        // table of function pointers that everything else reads.
        let status = unsafe {
            raw::Export_RedisModule_Init(
                context.raw,
                identity.name.as_ptr(),
                identity.version,
                API_VERSION,
            )
        };
        if status != OK {
            return Err(LoadError::Refused("the module"));
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
            LoadError::Refused("the INFO section"),
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
        check(status, LoadError::RefusedName("the command", spec.name))?;
        let command = api!(
            RedisModule_GetCommand(self.context.raw, spec.name.as_ptr()),
            ptr::null_mut()
        );
        if command.is_null() {
            return Err(LoadError::RefusedName("the command", spec.name));
        }
        describe(command, spec)?;
        // Redis before 7.2 has no categories for commands of modules, and 7.2 has only its own: it logs every other
        // category as a defect, so they are not set there. SAFETY: `RedisModule_Init` wrote this pointer once, before
        // any other code of the module ran.
        let adds_categories = unsafe { raw::RedisModule_AddACLCategory }.is_some();
        let mut categories = spec.categories.to_owned();
        if adds_categories {
            let own = [spec.categories.to_bytes(), spec.family().as_bytes()].join(&b' ');
            categories = CString::new(own).unwrap_or(categories);
        }
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
        callbacks::call(|module| module.report(&Report { raw: context }));
    }
}

/// Loads the module. Returns whether that succeeded; if not, the log says why and the server runs without it.
type Load = fn(&Loading<'_>, Arguments<'_>) -> bool;

/// Defines the functions of the library that Redis calls by their names: for this identity, [`Load`] and callbacks.
macro_rules! entry_points {
    ($identity:expr, $load:expr, $callbacks:expr) => {
        /// Redis calls this when it loads the module.
        ///
        /// # Safety
        /// Called by Redis, with a context and `argc` strings that live until it returns.
        #[allow(unsafe_code, reason = "Redis finds the function by its name")]
        #[unsafe(no_mangle)]
        pub(crate) unsafe extern "C" fn RedisModule_OnLoad(
            context: *mut redis_module::raw::RedisModuleCtx,
            argv: *mut *mut redis_module::raw::RedisModuleString,
            argc: std::ffi::c_int,
        ) -> std::ffi::c_int {
            // SAFETY: the arguments are those of Redis.
            unsafe {
                $crate::ffi::loading::on_load($identity, $load, $callbacks, context, argv, argc)
            }
        }

        /// Redis calls this before it unloads the module.
        #[allow(unsafe_code, reason = "Redis finds the function by its name")]
        #[unsafe(no_mangle)]
        pub(crate) extern "C" fn RedisModule_OnUnload(
            context: *mut redis_module::raw::RedisModuleCtx,
        ) -> std::ffi::c_int {
            $crate::ffi::loading::on_unload(context)
        }
    };
}

pub(crate) use entry_points;

/// Loads the module.
///
/// # Safety
/// `argv` has `argc` strings that live until this returns.
pub(crate) unsafe fn on_load(
    identity: &ModuleIdentity,
    load: Load,
    module: &'static dyn Callbacks,
    context: *mut raw::RedisModuleCtx,
    argv: *mut *mut raw::RedisModuleString,
    argc: c_int,
) -> c_int {
    let context = Context::outside_commands(context);
    let secrets = Secrets::default();
    // SAFETY: the caller's promise.
    let arguments = unsafe { Arguments::from_raw(argv, argc, &secrets) };
    callbacks::install(module);
    match Loading::begin(&context, identity) {
        Ok(loading) if load(&loading, arguments) => OK,
        Ok(_) => ERR,
        Err(error) => {
            context.log(Level::Warning, &error.to_string());
            ERR
        }
    }
}

/// Prepares for the unload of the module.
pub(crate) fn on_unload(context: *mut raw::RedisModuleCtx) -> c_int {
    callbacks::call(|module| module.unload(&Context::outside_commands(context)));
    OK
}
