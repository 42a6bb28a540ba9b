//! The module's hour of birth and death: what only `RedisModule_OnLoad` and `RedisModule_OnUnload` may do.
//!
//! Invariant: everything handed to the server here is either copied by it (descriptions) or lives as long as the
//! module (settings, functions).

use std::ffi::{CStr, c_char, c_int, c_longlong, c_void};
use std::ptr;

use redis_module::raw;

use super::{Arguments, Context, ERR, Level, OK, Report};
use crate::handler;
use crate::registrar::{ArgumentKind, ArgumentSpec, CommandSpec, KeyAccess};
use crate::settings::Setting;

const API_VERSION: c_int = raw::REDISMODULE_APIVER_1.cast_signed();
/// The version of the structures that describe a command.
const COMMAND_INFO_VERSION: c_int = 1;

/// The server refused a step of the loading; its own log line says more.
#[derive(Debug, thiserror::Error)]
pub(crate) enum LoadError {
    /// Another module of this name, or a server that does not know this version of the API.
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
    /// The subscription to promotions.
    #[error("the server refused to tell of its promotion")]
    Promotion,
}

/// The module's hour of birth: what only [`RedisModule_OnLoad`] may do.
pub(crate) struct Loading<'a> {
    context: &'a Context,
}

impl<'a> Loading<'a> {
    /// Introduces the module, and checks once that everything it leans on is there.
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
            RedisModule_KeyType RedisModule_HashGet RedisModule_HashSet RedisModule_ScanKey
            RedisModule_ScanCursorCreate RedisModule_ScanCursorDestroy RedisModule_SetAbsExpire
            RedisModule_Milliseconds RedisModule_SignalModifiedKey RedisModule_NotifyKeyspaceEvent
            RedisModule_Replicate RedisModule_Log RedisModule_ReplyWithMap RedisModule_ReplyWithArray
            RedisModule_ReplyWithStringBuffer RedisModule_ReplyWithLongLong RedisModule_ReplyWithNull
            RedisModule_ReplyWithError
            RedisModule_CreateCommand RedisModule_GetCommand RedisModule_SetCommandInfo
            RedisModule_RegisterNumericConfig RedisModule_LoadConfigs RedisModule_RegisterInfoFunc
            RedisModule_SetModuleOptions RedisModule_SubscribeToServerEvent
        }
        Ok(Self { context })
    }

    /// The server, as commands see it.
    pub(crate) fn context(&self) -> &Context {
        self.context
    }

    /// Says what the module copes with.
    pub(crate) fn set_options(&self) {
        // Diskless loading stays possible, and so does the atomic migration of slots that Valkey 9 has: a server
        // with one module that does not say so loses them for all keys. The last bit is not in this crate's header.
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

    /// Registers a setting as `mooring.<name>`.
    pub(crate) fn register_setting(&self, setting: &'static Setting) -> Result<(), LoadError> {
        let status = api!(
            RedisModule_RegisterNumericConfig(
                self.context.raw,
                setting.name.as_ptr(),
                setting.get(),
                raw::REDISMODULE_CONFIG_DEFAULT,
                setting.least,
                setting.most,
                Some(get_setting),
                Some(set_setting),
                None,
                ptr::from_ref(setting).cast_mut().cast(),
            ),
            ERR
        );
        check(status, LoadError::Setting(setting.name))
    }

    /// Reads what the configuration file says of the settings registered.
    pub(crate) fn read_settings(&self) -> Result<(), LoadError> {
        check(
            api!(RedisModule_LoadConfigs(self.context.raw), ERR),
            LoadError::Settings,
        )
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

    /// Listens for the promotion of this node.
    pub(crate) fn subscribe_to_promotion(&self) -> Result<(), LoadError> {
        let event = raw::RedisModuleEvent {
            id: raw::REDISMODULE_EVENT_REPLICATION_ROLE_CHANGED,
            dataver: 1,
        };
        check(
            api!(
                RedisModule_SubscribeToServerEvent(self.context.raw, event, Some(role_changed)),
                ERR
            ),
            LoadError::Promotion,
        )
    }

    /// Adds an ACL category where the server knows of such, and has it not already from an earlier load.
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
        // The module's own categories are unknown before Redis 7.4, and all of them before 7.2.
        for categories in [spec.categories, spec.core_categories] {
            let status = api!(
                RedisModule_SetCommandACLCategories(command, categories.as_ptr()),
                OK
            );
            if status == OK {
                break;
            }
        }
        Ok(())
    }
}

