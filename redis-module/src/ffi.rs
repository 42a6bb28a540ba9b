//! The wall to Redis: every call of its module API, and with its parts `allocator` and [`loading`] the only
//! `unsafe` code of the workspace.
//!
//! Invariants kept here, so that nothing outside needs to know of them:
//! * Text is bytes with a length. Nothing goes through a C string that a client chose, no message is ever used as a
//!   printf format, and a NUL byte or invalid UTF-8 is data like any other.
//! * What is opened is closed and what is allocated is freed, by `Drop`, also when a handler unwinds.
//! * No function leaves a panic to the server: callbacks end in [`crate::handler`], which catches them.
//! * Redis runs commands and callbacks on one thread at a time. A [`Context`] and what borrows from it cannot leave
//!   the callback they were made for.
//! * A function of the API that this server does not have is a null pointer: those that must be there are checked
//!   once at load ([`loading::Loading::begin`]), the others answer as if they did nothing.

#![allow(
    unsafe_code,
    reason = "the module API of Redis is a table of C function pointers"
)]

use std::ffi::{CStr, CString, c_int, c_longlong, c_void};
use std::marker::PhantomData;
use std::ptr;

use redis_module::raw;

use crate::handler::{self, Command};

/// The two values that functions and callbacks of the API return.
const OK: c_int = 0;
const ERR: c_int = 1;

/// Calls a function of the module API, or gives `$absent` where this server does not have it.
macro_rules! api {
    ($function:ident($($argument:expr),* $(,)?), $absent:expr) => {
        // SAFETY: `RedisModule_Init` wrote this pointer once, before any other code of the module ran; it is only
        // read afterwards. Its type is the one that Redis declares for it, and every caller, here and in the
        // parts, hands in pointers that Redis gave for the running callback or that it keeps alive across the call.
        unsafe {
            match raw::$function {
                Some(function) => function($($argument),*),
                None => $absent,
            }
        }
    };
}

// After the macro, which its parts use too.
#[cfg(not(test))]
mod allocator;
pub(crate) mod loading;

/// A string of the server, borrowed: an argument, a key's name, or an [`OwnedText`].
/// Transparent, so that a slice of them is the array of pointers that Redis takes.
#[derive(Clone, Copy)]
#[repr(transparent)]
pub(crate) struct Text<'a> {
    raw: *mut raw::RedisModuleString,
    lives: PhantomData<&'a raw::RedisModuleString>,
}

impl<'a> Text<'a> {
    /// Its bytes.
    pub(crate) fn as_bytes(self) -> &'a [u8] {
        let mut length = 0;
        let bytes = api!(
            RedisModule_StringPtrLen(self.raw, &raw mut length),
            ptr::null()
        );
        if bytes.is_null() {
            return &[];
        }
        // SAFETY: Redis gives the address and the length of the string's bytes, which stay put while the string
        // lives and is not written to; `'a` is that life, and nothing here writes to strings.
        unsafe { std::slice::from_raw_parts(bytes.cast(), length) }
    }
}

/// A string of the server that this module holds.
pub(crate) struct OwnedText {
    raw: *mut raw::RedisModuleString,
}

// SAFETY: a string is a reference-counted block without ties to a thread, and the module's state, the only place
// where one outlives its callback, is behind a mutex.
unsafe impl Send for OwnedText {}

impl OwnedText {
    /// A copy of the bytes.
    pub(crate) fn new(bytes: &[u8]) -> Self {
        Self {
            raw: api!(
                RedisModule_CreateString(ptr::null_mut(), bytes.as_ptr().cast(), bytes.len()),
                ptr::null_mut()
            ),
        }
    }

    /// The string, to hand on.
    pub(crate) fn text(&self) -> Text<'_> {
        Text {
            raw: self.raw,
            lives: PhantomData,
        }
    }

    /// Its bytes.
    pub(crate) fn as_bytes(&self) -> &[u8] {
        self.text().as_bytes()
    }
}

impl Drop for OwnedText {
    fn drop(&mut self) {
        if !self.raw.is_null() {
            api!(RedisModule_FreeString(ptr::null_mut(), self.raw), ());
        }
    }
}

/// The arguments of a command, its name first.
#[derive(Clone, Copy)]
pub(crate) struct Arguments<'a> {
    raw: &'a [*mut raw::RedisModuleString],
}

