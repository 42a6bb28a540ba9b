//! A map that is full: what has no token of its own turns never back, and does not leak.

use serde_json::json;

use super::super::map::{ENTRIES_MAX, VALUE_BYTES_MAX};
use super::*;

#[test]
fn beyond_the_most_values_tokens_do_not_turn_back() {
    let place = tempfile::tempdir().unwrap();
    let tokenizer = tokenizer(place.path());
    let many: Vec<Value> = (0..ENTRIES_MAX + 10)
        .map(|number| json!(format!("u{number}@example.com")))
        .collect();
    let hidden = tokenizer.hide_value(Value::from(many.clone())).unwrap();
    let hidden = hidden.as_array().unwrap();
    let last = usize::try_from(ENTRIES_MAX).unwrap();
    assert_eq!(
        hidden[last - 1],
        json!(format!("TKN_EMAIL_{ENTRIES_MAX:06}"))
    );
    for token in &hidden[last..] {
        assert_eq!(token, "TKN_EMAIL_OVERFLOW");
    }
    assert_eq!(
        reveal(&tokenizer, "TKN_EMAIL_OVERFLOW"),
        "TKN_EMAIL_OVERFLOW"
    );
    assert_eq!(
        tokenizer.hide_text("new@example.com").unwrap(),
        "TKN_EMAIL_OVERFLOW"
    );
    assert_eq!(
        tokenizer.hide_text("u0@example.com").unwrap(),
        "TKN_EMAIL_000001"
    );
    let again = super::tokenizer(place.path());
    assert_eq!(
        again.hide_text("new@example.com").unwrap(),
        "TKN_EMAIL_OVERFLOW"
    );
    assert_eq!(again.reveal_value(hidden[0].clone()).unwrap(), many[0]);

    let keys = json!({"x@example.com": 1, "y@example.com": 2, "z@example.com": 3});
    let hidden = tokenizer.hide_value(keys).unwrap();
    assert_eq!(hidden.as_object().unwrap().len(), 3, "{hidden}");
    assert!(!hidden.to_string().contains('@'));
}

#[test]
fn a_value_that_is_too_long_does_not_turn_back() {
    let place = tempfile::tempdir().unwrap();
    let tokenizer = tokenizer(place.path());
    let most = "n".repeat(VALUE_BYTES_MAX);
    let hidden = tokenizer.hide_value(json!({"name": most})).unwrap();
    assert_eq!(hidden["name"], "TKN_NAME_000001");
    let hidden = tokenizer
        .hide_value(json!({"name": format!("{most}n")}))
        .unwrap();
    assert_eq!(hidden["name"], "TKN_NAME_OVERFLOW");
}

/// The file has a limit of its own.
#[test]
fn a_file_that_is_full_takes_no_more() {
    let place = tempfile::tempdir().unwrap();
    let tokenizer = tokenizer(place.path());
    let mut number = 0_u32;
    let full = loop {
        let names: Vec<Value> = (0..400)
            .map(|_| {
                number += 1;
                json!({"name": format!("{number:0width$}", width = VALUE_BYTES_MAX)})
            })
            .collect();
        let hidden = tokenizer.hide_value(Value::from(names)).unwrap();
        let last = hidden.as_array().unwrap().last().unwrap()["name"].clone();
        if last == "TKN_NAME_OVERFLOW" {
            break std::fs::metadata(place.path().join("tokens"))
                .unwrap()
                .len();
        }
    };
    let most = super::super::map::FILE_BYTES_MAX;
    assert!((most..most + 16 * 1024).contains(&full), "{full}");
}
