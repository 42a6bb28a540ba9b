//! What is kept, what is counted, and that nothing is waited for.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test says what it expects by failing"
)]

use super::*;

use std::io::Write;

fn pump(keep_bytes_max: usize) -> (Pump, std::io::PipeWriter, Box<[u8; Pump::CHUNK]>) {
    let (read, write) = io::pipe().expect("a pipe");
    (
        Pump::new(read.into(), keep_bytes_max).expect("a pump"),
        write,
        Box::new([0; Pump::CHUNK]),
    )
}

#[test]
fn the_beginning_is_kept_and_the_rest_counted() {
    let (mut pump, mut write, mut chunk) = pump(5);
    pump.take(&mut chunk);
    assert!(
        !pump.has_taken(),
        "nothing was written, and nothing was waited for"
    );
    write.write_all(b"abc").expect("written");
    pump.take(&mut chunk);
    write.write_all(b"defg").expect("written");
    pump.take(&mut chunk);
    assert!(pump.descriptor().is_some());
    drop(write);
    let output = pump.finish(&mut chunk);
    assert_eq!(output.bytes, b"abcde");
    assert_eq!(output.written_bytes, 7);
    assert!(output.is_truncated());
}

#[test]
fn a_writer_that_stays_is_not_waited_for() {
    let (pump, mut write, mut chunk) = pump(100);
    write.write_all(b"all").expect("written");
    let output = pump.finish(&mut chunk);
    assert_eq!(output.bytes, b"all");
    assert!(!output.is_truncated());
    drop(write);
}
