use std::fs;

use proptest::prelude::*;
use serde_json::json;

use super::super::{
    AGENT_SESSION_BYTES_MAX, ENTRY_BYTES_MAX, FILE_BYTES_MAX, PARENT_BYTES_MAX, SkipReason,
    SkippedEntry, date, read as read_file, read_from,
};
use super::*;

const GOOD: &str = r#"{"claudeSessionId": "eff82f41", "updatedAt": "2026-01-14T23:15:00Z"}"#;

/// The only entry's fate.
#[track_caller]
fn one(text: &str) -> Result<Entry, SkipReason> {
    let mut reading = read(text).unwrap();
    match (reading.entries.pop(), reading.skipped.pop()) {
        (Some(entry), None) => Ok(entry),
        (None, Some(SkippedEntry { reason, .. })) => Err(reason),
        other => panic!("{text}: {other:?}"),
    }
}

fn with_date(date: &str) -> String {
    json!({"p": {"claudeSessionId": "a", "updatedAt": date}}).to_string()
}

#[test]
fn the_file_of_that_project_is_read() {
    let text = r#"{
  "parent-session-123": {
    "claudeSessionId": "eff82f41-a021-4098-80a0-95117aa3f3e4",
    "updatedAt": "2026-01-14T23:15:00Z"
  }
}"#;
    let expected = entry(
        "parent-session-123",
        "eff82f41-a021-4098-80a0-95117aa3f3e4",
        NOW_MS - 45 * 60_000,
    );
    assert_eq!(read(text).unwrap().entries, [expected]);
    assert_eq!(read("{}").unwrap(), SessionFileContents::default());
}

