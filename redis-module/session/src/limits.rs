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
/// How long the caller of END has for the cleanup before a reaper may take it over.
pub const END_CLEANING_LEASE: Millis = Millis::new(30_000);
/// How long the tombstone of a session lives that held nothing when it was ended, because there is nothing to clean up.
pub const EMPTY_TOMBSTONE: Millis = END_CLEANING_LEASE;
/// A session's key may outlive its tombstone by one such part of its TTL.
pub const KEY_OUTLIVES_PARTS: u64 = 4;
/// How far the wall clock may step back before leases with a later time are ignored.
pub const CLOCK_BACK_MAX: Millis = Millis::new(1_000);
/// How long a granted turn may wait to be picked up.
pub const TURN_PICKUP: Millis = Millis::new(1_000);
/// How long a cancelled call keeps its turn: most servers do not reply to a cancelled call, and those that do reply
/// within this time.
pub const TURN_CANCELLED_GRACE: Millis = Millis::new(1_000);
/// How many turns in a row a worker has to ask for, with no other caller asking, before one is delegated to it.
pub const DELEGATION_STREAK_MIN: u8 = 3;
/// Of how many leases the TTL of a session has to be for its turns and routes to be delegated: a renewal once a lease
/// then slides the TTL well before it has passed.
pub const DELEGATION_TTL_LEASES: u64 = 4;
/// How long after a turn the next one still counts as in a row.
pub const STREAK_PAUSE_MAX: Millis = Millis::new(1_000);
/// Most sessions and servers of which a node counts turns in a row.
pub const STREAKS_MAX: usize = 16_384;
/// How long a worker whose connection for events has closed keeps its delegations, unless it opens another one.
pub const DELEGATION_RECONNECT: Millis = Millis::new(200);
/// Longest queue of one turn that the setting allows.
pub const TURN_QUEUE_MAX: usize = 65_536;
/// Most queues of a node.
pub const TURN_QUEUES_MAX: usize = 65_536;
/// Most callers that wait for turns at one node.
pub const TURN_WAITERS_MAX: usize = 262_144;
/// Highest number by which a turn may be reclaimed: 2^53 - 1, the highest integer that every JSON parser preserves.
pub const TURN_NUMBER_MAX: u64 = 9_007_199_254_740_991;
/// How far ahead of the clock a number in a record, or the number of a reclaimed turn, may be for the numbers of other
/// keys to follow it. No clock assigns a higher one.
pub const NUMBER_AHEAD_MAX: Millis = Millis::new(24 * 60 * 60 * 1_000);
/// Most mailboxes of a node: twice the number of workers that it knows from beats and from records.
pub const MAILBOXES_MAX: usize = 4 * WORKERS_MAX;
/// Most events in one mailbox.
pub const MAILBOX_EVENTS_MAX: usize = 16_384;
/// Most events in one reply of WAIT.
pub const EVENTS_BATCH_MAX: usize = 1_000;
/// Shortest and longest timeout of WAIT.
pub const WAIT_TIMEOUT_MIN: Millis = Millis::new(1);
/// See [`WAIT_TIMEOUT_MIN`].
pub const WAIT_TIMEOUT_MAX: Millis = Millis::new(10 * 60 * 1_000);
/// Most watched claims of a node.
pub const WATCHED_MAX: usize = 65_536;
/// Most watchers of all these claims together.
pub const WATCHERS_MAX: usize = 262_144;
/// Highest limit of a rate.
pub const RATE_LIMIT_MAX: u64 = 1_000_000;
/// Shortest and longest window of a rate.
pub const RATE_WINDOW_MIN: Millis = Millis::new(1);
/// See [`RATE_WINDOW_MIN`].
pub const RATE_WINDOW_MAX: Millis = TTL_MAX;
/// Shortest and longest time for which one beat keeps a worker alive.
pub const BEAT_TTL_MIN: Millis = Millis::new(100);
/// See [`BEAT_TTL_MIN`].
pub const BEAT_TTL_MAX: Millis = Millis::new(10 * 60 * 1_000);
/// Most prefixes of session keys.
pub const PREFIXES_MAX: usize = 16;
/// Highest cap on the active sessions of a principal.
pub const CAP_MAX: u64 = 1_000_000_000;
/// Longest key pattern, in bytes.
pub const PATTERN_BYTES_MAX: usize = 256;
/// Shortest and longest text to search for, in bytes.
pub const SEARCH_BYTES_MIN: usize = 1;
/// See [`SEARCH_BYTES_MIN`].
pub const SEARCH_BYTES_MAX: usize = 512;
/// Most groups of keys that an index counts: the prefixes of gateways, and the servers of code and agents.
pub const KEY_GROUPS_MAX: usize = 256;
/// Most instances, and most owners, of which one reply has the counts.
pub const COUNT_NAMES_MAX: usize = 5_000;
/// Most words of a request that its digest covers: all words of the longest valid request.
pub const REQUEST_WORDS_MAX: usize = 2_048;
/// Most bytes of each word of a request that its digest covers.
pub const REQUEST_WORD_BYTES_MAX: usize = 1_024;
/// Most sessions on one page of LIST, and most keys that one REAP names.
pub const LIST_COUNT_MAX: usize = 1_000;
/// Most entries of an index that one page examines.
pub const PAGE_EXAMINED_MAX: usize = 10_000;
/// Most entries that one page collects and sorts: if no name in the filter is rarer, it iterates in order instead.
pub const PAGE_COLLECTED_MAX: usize = 5_000;
/// Most instance names that one page checks for those of a server.
pub const PAGE_PLACES_MAX: usize = 5_000;
/// Most steps that one page takes to match keys against a pattern and names against a text; the last session may exceed
/// it.
pub const PAGE_PATTERN_STEPS_MAX: usize = 500_000;
/// Most entries and owners of an index that one REAP examines.
pub const DUE_EXAMINED_MAX: usize = 10_000;
/// Most steps that one REAP takes to match keys against a pattern; the last key may exceed it.
pub const DUE_PATTERN_STEPS_MAX: usize = PAGE_PATTERN_STEPS_MAX;
/// Most patterns of REAP for which a node remembers where the next call continues.
pub const REAP_ROUNDS_MAX: usize = 64;
/// Most deadlines that an index processes with a change of a record.
pub const SETTLED_WITH_A_CHANGE_MAX: usize = 16;
/// Most deadlines that an index processes before it returns what a principal holds.
pub const SETTLED_WITH_A_QUESTION_MAX: usize = 256;
/// Most sessions of a principal that an index examines, from the least recently used on, before it returns what the
/// principal holds.
pub const HELD_EXAMINED_MAX: usize = 256;
/// Most keys of expired sessions that an index keeps until they are reported.
pub const OVERDUE_MAX: usize = 4_096;
/// How long an instance that a session was moved away from counts as fuller.
pub const DEPARTURE_LASTS: Millis = Millis::new(30_000);
/// Most departures that a node remembers.
pub const DEPARTURES_MAX: usize = 4_096;
/// Most worker names a node remembers; the longest dead are forgotten first, living ones never.
pub const WORKERS_MAX: usize = 4096;
/// Most earlier boots of one worker name that a node remembers, to recognize a late beat of one.
pub const RETIRED_BOOTS_MAX: usize = 8;

