//! Every limit of the rules, named once, and checked against the others at compile time.

use crate::time::Millis;

/// Longest key, in bytes.
pub const KEY_BYTES_MAX: usize = 1024;
/// Longest session id, in bytes.
pub const SESSION_ID_BYTES_MAX: usize = 128;
/// Longest principal, in bytes: the longest e-mail address of RFC 5321 and room for a realm.
pub const PRINCIPAL_BYTES_MAX: usize = 320;
/// Longest server name, in bytes. With its field letter and colon it stays a 62-byte hash field.
pub const SERVER_BYTES_MAX: usize = 60;
/// Longest instance or worker name, in bytes.
pub const INSTANCE_BYTES_MAX: usize = 128;
/// Longest worker name, boot id included, in bytes.
pub const WORKER_BYTES_MAX: usize = 128;
/// Longest address a worker announces, in bytes.
pub const ADDRESS_BYTES_MAX: usize = 128;
/// Longest token of a claim attempt, in bytes.
pub const TOKEN_BYTES_MAX: usize = 64;
/// Longest session id given by an upstream, in bytes.
pub const UPSTREAM_SESSION_BYTES_MAX: usize = 1024;
/// Longest content hash, in bytes: SHA-256 in hex.
pub const CONTENT_HASH_BYTES_MAX: usize = 64;
/// Most labels on a session.
pub const LABELS_MAX: usize = 16;
/// Longest label name, in bytes.
pub const LABEL_NAME_BYTES_MAX: usize = 32;
/// Longest label value, in bytes.
pub const LABEL_VALUE_BYTES_MAX: usize = 256;
/// Longest reason of a rebind, in bytes.
pub const REASON_BYTES_MAX: usize = 128;
/// Most bindings of a session.
pub const BINDINGS_MAX: usize = 64;
/// Most instances named in one BIND or REBIND.
pub const INSTANCES_MAX: usize = 1024;
/// Shortest and longest time to live of a session.
pub const TTL_MIN: Millis = Millis::new(1_000);
/// See [`TTL_MIN`].
pub const TTL_MAX: Millis = Millis::new(30 * 24 * 60 * 60 * 1_000);
/// Shortest and longest lease of a claim.
pub const LEASE_MIN: Millis = Millis::new(10);
/// See [`LEASE_MIN`].
pub const LEASE_MAX: Millis = Millis::new(10 * 60 * 1_000);
/// How long the caller of END has for the cleaning before a reaper may take it over.
pub const END_CLEANING_LEASE: Millis = Millis::new(30_000);
/// Shortest and longest time for which one beat keeps a worker alive.
pub const BEAT_TTL_MIN: Millis = Millis::new(100);
/// See [`BEAT_TTL_MIN`].
pub const BEAT_TTL_MAX: Millis = Millis::new(10 * 60 * 1_000);
/// Most worker names a node remembers; the longest dead are forgotten first, the living never.
pub const WORKERS_MAX: usize = 4096;
/// Most earlier boots of one worker name a node remembers, so that a late beat of one is known for what it is.
pub const RETIRED_BOOTS_MAX: usize = 8;

const _: () = {
    assert!(TTL_MIN.get() < TTL_MAX.get());
    assert!(LEASE_MIN.get() < LEASE_MAX.get());
    assert!(BEAT_TTL_MIN.get() < BEAT_TTL_MAX.get());
    // A life of the longest TTL, its touch step and the largest tombstone still fits thirteen decimal digits until
    // the year 2286, which keeps the packed header within one 64-byte listpack value.
    assert!(TTL_MAX.get() * 11 < 9_999_999_999_999 / 2);
    // `<letter>:<server>` within the 64 bytes at which Redis keeps a hash a listpack by default.
    assert!(SERVER_BYTES_MAX + 2 <= 64);
    assert!(LABEL_NAME_BYTES_MAX + 2 <= 64);
};
