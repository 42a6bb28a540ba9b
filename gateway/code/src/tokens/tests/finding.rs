//! What is found in texts and in JSON.

use serde_json::json;

use super::*;

/// The text with a `[CATEGORY]` in the place of each token, numbered by what it is.
#[track_caller]
fn check(text: &str, expected: &str) {
    let place = tempfile::tempdir().unwrap();
    let tokenizer = tokenizer(place.path());
    let hidden = tokenizer.hide_text(text).unwrap();
    let number = Regex::new(r"TKN_([A-Z_]+)_[0-9]{6}").unwrap();
    assert_eq!(number.replace_all(&hidden, "[$1]"), expected, "{text}");
    assert_eq!(reveal(&tokenizer, &hidden), text);
    assert_eq!(
        tokenizer.hide_text(&hidden).unwrap(),
        hidden,
        "tokens are left alone"
    );
}

#[test]
fn every_type_is_found_in_text() {
    check("mail ada@example.com now", "mail [EMAIL] now");
    check("card 4111 1111 1111 1111.", "card [CREDIT_CARD].");
    check("card 4111-1111-1111-1111.", "card [CREDIT_CARD].");
    check("amex 378282246310005", "amex [CREDIT_CARD]");
    check("mc 5555555555554444", "mc [CREDIT_CARD]");
    check("ssn 123-45-6789", "ssn [SSN]");
    check("ssn 123 45 6789", "ssn [SSN]");
    check("iban DE89370400440532013000", "iban [IBAN]");
    check(
        r#"failed: {"name": "Ada", "id": 1}"#,
        r#"failed: {"name": "[NAME]", "id": 1}"#,
    );
}

#[test]
fn telephone_numbers_of_many_countries_are_found() {
    for number in [
        "555-123-4567",
        "(555) 123-4567",
        "555.123.4567",
        "5551234567",
        "1-800-555-0199",
        "+1 (555) 123-4567",
        "+15551234567",
        "+49 30 901820",
        "+44 (0)20 7946 0958",
        "0044 20 7946 0958",
        "020 7946 0958",
        "01 23 45 67 89",
        "030-90182000",
        "+81 3-1234-5678",
    ] {
        check(number, "[PHONE]");
        check(&format!("call <{number}>"), "call <[PHONE]>");
    }
}

#[test]
fn what_only_looks_like_it_is_left_alone() {
    for text in [
        "card 4111 1111 1111 1112",
        "3.141592653589793",
        "0.30000000000000004",
        "at 1700000000 seconds",
        "2024-01-02 10:20:30",
        "2024-01-02T10:20:30.123456789Z",
        "01.02.2024 12:00",
        "192.168.100.200",
        "v1.22.333",
        "-122.4194155",
        "id 123456789",
        "550e8400-e29b-41d4-a716-446655440000",
        "@app.get @pytest.fixture",
        "100% of root@localhost",
        "TKN_EMAIL_OVERFLOW",
    ] {
        check(text, text);
    }
}

/// What one match would leave of another must not go out.
#[test]
fn what_overlaps_goes_as_a_whole() {
    check("DE89370400440532013000@example.com", "[EMAIL]");
    check("555-123-4567@example.com", "[EMAIL]");
    check("4111111111111111@x.example.com", "[EMAIL]");
    check("(555) 123-4567.ada@example.com", "[EMAIL]");
}

#[test]
fn every_type_is_found_in_nested_json() {
    let place = tempfile::tempdir().unwrap();
    let tokenizer = tokenizer(place.path());
    let value = json!({
        "users": [{
            "name": "Ada Lovelace",
            "lastName": ["King", "Noel"],
            "contact": {"email": "ada@example.com", "phone": "12345 678", "tel": 12_345_678},
            "ssn": 123_456_789,
            "card": 4_111_111_111_111_111_u64,
            "by": {"ada@example.com": true, "DE89370400440532013000": [null]},
            "id": 17, "score": 0.5, "text": "{\"user_name\":\"Bob\"}"
        }]
    });
    let hidden = tokenizer.hide_value(value.clone()).unwrap();
    let text = hidden.to_string();
    for gone in [
        "Ada",
        "King",
        "Noel",
        "ada@",
        "12345 678",
        "12345678",
        "123456789",
        "4111",
        "DE89",
        "Bob",
    ] {
        assert!(!text.contains(gone), "{gone} is in {text}");
    }
    let user = &hidden["users"][0];
    assert_eq!(user["id"], 17);
    assert_eq!(user["score"], 0.5);
    let address = user["contact"]["email"].as_str().unwrap();
    assert_eq!(user["by"][address], true, "one value has one token: {text}");
    assert_eq!(tokenizer.reveal_value(hidden).unwrap(), value);
}

