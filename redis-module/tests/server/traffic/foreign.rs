//! Commands of Redis itself on the sessions' keys: what an operator, a tool or another program does to them.

use std::collections::BTreeMap;

use fastrand::Rng;

use super::words::{Said, any_key};

/// A moment long ago: a session with this deadline has expired.
const LONG_AGO_MS: u64 = 1_700_000_000_000;

/// One such command, whose effect is the same wherever it is repeated.
pub(crate) fn draw(rng: &mut Rng) -> Said {
    let (one, other) = (any_key(rng), any_key(rng));
    let expired = format!("1 1 active {LONG_AGO_MS} {LONG_AGO_MS} {LONG_AGO_MS} 1000");
    let line = match rng.u32(..24) {
        0..7 => vec!["DEL", &one],
        7..9 => vec!["UNLINK", &one, &other],
        9..14 => vec!["HSET", &one, "s", &expired],
        14 => vec!["RENAME", &one, &other],
        15 => vec!["COPY", &one, &other],
        16 => vec!["COPY", &one, &other, "REPLACE"],
        17 => vec!["MOVE", &one, "1"],
        18 => vec!["SET", &one, "text"],
        19 => vec!["HDEL", &one, "b:server0", "z"],
        20 => vec!["HSET", &one, "unknown", "kept"],
        21 => vec!["PEXPIRE", &one, "3600000"],
        22 => vec!["PERSIST", &one],
        _ => vec!["LPUSH", &one, "item"],
    };
    Said {
        words: line
            .into_iter()
            .map(|word| word.as_bytes().to_vec())
            .collect(),
        session: 0,
        server: 0,
        named: BTreeMap::new(),
    }
}