#[test]
fn a_bad_entry_is_named_with_its_reason_and_costs_no_other() {
    let deep = format!("{}1{}", "[".repeat(500), "]".repeat(500));
    let session =
        |value: &str| format!(r#"{{"claudeSessionId": {value}, "updatedAt": "2026-01-14"}}"#);
    let used = |value: &str| format!(r#"{{"claudeSessionId": "a", "updatedAt": {value}}}"#);
    let quoted = |text: &str| format!("\"{text}\"");
    let id = "claudeSessionId";
    let at = "updatedAt";
    for (value, expected) in [
        ("null".to_owned(), SkipReason::NotAnObject("null")),
        ("[]".to_owned(), SkipReason::NotAnObject("an array")),
        ("7".to_owned(), SkipReason::NotAnObject("a number")),
        ("true".to_owned(), SkipReason::NotAnObject("a boolean")),
        (quoted("eff82f41"), SkipReason::NotAnObject("a string")),
        ("{}".to_owned(), SkipReason::Missing(id)),
        (
            r#"{"updatedAt": "2026-01-14"}"#.to_owned(),
            SkipReason::Missing(id),
        ),
        (
            r#"{"claudeSessionId": "a"}"#.to_owned(),
            SkipReason::Missing(at),
        ),
        (session("null"), SkipReason::NotAString(id, "null")),
        (session("17"), SkipReason::NotAString(id, "a number")),
        (session("[\"a\"]"), SkipReason::NotAString(id, "an array")),
        (session("\"\""), SkipReason::SessionBlank),
        (session("\" \\t \""), SkipReason::SessionBlank),
        (session("\"a b\""), SkipReason::SessionAlphabet),
        (session("\"a\\u0000\""), SkipReason::SessionAlphabet),
        (session("\"caf\u{e9}\""), SkipReason::SessionAlphabet),
        (session("\"--dangerous\""), SkipReason::SessionOption),
        (
            session(&quoted(&"a".repeat(AGENT_SESSION_BYTES_MAX + 1))),
            SkipReason::SessionTooLong,
        ),
        (session("\"\\ud800\""), SkipReason::Unreadable),
        (used("null"), SkipReason::NotAString(at, "null")),
        (
            used("1768432500000"),
            SkipReason::NotAString(at, "a number"),
        ),
        (used("{}"), SkipReason::NotAString(at, "an object")),
        (used("\"\""), SkipReason::NotADate),
        (used("\"NaN\""), SkipReason::NotADate),
        (used("\"yesterday\""), SkipReason::NotADate),
        (used(&deep), SkipReason::Unreadable),
        (
            session(&quoted(&"a".repeat(ENTRY_BYTES_MAX))),
            SkipReason::TooLarge,
        ),
        (used("\"2026-01-13T23:59:59Z\""), SkipReason::Expired(TTL)),
    ] {
        let text = format!(r#"{{"first": {GOOD}, "bad": {value}, "last": {GOOD}}}"#);
        let reading = read(&text).unwrap();
        let parents: Vec<&str> = reading.entries.iter().map(|e| e.parent.as_str()).collect();
        assert_eq!(parents, ["first", "last"], "{value}");
        let key = "bad".to_owned();
        let reason = expected;
        assert_eq!(reading.skipped, [SkippedEntry { key, reason }], "{value}");
    }
}

#[test]
fn keys_are_ids_of_sessions() {
    let longest = "k".repeat(PARENT_BYTES_MAX);
    let too_long = "k".repeat(PARENT_BYTES_MAX + 1);
    let key = |key: &str| one(&format!("{{{}: {GOOD}}}", json!(key)));
    assert_eq!(key(&longest).unwrap().parent, longest);
    assert_eq!(key("__proto__").unwrap().parent, "__proto__");
    assert_eq!(
        key("\u{6771}\u{4eac} 7").unwrap().parent,
        "\u{6771}\u{4eac} 7"
    );
    assert_eq!(key(""), Err(SkipReason::KeyEmpty));
    assert_eq!(key(&too_long), Err(SkipReason::KeyTooLong));
    assert_eq!(key("a\u{1b}[2J"), Err(SkipReason::KeyControl));
    assert_eq!(
        one(&format!(r#"{{"a\ud800": {GOOD}}}"#)),
        Err(SkipReason::KeyNotText)
    );
}

#[test]
fn of_a_key_that_is_repeated_the_last_one_counts() {
    let text = format!(
        r#"{{"a": {GOOD}, "b": {GOOD}, "\u0061": {{"claudeSessionId": "last", "updatedAt": "2026-01-14T23:15:00Z"}}}}"#
    );
    let reading = read(&text).unwrap();
    let sessions: Vec<_> = reading
        .entries
        .iter()
        .map(|e| (e.parent.as_str(), e.agent_session.as_str()))
        .collect();
    assert_eq!(sessions, [("b", "eff82f41"), ("a", "last")]);
    assert_eq!(reading.skipped[0].reason, SkipReason::Repeated);
    let with_bad_one = read(&format!(r#"{{"a": {GOOD}, "a": null}}"#)).unwrap();
    assert_eq!(with_bad_one.entries, []);
    let member_twice = format!(
        r#"{{"a": {{"claudeSessionId": "x", {}}}}}"#,
        GOOD.trim_matches(['{', '}'])
    );
    assert_eq!(one(&member_twice).unwrap().agent_session, "eff82f41");
}

#[test]
fn dates_are_those_that_mean_the_same_everywhere() {
    for (text, expected) in [
        ("1970-01-01T00:00:00.000Z", Some(0)),
        ("2026-01-14T23:15:00Z", Some(1_768_432_500_000)),
        ("2026-01-14T23:15:00.000Z", Some(1_768_432_500_000)),
        ("2026-01-14T23:15Z", Some(1_768_432_500_000)),
        ("2026-01-14t23:15:00z", Some(1_768_432_500_000)),
        ("2026-01-14 23:15:00Z", Some(1_768_432_500_000)),
        ("2026-01-15T01:15:00+02:00", Some(1_768_432_500_000)),
        ("2026-01-14T18:45:00-04:30", Some(1_768_432_500_000)),
        ("2026-01-14T23:15:00.5Z", Some(1_768_432_500_500)),
        ("2026-01-14T23:15:00.123456789Z", Some(1_768_432_500_123)),
        ("2026-01-15", Some(1_768_435_200_000)),
        ("2026-01-14T24:00:00Z", Some(1_768_435_200_000)),
        ("2000-02-29T00:00:00Z", Some(951_782_400_000)),
        ("2100-03-01T00:00:00Z", Some(4_107_542_400_000)),
        ("1969-12-31T23:59:59.999Z", Some(-1)),
        ("0000-03-01T00:00:00Z", Some(-62_162_035_200_000)),
        ("2026-01-14T23:15:00", None),
        ("2026-02-29T00:00:00Z", None),
        ("1900-02-29T00:00:00Z", None),
        ("2026-04-31", None),
        ("2026-13-01", None),
        ("2026-00-01", None),
        ("2026-01-00", None),
        ("2026-01-14T24:00:01Z", None),
        ("2026-01-14T25:00:00Z", None),
        ("2026-01-14T23:60:00Z", None),
        ("2026-01-14T23:15:60Z", None),
        ("2026-01-14T23:15:00.Z", None),
        ("2026-01-14T23:15:00Zjunk", None),
        ("2026-1-14", None),
        ("20260114T231500Z", None),
        ("+2026-01-14", None),
        ("1768432500000", None),
        ("Invalid Date", None),
        ("\u{0662}026-01-14", None),
    ] {
        assert_eq!(date::unix_ms(text), expected, "{text}");
    }
}

#[test]
fn sessions_expire_after_the_time_to_live_and_a_use_in_the_future_is_one_of_now() {
    let at = |date: &str| one(&with_date(date)).map(|entry| entry.updated_at_ms);
    assert_eq!(at("2026-01-14T00:00:00.000Z"), Ok(NOW_MS - 24 * HOUR_MS));
    assert_eq!(
        at("2026-01-13T23:59:59.999Z"),
        Err(SkipReason::Expired(TTL))
    );
    assert_eq!(at("1969-12-31T00:00:00Z"), Err(SkipReason::Expired(TTL)));
    assert_eq!(at("2026-01-15T00:00:01Z"), Ok(NOW_MS));
    assert_eq!(at("9999-12-31T23:59:59Z"), Ok(NOW_MS));
    let reading = read(&format!(
        r#"{{"a": {GOOD}, "b": {{"claudeSessionId": "x", "updatedAt": "2020-01-01"}}, "c": 1}}"#
    ));
    assert_eq!(reading.unwrap().expired(), 1);
}

#[test]
fn a_file_that_is_no_object_is_refused_and_the_error_says_what_it_is_and_where() {
    for (text, says) in [
        ("", "the file is empty"),
        (" \n", "the file is empty"),
        ("\u{feff}", "the file is empty"),
        ("[]", "the file holds an array"),
        ("null", "the file holds null"),
        ("7", "the file holds a number"),
        ("\"text\"", "the file holds a string"),
        ("false", "the file holds a boolean"),
        ("nonsense", "the file is not JSON"),
        (
            "{} {}",
            "the file is not JSON: trailing characters at line 1 column 4",
        ),
        ("\n\n{\"a\": }", "line 3 column 7"),
        (
            "{\"a\": {}",
            "the file is cut off: it ends in line 1, column 8",
        ),
        (
            "{\n \"a\": {\"claudeSess",
            "the file is cut off: it ends in line 2, column 18",
        ),
        ("{\"a\": {},}", "the file is not JSON: trailing comma"),
    ] {
        let error = read(text).unwrap_err().to_string();
        assert!(error.contains(says), "{text:?}: {error}");
    }
    assert_eq!(
        read(&format!("\u{feff}{{\"a\": {GOOD}}}"))
            .unwrap()
            .entries
            .len(),
        1
    );
}

#[test]
fn bytes_that_are_no_text_cost_their_own_entry() {
    let mut bytes = format!(r#"{{"a": {GOOD}, "b": {{"claudeSessionId": "x"#).into_bytes();
    bytes.extend(b"\xff\", \"updatedAt\": \"2026-01-14T23:15:00Z\"}}");
    let reading = parse(&bytes, NOW_MS, TTL).unwrap();
    assert_eq!(reading.entries.len(), 1);
    assert_eq!(reading.skipped[0].reason, SkipReason::SessionAlphabet);
}

#[test]
fn what_is_read_is_a_file_and_is_bounded() {
    let directory = tempfile::tempdir().unwrap();
    let absent = read_file(&directory.path().join("absent"), NOW_MS, TTL);
    assert!(matches!(absent, Err(ReadError::Open { .. })), "{absent:?}");
    let not_a_file = read_file(directory.path(), NOW_MS, TTL);
    assert!(
        matches!(not_a_file, Err(ReadError::NotAFile { .. })),
        "{not_a_file:?}"
    );
    let path = directory.path().join("sessions.json");
    fs::write(&path, format!(r#"{{"a": {GOOD}}}"#)).unwrap();
    assert_eq!(read_file(&path, NOW_MS, TTL).unwrap().entries.len(), 1);
    let endless = read_from(std::io::repeat(b' '), NOW_MS, TTL);
    assert!(matches!(endless, Err(ReadError::TooLarge)), "{endless:?}");
    assert!(usize::try_from(FILE_BYTES_MAX).unwrap() > 1_000 * ENTRY_BYTES_MAX / 10);
}

/// Bytes that are mostly pieces of such a file.
fn pieces() -> impl Strategy<Value = Vec<u8>> {
    let piece = prop_oneof![
        4 => prop::sample::select(vec![
            "{", "}", "[", "]", ",", ":", "\"", "\\", "\\ud800", "null", "1e999", "-", " ", "\n", "\u{feff}",
            "\"claudeSessionId\"", "\"updatedAt\"", "\"2026-01-14T23:15:00Z\"", "\"a\"", "2026-01-14", "T24:00",
        ]).prop_map(|text| text.as_bytes().to_vec()),
        1 => prop::collection::vec(any::<u8>(), 0..8),
    ];
    prop::collection::vec(piece, 0..40).prop_map(|pieces| pieces.concat())
}

proptest! {
    #[test]
    fn no_bytes_are_a_panic_and_what_is_taken_keeps_its_promises(bytes in pieces(), now_ms in any::<u64>()) {
        if let Ok(reading) = parse(&bytes, now_ms, TTL) {
            for entry in reading.entries {
                prop_assert!((1..=PARENT_BYTES_MAX).contains(&entry.parent.len()));
                prop_assert!((1..=AGENT_SESSION_BYTES_MAX).contains(&entry.agent_session.len()));
                prop_assert!(entry.updated_at_ms <= now_ms);
            }
        }
    }

    #[test]
    fn no_date_is_a_panic(text in "[0-9TtZz:.+, -]{0,40}|\\PC{0,12}") {
        let _ = date::unix_ms(&text);
    }

    #[test]
    fn a_date_that_is_written_is_read(unix_ms in 0..253_402_300_800_000_u64) {
        let text = mooring_store::rfc3339(unix_ms);
        prop_assert_eq!(date::unix_ms(&text), i64::try_from(unix_ms).ok());
    }
}
