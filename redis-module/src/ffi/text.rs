//! Strings of the server: borrowed, owned, and as the arguments of a command.
//!
//! Invariant: text is bytes with a length; a NUL byte or invalid UTF-8 is data like any other. An owned string is freed
//! once.

use std::cell::Cell;
use std::ffi::c_int;
use std::marker::PhantomData;
use std::ptr;

use redis_module::raw;

use super::ERR;

/// A string of the server, borrowed: an argument, a key's name, or an [`OwnedText`].
/// Transparent, so that a slice of them is the array of pointers that Redis takes.
#[derive(Clone, Copy)]
#[repr(transparent)]
pub(crate) struct Text<'a> {
    pub(super) raw: *mut raw::RedisModuleString,
    lives: PhantomData<&'a raw::RedisModuleString>,
}

impl<'a> Text<'a> {
    /// The string behind a pointer from Redis.
    ///
    /// # Safety
    /// The string lives for `'a`, and nothing writes to it. A null pointer reads as no bytes.
    pub(super) const unsafe fn borrow(raw: *mut raw::RedisModuleString) -> Self {
        Self {
            raw,
            lives: PhantomData,
        }
    }

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
        // SAFETY: Redis returns the address and the length of the string's bytes, which are valid while the string
        // lives and is not written to; `'a` is that lifetime, and nothing here writes to strings.
        unsafe { std::slice::from_raw_parts(bytes.cast(), length) }
    }
}

/// A string of the server that this module owns.
pub(crate) struct OwnedText {
    pub(super) raw: *mut raw::RedisModuleString,
}

// SAFETY: a string is a reference-counted block that is not tied to a thread, and the module's state, the only place
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

    /// The string, to pass to the server.
    pub(crate) fn text(&self) -> Text<'_> {
        // SAFETY: the string lives until it is dropped, and nothing here writes to strings.
        unsafe { Text::borrow(self.raw) }
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
    secrets: &'a Secrets,
}

/// Which arguments SLOWLOG, MONITOR and the server's log must not show.
#[derive(Default)]
pub(super) struct Secrets(Cell<SecretPlaces>);

#[derive(Clone, Copy)]
enum SecretPlaces {
    /// Up to two of them; 0 for none.
    Some([usize; 2]),
    /// All but the command's name.
    All,
}

impl Default for SecretPlaces {
    fn default() -> Self {
        Self::Some([0; 2])
    }
}

impl Secrets {
    fn note(&self, index: usize) {
        if let SecretPlaces::Some([latest, _]) = self.0.get() {
            self.0.set(SecretPlaces::Some([index, latest]));
        }
    }

    /// Redacts them after the command has run, because Valkey 8.1 replaces the argument itself by the redacted word.
    pub(super) fn redact(&self, context: *mut raw::RedisModuleCtx, argc: c_int) {
        let redact = |index: c_int| {
            api!(RedisModule_RedactClientCommandArgument(context, index), ERR);
        };
        match self.0.get() {
            SecretPlaces::Some(places) => places
                .into_iter()
                .filter_map(|place| c_int::try_from(place).ok())
                .filter(|place| *place > 0)
                .for_each(redact),
            SecretPlaces::All => (1..argc).for_each(redact),
        }
    }
}

impl<'a> Arguments<'a> {
    /// # Safety
    /// `argv` holds `argc` strings that outlive `'a`.
    pub(super) unsafe fn from_raw(
        argv: *mut *mut raw::RedisModuleString,
        argc: c_int,
        secrets: &'a Secrets,
    ) -> Self {
        let count = usize::try_from(argc).unwrap_or(0);
        if argv.is_null() || count == 0 {
            return Self { raw: &[], secrets };
        }
        Self {
            secrets,
            // SAFETY: guaranteed by the caller.
            raw: unsafe { std::slice::from_raw_parts(argv, count) },
        }
    }

    /// Hides the argument at `index` in SLOWLOG, MONITOR and the server's log.
    pub(crate) fn redact(self, index: usize) {
        self.secrets.note(index);
    }

    /// The same for all but the command's name.
    pub(crate) fn redact_all(self) {
        self.secrets.0.set(SecretPlaces::All);
    }

    /// All of them.
    pub(super) fn words(self) -> impl Iterator<Item = &'a [u8]> {
        (0..self.raw.len()).filter_map(move |index| self.get(index).map(Text::as_bytes))
    }

    /// The argument at `index`.
    pub(crate) fn get(self, index: usize) -> Option<Text<'a>> {
        let raw = self.raw.get(index).copied()?;
        // SAFETY: the caller of `from_raw` guaranteed that the strings outlive `'a`.
        Some(unsafe { Text::borrow(raw) })
    }
}
