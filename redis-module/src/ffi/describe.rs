//! The description of a command in the server's format, for COMMAND DOCS, GETKEYS and INFO.
//!
//! Invariant: the server copies all of it at once, so the lists built here live for one call.

use std::ffi::{CStr, c_int};
use std::ptr;

use redis_module::raw;

use super::ERR;
use super::loading::{LoadError, check};
use crate::command_spec::{ArgumentKind, ArgumentSpec, CommandSpec, KeyAccess};

/// The version of the structures that describe a command.
const COMMAND_INFO_VERSION: c_int = 1;

/// Describes a command that was just created.
pub(super) fn describe(
    command: *mut raw::RedisModuleCommand,
    spec: &CommandSpec,
) -> Result<(), LoadError> {
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
    // Redis copies all of it, so the lists may be freed when this function returns.
    check(
        api!(RedisModule_SetCommandInfo(command, &raw const info), ERR),
        LoadError::RefusedName("the description of the command", spec.name),
    )
}

/// The key specs of a command, terminated by an all-zero entry.
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
        KeyAccess::Delete => {
            raw::REDISMODULE_CMD_KEY_RW
                | raw::REDISMODULE_CMD_KEY_ACCESS
                | raw::REDISMODULE_CMD_KEY_DELETE
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
    /// The list for `specs`, terminated by an all-zero entry; null if `specs` is empty.
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
        ArgumentKind::Either => raw::RedisModuleCommandArgType_REDISMODULE_ARG_TYPE_ONEOF,
    }
}