impl<'a> Arguments<'a> {
    /// # Safety
    /// `argv` holds `argc` strings that outlive `'a`.
    unsafe fn from_raw(argv: *mut *mut raw::RedisModuleString, argc: c_int) -> Self {
        let count = usize::try_from(argc).unwrap_or(0);
        if argv.is_null() || count == 0 {
            return Self { raw: &[] };
        }
        Self {
            // SAFETY: the caller says so.
            raw: unsafe { std::slice::from_raw_parts(argv, count) },
        }
    }

    /// The argument at `index`.
    pub(crate) fn get(self, index: usize) -> Option<Text<'a>> {
        self.raw.get(index).map(|raw| Text {
            raw: *raw,
            lives: PhantomData,
        })
    }
}

/// How serious a log line is.
#[derive(Clone, Copy)]
pub(crate) enum Level {
    /// Worth an operator's look in ordinary times.
    Notice,
    /// Something is wrong.
    Warning,
}

/// The running callback's view of the server.
pub(crate) struct Context {
    raw: *mut raw::RedisModuleCtx,
}

impl Context {
    /// Opens the key for reading and writing. A key whose time has come is gone by then.
    pub(crate) fn open(&self, name: Text<'_>) -> Key<'_> {
        self.open_as(name, raw::REDISMODULE_READ | raw::REDISMODULE_WRITE)
    }

    /// Opens the key for reading: also on a replica, and without any trace but its last access.
    pub(crate) fn open_to_read(&self, name: Text<'_>) -> Key<'_> {
        self.open_as(name, raw::REDISMODULE_READ)
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

    /// Tells clients that cached or watch the key that its data changed.
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

    /// Sends `HSET key field value ...` to replicas and the append-only file.
    pub(crate) fn replicate_set(&self, key: Text<'_>, pairs: &[[Text<'_>; 2]]) {
        api!(
            RedisModule_Replicate(
                self.raw,
                c"HSET".as_ptr(),
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
                c"HDEL".as_ptr(),
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
                c"PEXPIREAT".as_ptr(),
                c"sl".as_ptr(),
                key.raw,
                c_longlong::from(unix_ms),
            ),
            0
        );
    }

    /// Writes a line to the server's log. The message is data, never a format; what is not printable is escaped.
    pub(crate) fn log(&self, level: Level, message: &str) {
        log_to(self.raw, level, message);
    }

    /// Begins a map of `pairs` names and values: flat in RESP2.
    pub(crate) fn reply_map(&self, pairs: usize) {
        let pairs = i64::try_from(pairs).unwrap_or(0);
        api!(RedisModule_ReplyWithMap(self.raw, pairs), 0);
    }

    /// Begins an array of `length` values.
    pub(crate) fn reply_array(&self, length: usize) {
        let length = i64::try_from(length).unwrap_or(0);
        api!(RedisModule_ReplyWithArray(self.raw, length), 0);
    }

    /// A bulk string.
    pub(crate) fn reply_bytes(&self, bytes: &[u8]) {
        api!(
            RedisModule_ReplyWithStringBuffer(self.raw, bytes.as_ptr().cast(), bytes.len()),
            0
        );
    }

    /// An integer.
    pub(crate) fn reply_integer(&self, value: i64) {
        api!(RedisModule_ReplyWithLongLong(self.raw, value), 0);
    }

    /// Null.
    pub(crate) fn reply_null(&self) {
        api!(RedisModule_ReplyWithNull(self.raw), 0);
    }

    /// An error: one line whose first word is its code.
    pub(crate) fn reply_error(&self, message: &str) {
        let line = one_line(message);
        api!(RedisModule_ReplyWithError(self.raw, line.as_ptr()), 0);
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

/// Writes a warning outside any callback: what the panic hook has.
pub(crate) fn log_warning(message: &str) {
    log_to(ptr::null_mut(), Level::Warning, message);
}

fn log_to(context: *mut raw::RedisModuleCtx, level: Level, message: &str) {
    let level = match level {
        Level::Notice => c"notice",
        Level::Warning => c"warning",
    };
    let line = one_line(message);
    api!(
        RedisModule_Log(context, level.as_ptr(), c"%s".as_ptr(), line.as_ptr()),
        ()
    );
}

/// The text as one line without control characters, which would forge log lines and break replies.
fn one_line(message: &str) -> CString {
    let mut line = String::with_capacity(message.len() + 1);
    for character in message.chars() {
        if character.is_control() {
            line.extend(character.escape_default());
        } else {
            line.push(character);
        }
    }
    CString::new(line).unwrap_or_default()
}

/// What a key holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum KeyKind {
    /// Nothing: there is no such key.
    Empty,
    /// A hash.
    Hash,
    /// Anything else.
    Other,
}

/// How many fields one variadic call carries. Redis reads up to the first null pointer, so shorter lists are padded.
const FIELDS_PER_CALL: usize = 8;

/// An open key.
pub(crate) struct Key<'c> {
    /// Null where the key was opened for reading and is not there: Redis takes that for an empty key.
    raw: *mut raw::RedisModuleKey,
    lives: PhantomData<&'c Context>,
}

impl Key<'_> {
    /// What it holds.
    pub(crate) fn kind(&self) -> KeyKind {
        // Compared as integers: a type that a later server invents is one of the others.
        match api!(RedisModule_KeyType(self.raw), 0) {
            kind if kind as isize == raw::REDISMODULE_KEYTYPE_EMPTY => KeyKind::Empty,
            kind if kind as isize == raw::REDISMODULE_KEYTYPE_HASH => KeyKind::Hash,
            _ => KeyKind::Other,
        }
    }

