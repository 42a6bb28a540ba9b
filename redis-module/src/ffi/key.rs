//! An open key, whose value is read and written in place.
//!
//! Invariants: a key is closed when it goes out of scope. Nothing here is replicated: the caller that writes replicates
//! it with the [`Context`].

use std::marker::PhantomData;
use std::ptr;

use redis_module::raw;

use super::{Context, OwnedText, Text};

/// The type of a key's value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum KeyKind {
    /// Nothing: there is no such key.
    Empty,
    /// A hash.
    Hash,
    /// A string.
    String,
    /// Anything else.
    Other,
}

/// How many fields one variadic call carries. Redis reads up to the first null pointer, so shorter lists are padded.
const FIELDS_PER_CALL: usize = 8;

/// An open key.
pub(crate) struct Key<'c> {
    /// Null if the key was opened for reading and does not exist: Redis treats that as an empty key.
    pub(super) raw: *mut raw::RedisModuleKey,
    pub(super) lives: PhantomData<&'c Context>,
}

impl Key<'_> {
    /// The type of its value.
    pub(crate) fn kind(&self) -> KeyKind {
        // Compared as integers: a type that a later server adds counts as `Other`.
        match api!(RedisModule_KeyType(self.raw), 0) {
            kind if kind as isize == raw::REDISMODULE_KEYTYPE_EMPTY => KeyKind::Empty,
            kind if kind as isize == raw::REDISMODULE_KEYTYPE_HASH => KeyKind::Hash,
            kind if kind as isize == raw::REDISMODULE_KEYTYPE_STRING => KeyKind::String,
            _ => KeyKind::Other,
        }
    }

    /// How many fields a hash has.
    pub(crate) fn fields(&self) -> usize {
        if self.raw.is_null() {
            return 0;
        }
        api!(RedisModule_ValueLength(self.raw), 0)
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

    /// Sets fields of a hash, and creates the hash if the key is empty. Nothing is replicated.
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
            // The returned count is not needed: setting fields without conditions always succeeds.
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

    /// The bytes of a string; `None` if the key holds no string.
    pub(crate) fn read_string(&self) -> Option<Vec<u8>> {
        if self.raw.is_null() || self.kind() != KeyKind::String {
            return None;
        }
        let mut length = 0;
        let mode = raw::REDISMODULE_READ.cast_signed();
        let start = api!(
            RedisModule_StringDMA(self.raw, &raw mut length, mode),
            ptr::null_mut()
        );
        if start.is_null() {
            return None;
        }
        // SAFETY: Redis returns the address and the length of the value, which is valid until the key is written to or
        // closed; it is copied at once.
        Some(unsafe { std::slice::from_raw_parts(start.cast_const().cast(), length) }.to_vec())
    }

    /// Sets the key to a string without a TTL, whatever its type was. Nothing is replicated.
    pub(crate) fn set_string(&self, value: Text<'_>) {
        if !self.raw.is_null() {
            api!(RedisModule_StringSet(self.raw, value.raw), 0);
        }
    }

    /// Deletes the key with its value, which is freed in the background if it is large. Nothing is replicated.
    pub(crate) fn unlink(&self) {
        if !self.raw.is_null() {
            api!(RedisModule_UnlinkKey(self.raw), 0);
        }
    }

    /// When the key expires, if it does.
    pub(crate) fn expires_at(&self) -> Option<i64> {
        if self.raw.is_null() {
            return None;
        }
        // -1 for none.
        let unix_ms: i64 = api!(RedisModule_GetAbsExpire(self.raw), -1);
        (unix_ms >= 0).then_some(unix_ms)
    }

    /// Sets the key to expire at `unix_ms`. Nothing is replicated.
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
