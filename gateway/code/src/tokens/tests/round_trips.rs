//! Whatever is hidden comes back, and nothing is hidden twice.

use proptest::prelude::*;
use serde_json::{Map, json};

use super::*;

fn personal() -> impl Strategy<Value = String> {
    prop_oneof![
        "[a-z]{1,8}(\\.[a-z]{1,4})?@[a-z]{1,8}\\.(com|de|co\\.uk)",
        "[2-9][0-9]{2}-[2-9][0-9]{2}-[0-9]{4}",
        "\\+[1-9][0-9]{9,13}",
        "[0-9]{3}-[0-9]{2}-[0-9]{4}",
        "DE[0-9]{20}",
        Just("4111 1111 1111 1111".to_owned()),
        Just("378282246310005".to_owned()),
    ]
}

fn text() -> impl Strategy<Value = String> {
    let part = prop_oneof![personal(), "\\PC{0,12}", "TKN_EMAIL_00000[0-9]{1,3}"];
    proptest::collection::vec(part, 0..6).prop_map(|parts| parts.join(" "))
}

fn value() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        text().prop_map(Value::from),
    ];
    leaf.prop_recursive(4, 32, 5, |inner| {
        let key = prop_oneof![
            "[a-z]{1,5}",
            Just("name".to_owned()),
            personal(),
            "[a-z]{0,3}phone"
        ];
        prop_oneof![
            proptest::collection::vec(inner.clone(), 0..5).prop_map(Value::from),
            proptest::collection::vec((key, inner), 0..5)
                .prop_map(|fields| Value::Object(fields.into_iter().collect::<Map<_, _>>())),
        ]
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 128, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn values_come_back(value in value()) {
        let place = tempfile::tempdir().unwrap();
        let tokenizer = tokenizer(place.path());
        let hidden = tokenizer.hide_value(value.clone()).unwrap();
        // A tool's text that looks like a token of this very session is taken for one; nothing else is lost.
        if !value.to_string().contains("TKN_") {
            prop_assert_eq!(tokenizer.reveal_value(hidden.clone()).unwrap(), value);
        }
        prop_assert_eq!(tokenizer.hide_value(hidden.clone()).unwrap(), hidden.clone());
        let elsewhere = super::tokenizer(place.path());
        prop_assert_eq!(elsewhere.hide_value(hidden.clone()).unwrap(), hidden);
    }

    #[test]
    fn what_is_personal_is_gone(before in "[a-z ]{0,5}", datum in personal(), after in "[ ,;)>]{1}[a-z ]{0,5}") {
        let place = tempfile::tempdir().unwrap();
        let tokenizer = tokenizer(place.path());
        let text = format!("{before} {datum}{after}");
        let hidden = tokenizer.hide_text(&text).unwrap();
        prop_assert!(!hidden.contains(&datum), "{}", hidden);
        prop_assert_eq!(reveal(&tokenizer, &hidden), json!(text));
    }
}

#[test]
fn a_token_comes_back_also_within_a_text_and_never_by_half() {
    let place = tempfile::tempdir().unwrap();
    let tokenizer = tokenizer(place.path());
    for number in 1..=12 {
        let hidden = tokenizer
            .hide_text(&format!("a{number}@example.com"))
            .unwrap();
        assert_eq!(hidden, format!("TKN_EMAIL_{number:06}"));
    }
    #[track_caller]
    fn check(tokenizer: &Tokenizer, text: &str, expected: &str) {
        assert_eq!(reveal(tokenizer, text), expected);
    }
    check(&tokenizer, "to:TKN_EMAIL_000001,x", "to:a1@example.com,x");
    check(
        &tokenizer,
        "TKN_EMAIL_000001TKN_EMAIL_000012",
        "a1@example.coma12@example.com",
    );
    check(&tokenizer, "TKN_EMAIL_0000012", "TKN_EMAIL_0000012");
    check(&tokenizer, "TKN_EMAIL_000013", "TKN_EMAIL_000013");
    check(&tokenizer, "TKN_PHONE_000001", "TKN_PHONE_000001");
    check(&tokenizer, "TKN_EMAIL_999999", "TKN_EMAIL_999999");
    check(&tokenizer, "_TKN_EMAIL_000002_", "_a2@example.com_");
    let keys = tokenizer
        .reveal_value(json!({"TKN_EMAIL_000001": ["TKN_EMAIL_000002"]}))
        .unwrap();
    assert_eq!(keys, json!({"a1@example.com": ["a2@example.com"]}));
}

#[test]
fn numbers_stay_numbers() {
    let place = tempfile::tempdir().unwrap();
    let tokenizer = tokenizer(place.path());
    let value = json!({"a": 4_111_111_111_111_111_u64, "b": "4111111111111111"});
    let hidden = tokenizer.hide_value(value.clone()).unwrap();
    assert_ne!(hidden["a"], hidden["b"]);
    assert_eq!(tokenizer.reveal_value(hidden.clone()).unwrap(), value);
    let within = format!("<{}>", hidden["a"].as_str().unwrap());
    assert_eq!(reveal(&tokenizer, &within), "<4111111111111111>");
}

#[test]
fn one_sessions_tokens_mean_nothing_in_another() {
    let (one, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let hidden = tokenizer(one.path()).hide_text("ada@example.com").unwrap();
    assert_eq!(reveal(&tokenizer(other.path()), &hidden), json!(hidden));
}
