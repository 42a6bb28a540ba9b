//! How children end, by themselves and on request.

use std::os::unix::process::ExitStatusExt as _;
use std::process::ExitStatus;

use super::*;

fn exited(code: i32) -> ExitStatus {
    ExitStatus::from_raw(code << 8)
}

#[tokio::test]
async fn an_exit_status_is_reported() {
    for (script, expected) in [
        ("exit 3", exited(3)),
        ("kill -9 $$", ExitStatus::from_raw(9)),
    ] {
        let mut child = start(&shell(script)).await;
        assert_eq!(end_of(&mut child).await, LinkEnd::Exited(expected));
        let gone = child.link.gone.clone();
        tokio::time::timeout(PATIENCE, gone.cancelled())
            .await
            .unwrap();
    }
}

#[tokio::test]
async fn messages_before_the_exit_are_delivered() {
    let mut spec = shell(r#"for id in $(seq 100); do echo "{\"id\":$id}"; done"#);
    spec.limits.messages_waiting_max = 1;
    let mut child = start(&spec).await;
    end_of(&mut child).await;
    for id in 1..=100 {
        assert_eq!(next_message(&mut child).await, format!("{{\"id\":{id}}}"));
    }
    assert_eq!(child.link.from_server.recv().await, None);
}

#[tokio::test]
async fn a_server_that_closes_stdout_ends() {
    let mut child = start(&hurried(shell("exec >&-; cat >/dev/null"))).await;
    assert_eq!(child.link.from_server.recv().await, None);
    let end = end_of(&mut child).await;
    assert!(matches!(end, LinkEnd::Broken(_)), "{end}");
    tokio::time::timeout(PATIENCE, child.link.gone.cancelled())
        .await
        .unwrap();
}

#[tokio::test]
async fn a_stopped_child_may_end_by_itself() {
    let directory = tempfile::tempdir().unwrap();
    let last = directory.path().join("last");
    let mut spec = shell(r#"while read line; do :; done; echo done >"$0""#);
    spec.arguments.push(last.to_str().unwrap().to_owned());
    let mut child = start(&spec).await;
    drop(child.link.stop);
    tokio::time::timeout(PATIENCE, child.link.gone.cancelled())
        .await
        .unwrap();
    assert!(exists(&last));
    let end = child
        .link
        .end
        .wait_for(Option::is_some)
        .await
        .unwrap()
        .clone();
    assert_eq!(end, Some(LinkEnd::Closed));
}

#[tokio::test]
async fn a_child_that_stays_gets_sigterm() {
    let directory = tempfile::tempdir().unwrap();
    let asked = directory.path().join("asked");
    let mut spec =
        shell(r#"trap 'echo asked >"$0"; exit 0' TERM; echo '{}'; while :; do sleep 0.01; done"#);
    spec.arguments.push(asked.to_str().unwrap().to_owned());
    spec.limits.stop_grace = SHORT;
    let mut child = start(&spec).await;
    next_message(&mut child).await;
    stop(child).await;
    assert!(exists(&asked));
}

#[tokio::test]
async fn a_child_that_ignores_sigterm_is_killed() {
    let script = "import signal, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
print('{}', flush=True)
while True: time.sleep(1000)";
    let mut child = start(&hurried(python(script))).await;
    next_message(&mut child).await;
    let pid = child.pid;
    stop(child).await;
    assert!(!is_alive(pid));
}

#[tokio::test]
async fn a_daemon_ends_with_its_child() {
    let mut child = start(&hurried(python(WITH_DAEMON))).await;
    let daemon = next_number(&mut child, "daemon").await;
    assert!(is_alive(daemon));
    let pid = child.pid;
    stop(child).await;
    assert!(!is_alive(pid) && !is_alive(daemon));
}

#[tokio::test]
async fn a_daemon_ends_when_its_child_exits() {
    let mut child = start(&hurried(python(
        &WITH_DAEMON.replace("for line in", "exit(7)\nfor line in"),
    )))
    .await;
    let daemon = next_number(&mut child, "daemon").await;
    assert_eq!(end_of(&mut child).await, LinkEnd::Exited(exited(7)));
    until_dead(&[daemon]).await;
}

#[tokio::test]
async fn fifty_children_start_and_end_at_once() {
    let children = children();
    let starting = (0..50).map(|_| {
        let children = children.clone();
        tokio::spawn(async move { children.start(&program("cat", &[]), label()).await.unwrap() })
    });
    let starting: Vec<_> = starting.collect();
    let mut started = Vec::new();
    for child in starting {
        started.push(child.await.unwrap());
    }
    assert_eq!(children.running(), 50);
    for child in &mut started {
        let message = Bytes::from(format!("{{\"pid\":{}}}", child.pid));
        child.link.to_server.send(message.clone()).await.unwrap();
        assert_eq!(next_message(child).await, message);
    }
    let mut pids: Vec<i32> = Vec::new();
    for child in &started {
        pids.push(child.pid);
        pids.extend(supervisors_of(child));
    }
    let stopping: Vec<_> = started
        .into_iter()
        .map(|child| tokio::spawn(stop(child)))
        .collect();
    for stopped in stopping {
        stopped.await.unwrap();
    }
    tokio::time::timeout(PATIENCE, children.all_gone())
        .await
        .unwrap();
    assert_eq!(children.running(), 0);
    until_dead(&pids).await;
}