fn describe(command: *mut raw::RedisModuleCommand, spec: &CommandSpec) -> Result<(), LoadError> {
    let version = raw::RedisModuleCommandInfoVersion {
        version: COMMAND_INFO_VERSION,
        sizeof_historyentry: size_of::<raw::RedisModuleCommandHistoryEntry>(),
        sizeof_keyspec: size_of::<raw::RedisModuleCommandKeySpec>(),
        sizeof_arg: size_of::<raw::RedisModuleCommandArg>(),
    };
    let mut lists = ArgumentLists::default();
    let arguments = lists.build(spec.arguments);
    let mut key_specs = key_specs(spec.key);
    let info = raw::RedisModuleCommandInfo {
        version: &raw const version,
        summary: spec.summary.as_ptr(),
        complexity: spec.complexity.as_ptr(),
        since: spec.since.as_ptr(),
        history: ptr::null_mut(),
        tips: spec.tips.map_or(ptr::null(), CStr::as_ptr),
        arity: spec.arity,
        key_specs: key_specs.as_mut_ptr(),
        args: arguments,
    };
    // Redis copies all of it, so the lists may go when this function returns.
    check(
        api!(RedisModule_SetCommandInfo(command, &raw const info), ERR),
        LoadError::Description(spec.name),
    )
}

/// The key specs of a command, closed by an all-zero entry.
fn key_specs(key: KeyAccess) -> Vec<raw::RedisModuleCommandKeySpec> {
    // SAFETY: a C struct of integers, pointers and unions of such: all zeroes are a value, and the closing one.
    let end: raw::RedisModuleCommandKeySpec = unsafe { std::mem::zeroed() };
    let flags = match key {
        KeyAccess::Keyless => return vec![end],
        KeyAccess::Read => raw::REDISMODULE_CMD_KEY_RO | raw::REDISMODULE_CMD_KEY_ACCESS,
        KeyAccess::Update => {
            raw::REDISMODULE_CMD_KEY_RW
                | raw::REDISMODULE_CMD_KEY_ACCESS
                | raw::REDISMODULE_CMD_KEY_UPDATE
        }
    };
    let mut first = end;
    first.flags = u64::from(flags);
    first.begin_search_type = raw::RedisModuleKeySpecBeginSearchType_REDISMODULE_KSPEC_BS_INDEX;
    first.bs.index.pos = 1;
    first.find_keys_type = raw::RedisModuleKeySpecFindKeysType_REDISMODULE_KSPEC_FK_RANGE;
    first.fk.range.lastkey = 0;
    first.fk.range.keystep = 1;
    first.fk.range.limit = 0;
    vec![first, end]
}

/// Keeps the nested lists of arguments alive while Redis copies them.
#[derive(Default)]
struct ArgumentLists {
    lists: Vec<Vec<raw::RedisModuleCommandArg>>,
}

