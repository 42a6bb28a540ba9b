//! What a command template makes of a prompt, a session and a folder, and which commands are none.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use super::*;

fn words(words: &[&str]) -> Vec<String> {
    words.iter().map(|word| (*word).to_owned()).collect()
}

fn template(command: &[&str], resume: &[&str]) -> Result<CommandTemplate, TemplateError> {
    CommandTemplate::parse(&words(command), &words(resume))
}

#[track_caller]
fn check(command: &[&str], resume: &[&str], session: Option<&str>, expected: &[&str]) {
    let template = template(command, resume).unwrap();
    let arguments = template.arguments("do it", session, "/work");
    assert_eq!(arguments, expected);
}

#[test]
fn the_resume_arguments_follow_at_the_end_where_nothing_says_where_they_stand() {
    let command = ["claude", "-p", "{prompt}", "--output-format", "json"];
    let resume = ["--resume", "{session}"];
    let fresh = ["claude", "-p", "do it", "--output-format", "json"];
    check(&command, &resume, None, &fresh);
    let resumed = [&fresh[..], &["--resume", "s-1"]].concat();
    check(&command, &resume, Some("s-1"), &resumed);
}

#[test]
fn the_resume_arguments_stand_where_the_command_says() {
    let command = ["codex", "exec", "{resume}", "--", "{prompt}"];
    let resume = ["resume", "{session}"];
    check(&command, &resume, None, &["codex", "exec", "--", "do it"]);
    check(
        &command,
        &resume,
        Some("s-1"),
        &["codex", "exec", "resume", "s-1", "--", "do it"],
    );
}

#[test]
fn without_resume_arguments_every_run_is_fresh() {
    let command = ["agent", "{resume}", "{prompt}"];
    check(&command, &[], Some("s-1"), &["agent", "do it"]);
    assert!(!template(&command, &[]).unwrap().can_resume());
    assert!(template(&command, &["{session}"]).unwrap().can_resume());
}

#[test]
fn placeholders_may_be_a_part_of_an_argument_and_stand_several_times() {
    check(
        &[
            "agent",
            "--cd={workFolder}",
            "--prompt={prompt}",
            "{prompt}{prompt}",
        ],
        &["--resume={session}@{workFolder}", "{prompt}"],
        Some("s-1"),
        &[
            "agent",
            "--cd=/work",
            "--prompt=do it",
            "do itdo it",
            "--resume=s-1@/work",
            "do it",
        ],
    );
}

#[test]
fn a_placeholder_in_a_value_stays_text() {
    let template = template(&["agent", "{prompt}", "--cd={workFolder}"], &["{session}"]).unwrap();
    let arguments = template.arguments(
        "{session} {resume} {workFolder}",
        Some("{prompt}"),
        "/{prompt}",
    );
    assert_eq!(
        arguments,
        [
            "agent",
            "{session} {resume} {workFolder}",
            "--cd=/{prompt}",
            "{prompt}"
        ]
    );
}

#[test]
fn values_stay_one_argument_whatever_they_hold() {
    let part = template(&["agent", "--prompt={prompt}"], &[]).unwrap();
    let whole = template(&["agent", "{prompt}"], &[]).unwrap();
    for prompt in ["", " ", "-rf /", "a b\n\"c\" 'd' $(e) `f`", "é\u{2028}漢"] {
        let expected = format!("--prompt={prompt}");
        assert_eq!(part.arguments(prompt, None, "/work"), ["agent", &expected]);
        assert_eq!(whole.arguments(prompt, None, "/work"), ["agent", prompt]);
    }
}

#[test]
fn other_braces_are_text() {
    let command = [
        "agent",
        "{prompt}",
        "{",
        "}",
        "{}",
        "{{prompt}}",
        "{Prompt}",
        "{ prompt }",
        "{workfolder}",
        "{\"a\": {\"b\": \"é{\"}}",
        "",
    ];
    let expected = [
        "agent",
        "do it",
        "{",
        "}",
        "{}",
        "{do it}",
        "{Prompt}",
        "{ prompt }",
        "{workfolder}",
        "{\"a\": {\"b\": \"é{\"}}",
        "",
    ];
    check(&command, &[], None, &expected);
}

#[test]
fn bad_commands_are_refused() {
    #[track_caller]
    fn check(command: &[&str], resume: &[&str], expected: TemplateError) {
        assert_eq!(template(command, resume), Err(expected));
        let is_about_resume = !resume.is_empty();
        assert_eq!(expected.is_about_resume(), is_about_resume, "{expected}");
    }
    check(&[], &[], TemplateError::NoProgram);
    check(&["", "{prompt}"], &[], TemplateError::NoProgram);
    check(
        &["/bin/{session}", "{prompt}"],
        &[],
        TemplateError::PlaceholderInProgram("{session}"),
    );
    check(&["agent"], &[], TemplateError::NoPrompt);
    check(&["agent", "prompt"], &[], TemplateError::NoPrompt);
    check(
        &["agent", "{prompt}", "--session={session}"],
        &[],
        TemplateError::SessionInCommand,
    );
    check(
        &["agent", "{prompt}", "a{resume}"],
        &[],
        TemplateError::ResumeWithinArgument,
    );
    check(
        &["agent", "{resume}", "{prompt}", "{resume}"],
        &[],
        TemplateError::ResumeTwice,
    );
    check(
        &["agent", "{prompt}"],
        &["--resume"],
        TemplateError::NoSession,
    );
    check(
        &["agent", "{prompt}"],
        &["{session}", "{resume}"],
        TemplateError::ResumeInResume,
    );
}

#[test]
fn arguments_are_not_shown() {
    let template = template(&["agent", "--key=s3cret", "{prompt}"], &["s3cret{session}"]).unwrap();
    let shown = format!("{template:?}");
    assert!(
        shown.contains("agent") && !shown.contains("s3cret"),
        "{shown}"
    );
}
