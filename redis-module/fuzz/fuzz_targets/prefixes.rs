//! The setting `mooring.prefixes`, and its check for every write to the server.

#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: &[u8]| mooring_module::fuzzing::prefixes(input));
