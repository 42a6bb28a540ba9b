//! The contents of a hash, copied in one scan.

use std::ffi::c_void;
use std::ptr;

use redis_module::raw;

use super::{Key, Text};

/// The size of a record with one binding.
const BYTES_COMMON: usize = 640;
/// Most fields to allocate for in advance.
const FIELDS_COMMON: usize = 32;

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
    if value.is_null() {
        return;
    }
    // SAFETY: `target` is the `Fields` that `read_all` holds exclusively while the scan runs, and nothing else
    // touches it in between.
    let fields = unsafe { &mut *target.cast::<Fields>() };
    // SAFETY: the server's strings of the field live for the length of this callback.
    let (field, value) = unsafe { (Text::borrow(field), Text::borrow(value)) };
    fields.push(field.as_bytes(), value.as_bytes());
}

impl Key<'_> {
    /// All fields and values of a hash.
    pub(crate) fn read_all(&self) -> Fields {
        if self.raw.is_null() {
            return Fields::default();
        }
        let mut fields = Fields {
            bytes: Vec::with_capacity(BYTES_COMMON),
            ends: Vec::with_capacity(self.fields().min(FIELDS_COMMON)),
        };
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
}