const _: () = {
    assert!(TTL_MIN.get() < TTL_MAX.get());
    assert!(LEASE_MIN.get() < LEASE_MAX.get());
    assert!(BEAT_TTL_MIN.get() < BEAT_TTL_MAX.get());
    assert!(PAGE_COLLECTED_MAX <= PAGE_EXAMINED_MAX && LIST_COUNT_MAX <= PAGE_COLLECTED_MAX);
    assert!(KEY_BYTES_MAX <= REQUEST_WORD_BYTES_MAX);
    assert!(UPSTREAM_SESSION_BYTES_MAX <= REQUEST_WORD_BYTES_MAX);
    assert!(INSTANCES_MAX * 2 <= REQUEST_WORDS_MAX);
    assert!(PREFIXES_MAX <= u8::MAX as usize);
    assert!(END_CLEANING_LEASE.get() <= LEASE_MAX.get());
    // The longest queue of one turn fits into the limit of the node.
    assert!(TURN_QUEUE_MAX <= TURN_WAITERS_MAX);
    // The share of one in the shortest window of the highest rate is at least a nanosecond.
    assert!(RATE_WINDOW_MIN.get() * 1_000_000 >= RATE_LIMIT_MAX);
    // A lifetime of the longest TTL, its touch step and the largest tombstone still fits thirteen decimal digits until
    // the year 2286, which keeps the packed header within one 64-byte listpack value.
    assert!(TTL_MAX.get() * 11 < 9_999_999_999_999 / 2);
    // `<letter>:<server>` within the 64 bytes at which Redis keeps a hash a listpack by default.
    assert!(SERVER_BYTES_MAX + 2 <= 64);
    assert!(LABEL_NAME_BYTES_MAX + 2 <= 64);
};