#[test]
fn only_what_is_asked_for_is_found() {
    let place = tempfile::tempdir().unwrap();
    let only = TokenizationSettings {
        types: vec![PersonalDataType::Ssn],
        patterns: Vec::new(),
    };
    let tokenizer = Tokenizer::new(only, try_open(place.path(), None).unwrap());
    let value = json!({"name": "Ada", "x": "ada@example.com 4111111111111111 +15551234567", "phone": 5_551_234_567_u64});
    assert_eq!(tokenizer.hide_value(value.clone()).unwrap(), value);
    let hidden = tokenizer.hide_text("123-45-6789").unwrap();
    assert_eq!(hidden, "TKN_SSN_000001");
}

#[test]
fn tokens_within_a_name_stay() {
    let place = tempfile::tempdir().unwrap();
    let tokenizer = tokenizer(place.path());
    let mail = tokenizer.hide_text("ada@example.com").unwrap();
    let hidden = tokenizer
        .hide_value(json!({"name": format!("Ada <{mail}>")}))
        .unwrap();
    let name = hidden["name"].as_str().unwrap();
    assert!(name.contains(&mail) && !name.contains("Ada"), "{name}");
    assert_eq!(reveal(&tokenizer, name), "Ada <ada@example.com>");
    let alone = json!({"name": mail});
    assert_eq!(tokenizer.hide_value(alone.clone()).unwrap(), alone);
}

/// An escaped name in a text means the same as the name itself.
#[test]
fn a_tool_gets_what_escaped_json_means() {
    let place = tempfile::tempdir().unwrap();
    let tokenizer = tokenizer(place.path());
    let hidden = tokenizer.hide_text(r#"{"name": "Jos\u00e9"}"#).unwrap();
    assert_eq!(hidden, r#"{"name": "TKN_NAME_000001"}"#);
    assert_eq!(reveal(&tokenizer, "TKN_NAME_000001"), "José");
    let quoted = tokenizer.hide_text(r#"{"name": "A \"x\""}"#).unwrap();
    assert_eq!(reveal(&tokenizer, &quoted), r#"{"name": "A \"x\""}"#);
}

#[test]
fn the_end_of_a_text_that_was_cut_is_left_out() {
    let place = tempfile::tempdir().unwrap();
    let tokenizer = tokenizer(place.path());
    assert_eq!(
        tokenizer.hide_cut_text("one\ntwo\nada@exa").unwrap(),
        "one\ntwo\n"
    );
    let long = format!("{}ada@exa", "x ".repeat(1000));
    let kept = tokenizer.hide_cut_text(&long).unwrap();
    assert!(kept.len() < long.len() && long.starts_with(&kept) && !kept.contains("ada"));
    assert_eq!(tokenizer.hide_cut_text("short").unwrap(), "");
}

/// Texts that make a careless search go over everything again and again.
#[test]
fn hostile_texts_take_no_longer_than_others() {
    let place = tempfile::tempdir().unwrap();
    let tokenizer = tokenizer(place.path());
    for part in [
        "@",
        "a@",
        "%40",
        "a.",
        "1 ",
        "1-",
        "+1",
        "(",
        "\"name\":\"",
        "\"name\": '",
        "TKN_",
        "TKN_A_",
        "\\\"",
        "9",
    ] {
        let text = part.repeat(50_000);
        let hidden = tokenizer.hide_text(&text).unwrap();
        assert!(!hidden.is_empty(), "{part}");
        reveal(&tokenizer, &text);
    }
}
