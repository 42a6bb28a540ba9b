//! Programs that only print.

use super::*;

fn printer(script: &str) -> ChildSpec {
    ChildSpec {
        traffic: Traffic::Output,
        ..shell(script)
    }
}

#[tokio::test]
async fn every_line_is_forwarded_as_printed() {
    let mut child = start(&printer(
        r"printf ' {\r\n\n\377 no text\n'; echo '{}'; printf 'no newline '",
    ))
    .await;
    for line in [&b" {\r"[..], b"", b"\xff no text", b"{}", b"no newline "] {
        assert_eq!(next_message(&mut child).await, line);
    }
    assert_eq!(child.link.from_server.recv().await, None);
    let end = end_of(&mut child).await;
    assert!(
        matches!(end, LinkEnd::Exited(status) if status.success()),
        "{end}"
    );
}

#[tokio::test]
async fn stdin_is_closed_and_it_continues() {
    let script = "cat; echo read; exec 3<&0 0<&-; [ -c /dev/fd/3 ] && echo device";
    let mut child = start(&printer(script)).await;
    assert_eq!(next_message(&mut child).await, &b"read"[..]);
    assert_eq!(next_message(&mut child).await, &b"device"[..]);
    assert_eq!(child.link.from_server.recv().await, None);
    assert!(child.link.to_server.is_closed());
}

#[tokio::test]
async fn dropped_senders_do_not_end_it() {
    let directory = tempfile::tempdir().unwrap();
    let go = directory.path().join("go");
    let mut spec = printer(r#"until [ -e "$0" ]; do sleep 0.01; done; echo done"#);
    spec.arguments.push(go.to_str().unwrap().to_owned());
    let child = start(&spec).await;
    let mut link = child.link;
    drop(link.to_server);
    std::fs::write(&go, "").unwrap();
    let said = tokio::time::timeout(PATIENCE, link.from_server.recv());
    assert_eq!(said.await.unwrap().unwrap(), &b"done"[..]);
}

#[tokio::test]
async fn it_may_continue_after_closing_stdout() {
    // Longer than the gateway waits for the exit of a server.
    let mut child = start(&printer("echo said; exec >&-; sleep 2; exit 5")).await;
    assert_eq!(next_message(&mut child).await, &b"said"[..]);
    let LinkEnd::Exited(status) = end_of(&mut child).await else {
        panic!("it did not end by itself");
    };
    assert_eq!(status.code(), Some(5));
}

#[tokio::test]
async fn its_stderr_is_complete_when_it_is_gone() {
    for _ in 0..10 {
        let child = start(&printer("echo no such session >&2; exit 1")).await;
        let gone = child.link.gone.clone();
        tokio::time::timeout(PATIENCE, gone.cancelled())
            .await
            .unwrap();
        assert_eq!(child.stderr.lines(), ["no such session"]);
    }
}