impl ArgumentLists {
    /// The list for `specs`, closed by an all-zero entry; null for none.
    fn build(&mut self, specs: &[ArgumentSpec]) -> *mut raw::RedisModuleCommandArg {
        if specs.is_empty() {
            return ptr::null_mut();
        }
        let mut list = Vec::with_capacity(specs.len() + 1);
        for spec in specs {
            // SAFETY: a C struct of integers and pointers: all zeroes are a value.
            let mut argument: raw::RedisModuleCommandArg = unsafe { std::mem::zeroed() };
            argument.name = spec.name.as_ptr();
            argument.type_ = argument_type(spec.kind);
            argument.key_spec_index = match spec.kind {
                ArgumentKind::Key => 0,
                _ => -1,
            };
            argument.token = spec.token.map_or(ptr::null(), CStr::as_ptr);
            let repeats_its_token = spec.multiple && spec.token.is_some();
            let flags = [
                (spec.optional, raw::REDISMODULE_CMD_ARG_OPTIONAL),
                (spec.multiple, raw::REDISMODULE_CMD_ARG_MULTIPLE),
                (repeats_its_token, raw::REDISMODULE_CMD_ARG_MULTIPLE_TOKEN),
            ];
            let flags = flags.into_iter().filter(|(is_set, _)| *is_set);
            argument.flags = flags.fold(0, |all, (_, flag)| all | flag.cast_signed());
            argument.subargs = self.build(spec.parts);
            list.push(argument);
        }
        // SAFETY: as above.
        list.push(unsafe { std::mem::zeroed() });
        let start = list.as_mut_ptr();
        self.lists.push(list);
        start
    }
}

const fn argument_type(kind: ArgumentKind) -> raw::RedisModuleCommandArgType {
    match kind {
        ArgumentKind::Key => raw::RedisModuleCommandArgType_REDISMODULE_ARG_TYPE_KEY,
        ArgumentKind::Text => raw::RedisModuleCommandArgType_REDISMODULE_ARG_TYPE_STRING,
        ArgumentKind::Integer => raw::RedisModuleCommandArgType_REDISMODULE_ARG_TYPE_INTEGER,
        ArgumentKind::Word => raw::RedisModuleCommandArgType_REDISMODULE_ARG_TYPE_PURE_TOKEN,
        ArgumentKind::Block => raw::RedisModuleCommandArgType_REDISMODULE_ARG_TYPE_BLOCK,
    }
}

fn check(status: c_int, error: LoadError) -> Result<(), LoadError> {
    if status == OK { Ok(()) } else { Err(error) }
}

extern "C" fn report(context: *mut raw::RedisModuleInfoCtx, _for_crash_report: c_int) {
    // A section without a name of its own is `# mooring`.
    if api!(RedisModule_InfoAddSection(context, ptr::null()), ERR) == OK {
        handler::report(&Report { raw: context });
    }
}

extern "C" fn role_changed(
    _context: *mut raw::RedisModuleCtx,
    _event: raw::RedisModuleEvent,
    role: u64,
    _data: *mut c_void,
) {
    if role == raw::REDISMODULE_EVENT_REPLROLECHANGED_NOW_MASTER {
        handler::promoted();
    }
}

extern "C" fn get_setting(_name: *const c_char, setting: *mut c_void) -> c_longlong {
    // SAFETY: `register_setting` gave a `&'static Setting` along with this callback.
    unsafe { &*setting.cast::<Setting>() }.get()
}

extern "C" fn set_setting(
    _name: *const c_char,
    value: c_longlong,
    setting: *mut c_void,
    _error: *mut *mut raw::RedisModuleString,
) -> c_int {
    // SAFETY: as in `get_setting`. Redis has checked the range, and shared access is all that is needed.
    unsafe { &*setting.cast::<Setting>() }.set(value);
    OK
}

/// What Redis calls when it loads the module.
///
/// # Safety
/// Called by Redis, with a context and `argc` strings that live until it returns.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn RedisModule_OnLoad(
    context: *mut raw::RedisModuleCtx,
    argv: *mut *mut raw::RedisModuleString,
    argc: c_int,
) -> c_int {
    let context = Context { raw: context };
    // SAFETY: Redis hands in `argc` strings that live until this function returns.
    let arguments = unsafe { Arguments::from_raw(argv, argc) };
    match Loading::begin(&context) {
        Ok(loading) if handler::load(&loading, arguments) => OK,
        Ok(_) => ERR,
        Err(error) => {
            context.log(Level::Warning, &error.to_string());
            ERR
        }
    }
}

/// What Redis calls before it unloads the module.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn RedisModule_OnUnload(_context: *mut raw::RedisModuleCtx) -> c_int {
    handler::unload();
    OK
}
