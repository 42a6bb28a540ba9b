//! The record decoder, over untrusted fields of a hash: one `name=value` per line.
//!
//! A record that it accepts must be the same after it was written and read again, without further changes to write.

#![no_main]

use libfuzzer_sys::fuzz_target;
use mooring_session::codec::{
    BindingHead, changes, decode, decode_lifetime, encode, encode_lifetime,
};

fuzz_target!(|input: &[u8]| {
    let lines = input.split(|byte| *byte == b'\n');
    let fields: Vec<(&[u8], &[u8])> = lines
        .filter_map(|line| {
            let at = line.iter().position(|byte| *byte == b'=')?;
            Some((&line[..at], &line[at + 1..]))
        })
        .collect();
    read_alone(&fields);
    let Ok(record) = decode(fields.iter().copied()) else {
        return;
    };
    let written = encode(&record);
    let written = || {
        written
            .iter()
            .map(|(field, value)| (field.as_bytes(), value.as_bytes()))
    };
    assert_eq!(decode(written()).as_ref(), Ok(&record));
    let changes = changes(written(), &record);
    assert!(changes.set.is_empty() && changes.delete.is_empty());
});

/// What the hot path reads of a record without the rest.
fn read_alone(fields: &[(&[u8], &[u8])]) {
    for (_, value) in fields {
        if let Ok(lifetime) = decode_lifetime(value) {
            let written = encode_lifetime(&lifetime);
            assert_eq!(decode_lifetime(written.as_bytes()), Ok(lifetime));
        }
        if let Ok(head) = BindingHead::decode("tools", value) {
            let written = head.encode();
            assert_eq!(BindingHead::decode("tools", written.as_bytes()), Ok(head));
        }
    }
}
