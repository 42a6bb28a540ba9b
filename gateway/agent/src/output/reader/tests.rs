//! Outputs as agents print them, and malformed ones.

#![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

use proptest::prelude::*;

use super::super::progress::PROGRESS_BYTES_MAX;
use super::*;
use mooring_settings::Pointer;

fn rules(form: OutputForm) -> OutputRules {
    let pointer = |text: &str| Some(Pointer::parse(text).unwrap());
    let condition = |text: &str| vec![Condition::parse(text).unwrap()];
    OutputRules {
        form,
        session_pointer: pointer("/session"),
        result_pointer: pointer("/result"),
        result_where: condition("/type=result"),
        results: Results::Last,
        error_pointer: pointer("/is_error"),
        progress_pointer: pointer("/message/content/0/text"),
        progress_where: condition("/type=assistant"),
    }
}

/// What is found in the lines, and the progress texts.
fn read(rules: OutputRules, result_bytes_max: usize, output: &[u8]) -> (Findings, Vec<String>) {
    let mut reader = OutputReader::new(Arc::new(rules), result_bytes_max);
    let lines = output.split(|byte| *byte == b'\n');
    let progress = lines.filter_map(|line| reader.line(line)).collect();
    (reader.finish(), progress)
}

fn found(rules: OutputRules, output: &str) -> Findings {
    read(rules, 100, output.as_bytes()).0
}

fn result(text: &str) -> Findings {
    Findings {
        result: Some(text.to_owned()),
        ..Findings::default()
    }
}

