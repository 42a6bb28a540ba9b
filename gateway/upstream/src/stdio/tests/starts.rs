//! What a child starts with, and why a start fails.

use std::os::unix::fs::PermissionsExt as _;

use super::super::supervisor::session_of;
use super::super::{ProcessLimits, StartError, StartFailure};
use super::*;
use mooring_settings::INHERITED_DEFAULT;

async fn refused(spec: &ChildSpec) -> StartError {
    children().start(spec, label()).await.unwrap_err()
}

#[tokio::test]
async fn the_environment_is_what_was_configured_and_nothing_else() {
    // By default only the variables named by default, whatever this process has.
    let child = start(&program("cat", &[])).await;
    let default = std::fs::read_to_string(format!("/proc/{}/environ", child.pid)).unwrap();
    for variable in default.split_terminator('\0') {
        let (name, _) = variable.split_once('=').unwrap();
        assert!(INHERITED_DEFAULT.contains(&name), "{name}");
    }
    stop(child).await;

    let mut spec = program("cat", &[]);
    spec.environment = Environment {
        inherited: vec!["PATH".into(), "NO_SUCH_VARIABLE".into()],
        set: vec![("SHOWN".into(), "a b=c".into())],
    };
    let child = start(&spec).await;
    let mut variables: Vec<_> = std::fs::read_to_string(format!("/proc/{}/environ", child.pid))
        .unwrap()
        .split_terminator('\0')
        .map(str::to_owned)
        .collect();
    variables.sort();
    let path = format!("PATH={}", std::env::var("PATH").unwrap());
    assert_eq!(variables, [path, "SHOWN=a b=c".to_owned()]);
    // The supervisors have none of the gateway's variables either.
    for supervisor in supervisors_of(&child) {
        let environment = std::fs::read(format!("/proc/{supervisor}/environ")).unwrap();
        assert_eq!(environment, b"");
    }
}

/// Descriptors above the standard ones that this process inherited and passes on.
fn passed_on() -> Vec<String> {
    const CLOSED_ON_EXEC: u32 = 0o2_000_000;
    let mut passed_on = Vec::new();
    for (name, info) in entries("/proc/self/fdinfo") {
        let Ok(info) = std::fs::read_to_string(info) else {
            continue;
        };
        let flags = info.lines().find_map(|line| line.strip_prefix("flags:"));
        let flags = u32::from_str_radix(flags.unwrap().trim(), 8).unwrap();
        if flags & CLOSED_ON_EXEC == 0 && !["0", "1", "2"].contains(&name.as_str()) {
            passed_on.push(name);
        }
    }
    passed_on
}

fn entries(directory: &str) -> Vec<(String, std::path::PathBuf)> {
    std::fs::read_dir(directory)
        .unwrap()
        .map(Result::unwrap)
        .map(|entry| (entry.file_name().into_string().unwrap(), entry.path()))
        .collect()
}

#[tokio::test]
async fn a_child_gets_its_three_descriptors_and_none_of_the_gateways() {
    let mut child = start(&program("cat", &[])).await;
    // When it answers, its libraries are loaded.
    let message = Bytes::from_static(b"{}");
    child.link.to_server.send(message).await.unwrap();
    next_message(&mut child).await;
    let mut expected = passed_on();
    expected.extend(["0", "1", "2"].map(str::to_owned));
    expected.sort();
    let found = entries(&format!("/proc/{}/fd", child.pid));
    let mut found: Vec<_> = found.into_iter().map(|(name, _)| name).collect();
    found.sort();
    assert_eq!(found, expected);
    stop(child).await;
}

#[tokio::test]
async fn a_child_leads_a_group_in_a_session_apart_from_the_gateways() {
    let child = start(&program("cat", &[])).await;
    let pid = rustix::process::Pid::from_raw(child.pid).unwrap();
    assert_eq!(rustix::process::getpgid(Some(pid)).ok(), Some(pid));
    // The guard's session. The gateway's session leader may be outside the pid namespace, as in a container.
    let session = session_of(pid).unwrap();
    assert!(supervisors_of(&child).contains(&session.as_raw_nonzero().get()));
    assert_ne!(Some(session), session_of(rustix::process::getpid()));
    stop(child).await;
}

#[tokio::test]
async fn it_starts_in_its_directory_and_within_its_limits() {
    let directory = tempfile::tempdir().unwrap();
    let mut spec = shell(r#"echo "{\"files\":$(ulimit -n),\"kib\":$(ulimit -v)}"; pwd >here; cat"#);
    spec.directory = Some(directory.path().into());
    spec.limits.process = ProcessLimits {
        open_files: Some(100),
        address_space_bytes: Some(1 << 30),
    };
    let mut child = start(&spec).await;
    assert_eq!(
        next_message(&mut child).await,
        &br#"{"files":100,"kib":1048576}"#[..]
    );
    stop(child).await;
    let here = std::fs::read_to_string(directory.path().join("here")).unwrap();
    assert_eq!(
        Path::new(here.trim()),
        directory.path().canonicalize().unwrap()
    );
}

#[tokio::test]
async fn an_error_names_the_step() {
    let directory = tempfile::tempdir().unwrap();
    let error = refused(&program("mooring-no-such-program", &[])).await;
    assert!(
        matches!(error, StartError::Failed(StartFailure::NotFound { .. })),
        "{error}"
    );

    let file = directory.path().join("server");
    std::fs::write(&file, "#!/bin/sh\n").unwrap();
    std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o644)).unwrap();
    let error = refused(&program(file.to_str().unwrap(), &[])).await;
    assert!(
        matches!(
            error,
            StartError::Failed(StartFailure::NotExecutable { .. })
        ),
        "{error}"
    );

    let mut spec = program("cat", &[]);
    spec.directory = Some(directory.path().join("missing"));
    let error = refused(&spec).await;
    assert!(
        matches!(
            error,
            StartError::Failed(StartFailure::DirectoryMissing { .. })
        ),
        "{error}"
    );
    assert!(!error.for_caller().contains("missing"));

    let error = refused(&program("cat", &["a\0b"])).await;
    assert!(
        matches!(error, StartError::Failed(StartFailure::Start { .. })),
        "{error}"
    );
}

#[tokio::test]
async fn a_supervisor_without_a_report_is_an_error() {
    let launcher = Launcher {
        arguments: arguments("no_such_test"),
    };
    let children = Children::new(1, launcher);
    let error = children
        .start(&program("cat", &[]), label())
        .await
        .unwrap_err();
    assert!(
        matches!(error, StartError::SupervisorLost | StartError::Order(_)),
        "{error}"
    );
    assert_eq!(children.running(), 0);
}

#[tokio::test]
async fn the_child_limit_holds() {
    let children = Children::new(2, launcher());
    let spec = program("cat", &[]);
    let first = children.start(&spec, label()).await.unwrap();
    let _second = children.start(&spec, label()).await.unwrap();
    let error = children.start(&spec, label()).await.unwrap_err();
    assert!(
        matches!(error, StartError::AllInUse { children_max: 2 }),
        "{error}"
    );
    stop(first).await;
    // What could not be started takes no place either.
    let missing = program("mooring-no-such-program", &[]);
    children.start(&missing, label()).await.unwrap_err();
    children.start(&spec, label()).await.unwrap();
}
