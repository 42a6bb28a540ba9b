//! A response of an upstream server: head, interim responses, and where its body ends. The first byte is how many bytes
//! arrive at once, the rest is what arrives.
//!
//! The result is compared with what hyper's client, which was used before, makes of the same bytes: the same status,
//! body and headers, of those that are kept, or neither accepts them.

#![no_main]

use http::header::TRANSFER_ENCODING;
use libfuzzer_sys::fuzz_target;
use mooring_gateway_fuzz::http_response::{RoundTripError, read, read_with_hyper};

/// Longer lines of chunks are refused, and hyper accepts some of them.
const INPUT_BYTES_MAX: usize = 4096;
/// More digits of a size are refused; hyper accepts leading zeros.
const SIZE_DIGITS_MAX: usize = 16;

fuzz_target!(|input: &[u8]| {
    let Some((piece_bytes, response)) = input.split_first() else {
        return;
    };
    if response.len() > INPUT_BYTES_MAX {
        return;
    }
    let piece_bytes = usize::from(*piece_bytes);
    let own = read(response, piece_bytes);
    // What is refused on purpose.
    if let Err(RoundTripError::Encoded(_) | RoundTripError::TooManyInterim) = own {
        return;
    }
    let hypers = read_with_hyper(response, piece_bytes);
    let is_stricter = matches!(own, Err(RoundTripError::Chunk))
        && (has_bare_line_feed(response) || has_long_number(response));
    if is_stricter {
        return;
    }
    // Hyper takes no coding for chunked if a byte of the header is none of ASCII.
    let is_other_coding = hypers.as_ref().is_some_and(|hypers| {
        let mut codings = hypers.headers.get_all(TRANSFER_ENCODING).iter();
        codings.any(|coding| coding.to_str().is_err())
    });
    if is_other_coding {
        return;
    }
    match (own, hypers) {
        (Ok(own), Some(hypers)) => {
            assert_eq!(own.status, hypers.status);
            assert_eq!(own.body, hypers.body);
            for name in own.headers.keys() {
                let own = own.headers.get_all(name).iter();
                assert!(own.eq(hypers.headers.get_all(name)), "{name}");
            }
        }
        (Err(_), None) => {}
        (own, hypers) => panic!("{own:?}, {hypers:?}"),
    }
});

fn has_bare_line_feed(bytes: &[u8]) -> bool {
    let mut lines = bytes.split_inclusive(|byte| *byte == b'\n');
    lines.any(|line| line.ends_with(b"\n") && !line.ends_with(b"\r\n"))
}

fn has_long_number(bytes: &[u8]) -> bool {
    let mut numbers = bytes.split(|byte| !byte.is_ascii_hexdigit());
    numbers.any(|digits| digits.len() > SIZE_DIGITS_MAX)
}
