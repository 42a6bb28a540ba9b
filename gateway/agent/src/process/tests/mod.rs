//! Runs of real programs, and what is left of them.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "tests fail by panicking"
)]

mod ends;

use super::*;
use mooring_secrets::digest;
use mooring_settings::{OutputForm, Pointer, Results};
use mooring_test_support::processes::{self, PATIENCE};
use mooring_upstream::stdio::StartFailure;
use mooring_upstream::stdio::{
    ChildLimits, Environment, Launcher, ProcessLimits, Traffic, supervisor,
};

#[test]
#[ignore = "started by other tests, as a supervisor"]
fn the_supervisor() {
    assert!(supervisor::is_supervisor());
    let _ = supervisor::supervise();
}

/// Children whose supervisors are this test binary, started again for the ignored test above.
fn children() -> Children {
    let arguments = processes::arguments("process::tests::the_supervisor");
    Children::new(100, Launcher { arguments })
}

fn label() -> Label {
    Label {
        server: "tested".into(),
        session: "01234567".into(),
    }
}

/// A limit that is over soon.
const SHORT: Duration = Duration::from_millis(50);

fn rules(form: OutputForm) -> Arc<OutputRules> {
    let pointer = |text: &str| Some(Pointer::parse(text).unwrap());
    Arc::new(OutputRules {
        form,
        session_pointer: pointer("/session"),
        result_pointer: pointer("/result"),
        result_where: Vec::new(),
        results: Results::Last,
        error_pointer: pointer("/error"),
        progress_pointer: pointer("/does"),
        progress_where: Vec::new(),
    })
}

fn program(program: &str, arguments: &[&str]) -> RunSpec {
    RunSpec {
        child: ChildSpec {
            program: program.into(),
            arguments: arguments.iter().copied().map(str::to_owned).collect(),
            directory: Some(std::env::temp_dir()),
            environment: Environment::default(),
            traffic: Traffic::Output,
            limits: ChildLimits {
                process: ProcessLimits::default(),
                message_bytes_max: 1 << 20,
                messages_waiting_max: 2,
                start_within: PATIENCE,
                stop_grace: Duration::ZERO,
                terminate_grace: SHORT,
            },
        },
        time_limit: PATIENCE,
        output_bytes_max: 1 << 20,
        result_bytes_max: 1 << 20,
        unknown_session: vec!["No conversation".into(), "unknown session".into()],
    }
}

fn shell(script: &str) -> RunSpec {
    program("/bin/sh", &["-c", script])
}

async fn ran(spec: &RunSpec, form: OutputForm) -> CompletedRun {
    let stop = CancellationToken::new();
    let children = children();
    let ran = run(&children, spec, label(), rules(form), drop, stop);
    tokio::time::timeout(2 * PATIENCE, ran)
        .await
        .unwrap()
        .unwrap()
}

async fn result_of(spec: &RunSpec) -> String {
    let ran = ran(spec, OutputForm::Text).await;
    assert!(ran.ending.is_success(), "{ran:?}");
    ran.findings.result.unwrap()
}

#[tokio::test]
async fn standard_input_is_at_its_end_at_once() {
    let spec = shell("cat; read line || echo nothing to read");
    assert_eq!(result_of(&spec).await, "nothing to read");
}

#[tokio::test]
async fn a_prompt_arrives_as_one_argument_byte_for_byte() {
    let longest = "x".repeat(PROMPT_BYTES_MAX);
    for prompt in [
        "two\nlines \"and\" 'quotes' $(id) `id` $HOME ; & | > \\ * {session} ä\u{1f980}\t\u{1b}",
        "--flag",
        "",
        &longest,
    ] {
        let script = "import hashlib, os, sys
print(*(hashlib.sha256(os.fsencode(text)).hexdigest() for text in sys.argv[1:]))";
        let said = result_of(&program("python3", &["-c", script, prompt, "next"])).await;
        let expected = [prompt, "next"].map(|text| digest::hex(text.as_bytes()));
        assert_eq!(said, expected.join(" "));
    }
}

#[tokio::test]
async fn it_starts_in_its_directory_with_its_environment() {
    let directory = tempfile::tempdir().unwrap();
    let mut spec = shell("pwd -P; echo $GIVEN");
    let path = directory.path().canonicalize().unwrap();
    let expected = format!("{}\na b", path.display());
    spec.child.directory = Some(path);
    let given = ("GIVEN".into(), "a  b".into());
    spec.child.environment.set.push(given);
    assert_eq!(result_of(&spec).await, expected);
}

#[tokio::test]
async fn what_it_prints_in_pieces_is_found_and_progress_comes_before_its_end() {
    let directory = tempfile::tempdir().unwrap();
    let seen = directory.path().join("seen");
    let mut spec = shell(
        r#"echo warning; printf '{"session":"s'; printf '1"}\n\n\377\n{"does":"looks"}\n'
until [ -e "$0" ]; do sleep 0.01; done
printf '{"result":"äö'; printf 'ü"}'"#,
    );
    spec.child.arguments.push(seen.to_str().unwrap().to_owned());
    let mut progress = Vec::new();
    let on_progress = |text| {
        progress.push(text);
        std::fs::write(&seen, "").unwrap();
    };
    let stop = CancellationToken::new();
    let form = rules(OutputForm::JsonLines);
    let ran = run(&children(), &spec, label(), form, on_progress, stop)
        .await
        .unwrap();
    assert!(ran.ending.is_success(), "{ran:?}");
    assert_eq!(ran.findings.session.as_deref(), Some("s1"));
    assert_eq!(ran.findings.result.as_deref(), Some("äöü"));
    assert_eq!(progress, ["looks"]);
}

#[tokio::test]
async fn how_it_ended_is_told() {
    for (script, code, said) in [
        ("exit 0", Some(0), "exit status: 0"),
        ("exit 3", Some(3), "exit status: 3"),
        ("kill -9 $$", None, "signal: 9 (SIGKILL)"),
    ] {
        let ran = ran(&shell(script), OutputForm::Text).await;
        let said = said.to_owned();
        assert_eq!(ran.ending, ProcessExit::Exited { code, said });
        assert_eq!(ran.ending.is_success(), code == Some(0));
    }
}

#[tokio::test]
async fn a_session_that_it_does_not_know_is_told_on_either_stream() {
    for (script, expected) in [
        ("echo 'No conversation found with ID: 1' >&2; exit 1", true),
        ("echo '{\"error\":\"unknown session 1\"}'; exit 1", true),
        ("echo 'unknown'; echo 'session' >&2; exit 1", false),
    ] {
        let ran = ran(&shell(script), OutputForm::JsonLines).await;
        assert_eq!(ran.says_unknown_session, expected, "{script}");
    }
}

#[tokio::test]
async fn its_last_words_are_kept() {
    let ran = ran(&shell("seq 100 >&2; exit 1"), OutputForm::Text).await;
    assert_eq!(ran.stderr.len(), 20);
    assert_eq!(ran.stderr[19], "100");
}

#[tokio::test]
async fn a_program_that_is_not_there_is_not_run() {
    let spec = program("no-such-agent", &[]);
    let stop = CancellationToken::new();
    let children = children();
    let form = rules(OutputForm::Text);
    let refused = run(&children, &spec, label(), form, drop, stop).await;
    assert!(matches!(
        refused,
        Err(StartError::Failed(StartFailure::NotFound { .. }))
    ));
}