    /// The values of up to eight fields of a hash, in one call. Further fields are not read.
    pub(crate) fn read<const N: usize>(&self, fields: [Text<'_>; N]) -> [Option<OwnedText>; N] {
        const { assert!(N <= FIELDS_PER_CALL) };
        if self.raw.is_null() {
            return [const { None }; N];
        }
        let mut names = [ptr::null_mut::<raw::RedisModuleString>(); FIELDS_PER_CALL];
        for (name, field) in names.iter_mut().zip(fields) {
            *name = field.raw;
        }
        let mut values = [ptr::null_mut::<raw::RedisModuleString>(); FIELDS_PER_CALL];
        let [n0, n1, n2, n3, n4, n5, n6, n7] = names;
        let [v0, v1, v2, v3, v4, v5, v6, v7] = values.each_mut().map(ptr::from_mut);
        api!(
            RedisModule_HashGet(
                self.raw,
                raw::REDISMODULE_HASH_NONE.cast_signed(),
                n0,
                v0,
                n1,
                v1,
                n2,
                v2,
                n3,
                v3,
                n4,
                v4,
                n5,
                v5,
                n6,
                v6,
                n7,
                v7,
                ptr::null_mut::<raw::RedisModuleString>(),
            ),
            0
        );
        let mut values = values.into_iter();
        std::array::from_fn(|_| {
            values
                .next()
                .filter(|value| !value.is_null())
                .map(|raw| OwnedText { raw })
        })
    }

    /// All fields and values of a hash.
    pub(crate) fn read_all(&self) -> Fields {
        let mut fields = Fields::default();
        if self.raw.is_null() {
            return fields;
        }
        let cursor = api!(RedisModule_ScanCursorCreate(), ptr::null_mut());
        if cursor.is_null() {
            return fields;
        }
        let target = ptr::from_mut(&mut fields).cast::<c_void>();
        while api!(
            RedisModule_ScanKey(self.raw, cursor, Some(collect_field), target),
            0
        ) == 1
        {}
        api!(RedisModule_ScanCursorDestroy(cursor), ());
        fields
    }

    /// Sets fields of a hash, and makes the hash if the key is empty. Nothing is replicated.
    pub(crate) fn set(&self, pairs: &[[Text<'_>; 2]]) {
        if self.raw.is_null() {
            return;
        }
        for chunk in pairs.chunks(FIELDS_PER_CALL) {
            let mut names = [ptr::null_mut::<raw::RedisModuleString>(); FIELDS_PER_CALL];
            let mut values = names;
            for ((name, value), [field, text]) in names.iter_mut().zip(values.iter_mut()).zip(chunk)
            {
                *name = field.raw;
                *value = text.raw;
            }
            let [n0, n1, n2, n3, n4, n5, n6, n7] = names;
            let [v0, v1, v2, v3, v4, v5, v6, v7] = values;
            // The count that comes back is of no use: what is set here always goes through.
            api!(
                RedisModule_HashSet(
                    self.raw,
                    raw::REDISMODULE_HASH_NONE.cast_signed(),
                    n0,
                    v0,
                    n1,
                    v1,
                    n2,
                    v2,
                    n3,
                    v3,
                    n4,
                    v4,
                    n5,
                    v5,
                    n6,
                    v6,
                    n7,
                    v7,
                    ptr::null_mut::<raw::RedisModuleString>(),
                ),
                0
            );
        }
    }

    /// Deletes fields of a hash. Nothing is replicated.
    pub(crate) fn delete(&self, fields: &[Text<'_>]) {
        if self.raw.is_null() {
            return;
        }
        // `REDISMODULE_HASH_DELETE` of the header: a value that no string has.
        let deleted = ptr::without_provenance_mut::<raw::RedisModuleString>(1);
        for field in fields {
            api!(
                RedisModule_HashSet(
                    self.raw,
                    raw::REDISMODULE_HASH_NONE.cast_signed(),
                    field.raw,
                    deleted,
                    ptr::null_mut::<raw::RedisModuleString>(),
                ),
                0
            );
        }
    }

    /// Lets the key live until `unix_ms`. Nothing is replicated.
    pub(crate) fn expire_at(&self, unix_ms: i64) {
        if !self.raw.is_null() {
            api!(RedisModule_SetAbsExpire(self.raw, unix_ms), 0);
        }
    }
}

impl Drop for Key<'_> {
    fn drop(&mut self) {
        if !self.raw.is_null() {
            api!(RedisModule_CloseKey(self.raw), ());
        }
    }
}

/// The fields and values of one hash, in one block.
#[derive(Default)]
pub(crate) struct Fields {
    bytes: Vec<u8>,
    /// Where each name and each value ends.
    ends: Vec<(usize, usize)>,
}

impl Fields {
    fn push(&mut self, name: &[u8], value: &[u8]) {
        self.bytes.extend_from_slice(name);
        let name_end = self.bytes.len();
        self.bytes.extend_from_slice(value);
        self.ends.push((name_end, self.bytes.len()));
    }

    /// Names and values in the order of the hash.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (&[u8], &[u8])> {
        let mut start = 0;
        self.ends.iter().filter_map(move |&(name_end, value_end)| {
            let name = self.bytes.get(start..name_end);
            let value = self.bytes.get(name_end..value_end);
            start = value_end;
            name.zip(value)
        })
    }
}

extern "C" fn collect_field(
    _key: *mut raw::RedisModuleKey,
    field: *mut raw::RedisModuleString,
    value: *mut raw::RedisModuleString,
    target: *mut c_void,
) {
    let borrow = |raw| Text {
        raw,
        lives: PhantomData::<&raw::RedisModuleString>,
    };
    if value.is_null() {
        return;
    }
    // SAFETY: `target` is the `Fields` that `read_all` holds exclusively while the scan runs, and nothing else
    // touches it in between.
    let fields = unsafe { &mut *target.cast::<Fields>() };
    fields.push(borrow(field).as_bytes(), borrow(value).as_bytes());
}

/// The entry point of one command, as Redis calls it.
pub(crate) type Entry = unsafe extern "C" fn(
    *mut raw::RedisModuleCtx,
    *mut *mut raw::RedisModuleString,
    c_int,
) -> c_int;

/// The entry point that runs `C` behind the handler's edge.
pub(crate) const fn entry<C: Command>() -> Entry {
    run_command::<C>
}

unsafe extern "C" fn run_command<C: Command>(
    context: *mut raw::RedisModuleCtx,
    argv: *mut *mut raw::RedisModuleString,
    argc: c_int,
) -> c_int {
    let context = Context { raw: context };
    // SAFETY: Redis hands in `argc` strings that live until the command has returned.
    let arguments = unsafe { Arguments::from_raw(argv, argc) };
    handler::run::<C>(&context, arguments);
    OK
}

/// The report that `INFO` asks for.
pub(crate) struct Report {
    raw: *mut raw::RedisModuleInfoCtx,
}

impl Report {
    /// One figure.
    pub(crate) fn figure(&self, name: &CStr, value: u64) {
        api!(
            RedisModule_InfoAddFieldULongLong(self.raw, name.as_ptr(), value),
            0
        );
    }
}
