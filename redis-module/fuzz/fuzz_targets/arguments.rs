//! The grammar of every command: the first line names it, the others are its words.

#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: &[u8]| {
    let words: Vec<&[u8]> = input.split(|byte| *byte == b'\n').collect();
    mooring_module::fuzzing::arguments(&words);
});
