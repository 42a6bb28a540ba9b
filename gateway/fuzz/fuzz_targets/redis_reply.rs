//! A reply of Redis. The first byte is how many bytes arrive at once, the rest is what arrives.
//!
//! The result is compared with the value that the client library reads from the same bytes.

#![no_main]

use libfuzzer_sys::fuzz_target;
use mooring_gateway_fuzz::redis_reply::read;

fuzz_target!(|input: &[u8]| {
    let Some((piece_bytes, reply)) = input.split_first() else {
        return;
    };
    // Pushed messages, which are no replies, are skipped: the library returns them.
    if reply.first() == Some(&b'>') {
        return;
    }
    let own = read(reply, usize::from(*piece_bytes)).ok().flatten();
    let librarys = redis::parse_redis_value(reply).ok();
    if own.is_none() && has_odd_length(reply) {
        return;
    }
    // As text, because a number that is none equals nothing.
    assert_eq!(format!("{own:?}"), format!("{librarys:?}"));
});

/// Whether a length is neither digits nor -1: the library takes some of those, for nothing as a rule, and Redis sends
/// none.
fn has_odd_length(reply: &[u8]) -> bool {
    let mut line_ends = (reply.windows(2).enumerate())
        .filter(|(_, end)| end == b"\r\n")
        .map(|(at, _)| at);
    let mut begin = 0;
    line_ends.any(|end| {
        let line = reply.get(begin..end).unwrap_or_default();
        begin = end + 2;
        let Some((b'$' | b'*' | b'~' | b'%' | b'|' | b'=' | b'!' | b'>', length)) =
            line.split_first()
        else {
            return false;
        };
        let is_digits = !length.is_empty() && length.iter().all(u8::is_ascii_digit);
        length != b"-1" && !is_digits
    })
}
