//! A header that repeats a field of a message (`Mcp-Name`, `Mcp-Param-*`), as a stranger sends it.
//!
//! What it decodes to is encoded to a header that decodes to the same text again, and a value without an encoding is read as
//! it is.

#![no_main]

use libfuzzer_sys::fuzz_target;
use mooring_protocol::modern::{decode_mirrored, encode_mirrored};

fuzz_target!(|input: &[u8]| {
    if let Some(text) = decode_mirrored(input) {
        let again = encode_mirrored(&text).expect("every text has a header");
        let read = decode_mirrored(again.as_bytes()).expect("what is encoded can be decoded");
        assert_eq!(read, text);
        if !input.starts_with(b"=?base64?") && !input.starts_with(b" ") && !input.starts_with(b"\t")
        {
            assert!(input.starts_with(text.as_bytes()));
        }
    }
    if let Ok(text) = std::str::from_utf8(input) {
        let value = encode_mirrored(text).expect("every text has a header");
        assert_eq!(
            decode_mirrored(value.as_bytes()).expect("an encoded text"),
            text
        );
    }
});