#[test]
fn a_stream_of_values_is_read_line_by_line() {
    let output = r#"
warning: something {"session": "none"}
{"type":"system","session":"first"}
{"type":"assistant","session":"second","message":{"content":[{"type":"text","text":"I\nlook"}]}}
{"type":"assistant","message":{"content":[{"type":"tool_use"}]}}
{"type":"user","message":{"content":[{"text":"not shown"}]}}
{"type":"result","is_error":false,"result":"done","session":"third"}
{"type":"broken"
"#;
    let (findings, progress) = read(rules(OutputForm::JsonLines), 100, output.as_bytes());
    let expected = Findings {
        session: Some("third".into()),
        ..result("done")
    };
    assert_eq!(findings, expected);
    assert_eq!(progress, ["I look"]);
}

#[test]
fn a_document_may_be_written_over_several_lines() {
    let output = "Loaded credentials.\r\n{\n  \"type\": \"result\",\n  \"result\": \"done\",\n  \"session\": 17,\n  \"is_error\": \"yes\"\n}\n";
    let expected = Findings {
        session: Some("17".into()),
        says_error: true,
        error: Some("yes".into()),
        ..result("done")
    };
    assert_eq!(found(rules(OutputForm::Json), output), expected);
    assert_eq!(
        found(rules(OutputForm::Json), "no document"),
        Findings::default()
    );
}

#[test]
fn plain_text_is_the_result() {
    let text = || rules(OutputForm::Text);
    assert_eq!(
        found(text(), "\r\n one\r\n\r\n{\"session\":\"none\"}\n\n"),
        result(" one\n\n{\"session\":\"none\"}")
    );
    assert_eq!(found(text(), "\n \n"), result(""));
    let (findings, _) = read(text(), 100, b"a\xff\nb");
    assert_eq!(findings, result("a\u{fffd}\nb"));
    let (findings, _) = read(text(), 4, "äöü".as_bytes());
    let expected = Findings {
        is_cut: true,
        ..result("äö")
    };
    assert_eq!(findings, expected);
}

#[test]
fn several_results_are_joined_where_the_rules_say_so() {
    let output = r#"{"type":"result","result":"one"}
{"type":"other","result":"no"}
{"type":"result","result":""}
{"type":"result","result":null}
{"type":"result","result":{"two": 2}}"#;
    let last = rules(OutputForm::JsonLines);
    let joined = OutputRules {
        results: Results::Joined,
        ..last.clone()
    };
    assert_eq!(found(last, output), result("{\"two\": 2}"));
    assert_eq!(found(joined.clone(), output), result("one\n\n{\"two\": 2}"));
    let (findings, _) = read(joined, 8, output.as_bytes());
    let expected = Findings {
        is_cut: true,
        ..result("one\n\n{\"t")
    };
    assert_eq!(findings, expected);
}

#[test]
fn only_the_last_result_says_whether_it_is_cut() {
    let output = r#"{"type":"result","result":"much too long"}
{"type":"result","result":"short"}"#;
    let (findings, _) = read(rules(OutputForm::JsonLines), 5, output.as_bytes());
    assert_eq!(findings, result("short"));
}

#[test]
fn the_last_word_about_errors_counts() {
    #[track_caller]
    fn check(output: &str, says_error: bool, error: Option<&str>) {
        let found = found(rules(OutputForm::JsonLines), output);
        assert_eq!(found.says_error, says_error);
        assert_eq!(found.error.as_deref(), error);
    }
    check("{}", false, None);
    check(r#"{"is_error":null}"#, false, None);
    let licence = r#"{"message":"no licence"}"#;
    check(&format!("{{\"is_error\":{licence}}}"), true, Some(licence));
    check(r#"{"is_error":"no licence"}"#, true, Some("no licence"));
    check(
        "{\"is_error\":\"no\"}\n{\"is_error\":false}\n{}",
        false,
        None,
    );
    check("{\"is_error\":false}\n{\"is_error\":true}\n{}", true, None);
}

#[test]
fn an_id_that_could_not_be_kept_is_none() {
    let longest = "x".repeat(UPSTREAM_SESSION_BYTES_MAX);
    let values = [
        String::new(),
        "a b".into(),
        "ä".into(),
        format!("{longest}x"),
    ];
    for value in values {
        let output = format!("{{\"session\":\"good\"}}\n{{\"session\":\"{value}\"}}");
        let findings = found(rules(OutputForm::JsonLines), &output);
        assert_eq!(findings.session.as_deref(), Some("good"));
    }
    let findings = found(
        rules(OutputForm::Json),
        &format!("{{\"session\":\"{longest}\"}}"),
    );
    assert_eq!(findings.session, Some(longest));
    let findings = found(rules(OutputForm::Json), r#"{"session":["a"]}"#);
    assert_eq!(findings.session, None);
}

/// Pieces of outputs, whole and broken.
fn piece() -> impl Strategy<Value = Vec<u8>> {
    let known = prop::sample::select(vec![
        r#"{"type":"result","result":"äöü 🦀","session":"s1"}"#,
        r#"{"type":"assistant","message":{"content":[{"text":"\u0007 ok "}]}}"#,
        r#"{"type":"result","result":"\ud800","is_error":1}"#,
        r#"{"a":["#,
        "\n",
        "\r\n",
        "{",
        "[",
        "]}",
        "\"",
        "\\u00",
    ]);
    prop_oneof![
        4 => known.prop_map(|text| text.as_bytes().to_vec()),
        1 => prop::collection::vec(any::<u8>(), 0..40),
    ]
}

proptest! {
    #[test]
    fn any_output_is_read_and_little_is_kept(
        pieces in prop::collection::vec(piece(), 0..30),
        form in prop::sample::select(vec![OutputForm::Json, OutputForm::JsonLines, OutputForm::Text]),
        results in prop::sample::select(vec![Results::Last, Results::Joined]),
        result_bytes_max in 0_usize..40,
    ) {
        let rules = OutputRules { results, ..rules(form) };
        let (findings, progress) = read(rules, result_bytes_max, &pieces.concat());
        prop_assert!(findings.result.unwrap_or_default().len() <= result_bytes_max);
        prop_assert!(findings.session.is_none_or(|session| session == "s1"));
        for text in progress {
            prop_assert!(text.len() <= PROGRESS_BYTES_MAX && !text.is_empty());
            prop_assert!(!text.contains(char::is_control));
        }
    }

    #[test]
    fn results_that_fit_are_whole(text in ".{0,40}") {
        let output = serde_json::json!({"type": "result", "result": text}).to_string();
        for form in [OutputForm::Json, OutputForm::JsonLines] {
            let findings = found(OutputRules { result_where: Vec::new(), ..rules(form) }, &output);
            let is_cut = text.len() > 100;
            prop_assert_eq!(findings.is_cut, is_cut);
            if !is_cut {
                prop_assert_eq!(findings.result.as_deref(), Some(text.as_str()));
            }
        }
    }
}
