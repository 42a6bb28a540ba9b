//! The setting `mooring.prefixes`, and the question that every write to the server asks of it.

#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: &[u8]| mooring_module::fuzzing::prefixes(input));
