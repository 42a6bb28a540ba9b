//! Pointers, conditions and texts, according to RFC 6901 and to the output of agents.

#![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

use super::*;

#[test]
fn a_pointer_finds_what_rfc_6901_says() {
    #[track_caller]
    fn check(pointer: &str, expected: Option<&str>) {
        let text = r#" {"a": {"b": ["x", 7 ]}, "": 1, "m/n": 2, "~t": 3, "\u0065": 4, "e": 5} "#;
        let found = JsonValue::parse(text)
            .unwrap()
            .at(&Pointer::parse(pointer).unwrap());
        assert_eq!(found.map(|value| value.0.get()), expected, "{pointer}");
    }
    check("/a/b/0", Some("\"x\""));
    check("/a/b/1", Some("7"));
    for nothing in [
        "/a/b/2", "/a/b/01", "/a/b/+1", "/a/b/-", "/a/b/", "/a/c", "/a/b/0/0",
    ] {
        check(nothing, None);
    }
    check("/a", Some(r#"{"b": ["x", 7 ]}"#));
    check("/", Some("1"));
    check("/m~1n", Some("2"));
    check("/~0t", Some("3"));
    check("/e", Some("5"));
    let whole = JsonValue::parse("[1]").unwrap();
    assert_eq!(
        whole.at(&Pointer::parse("").unwrap()).unwrap().0.get(),
        "[1]"
    );
}

#[test]
fn a_condition_is_met_where_exactly_that_stands() {
    #[track_caller]
    fn check(condition: &str, expected: bool) {
        let text = r#"{"type": "\u0069tem", "item": {"done": true, "n": 3, "none": null, "list": []}, "e": ""}"#;
        let condition = Condition::parse(condition).unwrap();
        let value = JsonValue::parse(text).unwrap();
        assert_eq!(value.matches(&condition), expected, "{condition:?}");
    }
    for met in [
        "/type=item",
        "/item/done=true",
        "/item/n=3",
        "/item/none=null",
        "/e=",
    ] {
        check(met, true);
    }
    for unmet in [
        "/type=items",
        "/type=\"item\"",
        "/item/list=[]",
        "/item=",
        "/missing=",
    ] {
        check(unmet, false);
    }
}

#[test]
fn a_text_is_decoded_and_anything_else_is_as_written() {
    #[track_caller]
    fn check(json: &str, expected: Option<&str>) {
        assert_eq!(JsonValue::parse(json).unwrap().text().as_deref(), expected);
    }
    check(r#""a\n\u00e4 \ud83e\udd80""#, Some("a\nä 🦀"));
    check(r#""cut \ud83e""#, Some("cut \u{fffd}\u{fffd}\u{fffd}"));
    check("null", None);
    check(" 1.50 ", Some("1.50"));
    check(r#"{ "a" :1}"#, Some(r#"{ "a" :1}"#));
    assert_eq!(JsonValue::parse("[1]").unwrap().scalar(), None);
}

#[test]
fn no_depth_is_too_deep() {
    let text = format!("{{\"a\":{}1{}}}", "[".repeat(100_000), "]".repeat(100_000));
    let value = JsonValue::parse(&text).unwrap();
    assert!(value.at(&Pointer::parse("/a/0/0").unwrap()).is_some());
}
