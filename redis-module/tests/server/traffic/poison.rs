//! What goes wrong in a command on its way: bytes that have broken servers before, and words out of their place.

use fastrand::Rng;

use super::words::Words;

/// Bytes that no argument expects: terminators, formats, invalid UTF-8, line ends, nothing, numbers at the edge, too
/// much.
pub(crate) fn poisons() -> Vec<Vec<u8>> {
    vec![
        b"a\0b".to_vec(),
        b"\0".to_vec(),
        b"%s%s%n%n".to_vec(),
        b"\xff\xfe".to_vec(),
        b"a\xcc\x81\xe2\x80\xae".to_vec(),
        b"a\r\n-ERR b".to_vec(),
        b"{}".to_vec(),
        b"*".to_vec(),
        b" ".to_vec(),
        Vec::new(),
        b"-1".to_vec(),
        b"0".to_vec(),
        b"+1".to_vec(),
        b"9223372036854775807".to_vec(),
        b"9223372036854775808".to_vec(),
        b"18446744073709551616".to_vec(),
        b"1e3".to_vec(),
        vec![b'x'; 2_000],
        vec![0; 70_000],
    ]
}

/// Spoils a command in one of the ways in which commands go wrong.
pub(crate) fn spoil(words: &mut Words, rng: &mut Rng) {
    let poisons = poisons();
    let poison = poisons[rng.usize(..poisons.len())].clone();
    // The name stays, or it would be another command.
    let place = rng.usize(1..=words.len());
    match rng.u32(..5) {
        0 => words.insert(place, poison),
        1 if place < words.len() => drop(words.remove(place)),
        2 if place < words.len() => words.insert(place, words[place].clone()),
        3 if place < words.len() => {
            let other = rng.usize(1..words.len());
            words.swap(place, other);
        }
        _ if place < words.len() => words[place] = poison,
        _ => words.push(poison),
    }
}
