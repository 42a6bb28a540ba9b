//! Which slot of a cluster a key is in: CRC-16 (XMODEM) of the key, or of its hash tag, as the cluster specification has it.

/// The number of slots.
pub const SLOTS: u16 = 16_384;

/// The slot of a key.
#[must_use]
pub fn slot_of(key: &[u8]) -> u16 {
    crc16(hashed_part(key)) % SLOTS
}

/// What is between the first `{` and the next `}`, if that is not empty; otherwise the whole key.
fn hashed_part(key: &[u8]) -> &[u8] {
    let after_brace =
        |key: &'_ [u8]| -> Option<usize> { key.iter().position(|byte| *byte == b'{') };
    let Some(rest) = after_brace(key).and_then(|open| key.get(open + 1..)) else {
        return key;
    };
    match rest.iter().position(|byte| *byte == b'}') {
        None | Some(0) => key,
        Some(end) => rest.get(..end).unwrap_or(key),
    }
}

fn crc16(bytes: &[u8]) -> u16 {
    let shifted = |crc: u16, _| match crc & 0x8000 {
        0 => crc << 1,
        _ => (crc << 1) ^ 0x1021,
    };
    let with_byte = |crc: u16, byte: &u8| (0..8).fold(crc ^ (u16::from(*byte) << 8), shifted);
    bytes.iter().fold(0, with_byte)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_are_those_of_the_specification() {
        // The check value of the specification, and what CLUSTER KEYSLOT of Redis 7.0 answers.
        assert_eq!(crc16(b"123456789"), 0x31c3);
        for (key, slot) in [
            (&b"foo"[..], 12_182),
            (b"somekey", 11_058),
            (b"foo{hash_tag}", 2_515),
            (b"bar{hash_tag}", 2_515),
        ] {
            assert_eq!(slot_of(key), slot, "{}", key.escape_ascii());
        }
    }

    #[test]
    fn only_a_tag_with_something_in_it_is_hashed_alone() {
        for (key, part) in [
            (&b"a{b}c"[..], &b"b"[..]),
            (b"a{b}{c}", b"b"),
            (b"a{{b}}", b"{b"),
            (b"a{}b", b"a{}b"),
            (b"a{b", b"a{b"),
            (b"a}b{c}", b"c"),
            (b"", b""),
        ] {
            assert_eq!(hashed_part(key), part, "{}", key.escape_ascii());
        }
    }
}
