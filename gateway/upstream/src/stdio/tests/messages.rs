//! Messages to a child and from it.

use super::*;

#[tokio::test]
async fn messages_are_delivered_in_order() {
    let mut child = start(&program("cat", &[])).await;
    for id in 0..200 {
        let message = Bytes::from(format!("{{\"jsonrpc\":\"2.0\",\"id\":{id}}}"));
        child.link.to_server.send(message.clone()).await.unwrap();
        assert_eq!(next_message(&mut child).await, message);
    }
    let pid = child.pid;
    stop(child).await;
    assert!(!is_alive(pid));
}

#[tokio::test]
async fn a_message_of_a_mebibyte_goes_both_ways() {
    let mut child = start(&program("cat", &[])).await;
    let message = Bytes::from(format!("{{\"text\":\"{}\"}}", "x".repeat(1 << 20)));
    for _ in 0..3 {
        child.link.to_server.send(message.clone()).await.unwrap();
        assert_eq!(next_message(&mut child).await, message);
    }
}

#[tokio::test]
async fn a_message_is_one_line() {
    let mut child = start(&program("cat", &[])).await;
    let message = Bytes::from_static(b"{\n  \"id\": 1\r\n}");
    child.link.to_server.send(message).await.unwrap();
    assert_eq!(next_message(&mut child).await, &b"{   \"id\": 1  }"[..]);
}

#[tokio::test]
async fn a_banner_is_dropped() {
    let script = r#"echo 'Server 1.0'; echo; echo '[ready]'; echo ' {"id":1} '; printf '{"id":2}'"#;
    let mut child = start(&shell(script)).await;
    assert_eq!(next_message(&mut child).await, &b"{\"id\":1}"[..]);
    assert_eq!(next_message(&mut child).await, &b"{\"id\":2}"[..]);
    assert_eq!(child.link.from_server.recv().await, None);
}

#[tokio::test]
async fn a_message_that_is_too_long_is_skipped_and_its_call_gets_an_error() {
    let script = r#"echo '{"id":1}'; echo '{"id":2,"result":"xxxxxxxxxx"}'; echo '{"result":"xxxxxxxxxx","id":3}'; echo 'no message, and too long'; echo '{"id":4}'; cat"#;
    let mut spec = shell(script);
    spec.limits.message_bytes_max = 20;
    let mut child = start(&spec).await;
    assert_eq!(next_message(&mut child).await, &b"{\"id\":1}"[..]);
    for id in [2, 3] {
        let error = String::from_utf8_lossy(&next_message(&mut child).await).into_owned();
        let expected = format!(r#"{{"jsonrpc":"2.0","id":{id},"error":{{"code":-32011,"#);
        assert!(error.starts_with(&expected), "{error}");
        assert!(error.contains("it is 30 bytes long (limit 20)"), "{error}");
    }
    assert_eq!(next_message(&mut child).await, &b"{\"id\":4}"[..]);
    stop(child).await;
}

#[tokio::test]
async fn a_server_that_never_reads_blocks_only_itself() {
    let children = children();
    let never_reads = program("sleep", &["100000"]);
    let sleeper = children.start(&never_reads, label()).await.unwrap();
    let mut other = children.start(&program("cat", &[]), label()).await.unwrap();
    let message = Bytes::from(format!("\"{}\"", "x".repeat(100_000)));
    // Until the pipe and the queue are full.
    let full = async {
        loop {
            let sent = sleeper.link.to_server.send(message.clone());
            if tokio::time::timeout(Duration::from_secs(1), sent)
                .await
                .is_err()
            {
                return;
            }
        }
    };
    tokio::time::timeout(PATIENCE, full).await.unwrap();
    other
        .link
        .to_server
        .send(Bytes::from_static(b"{}"))
        .await
        .unwrap();
    assert_eq!(next_message(&mut other).await, &b"{}"[..]);
    let pid = sleeper.pid;
    drop(sleeper.link.stop);
    // It neither reads nor notices that its stdin is closed.
    kill(pid, rustix::process::Signal::TERM);
    tokio::time::timeout(PATIENCE, sleeper.link.gone.cancelled())
        .await
        .unwrap();
    assert!(!is_alive(pid));
}

#[tokio::test]
async fn a_server_with_unread_messages_can_be_ended() {
    let child = start(&python("while True: print('{\"id\":1}', flush=True)")).await;
    let pid = child.pid;
    kill(pid, rustix::process::Signal::TERM);
    let gone = child.link.gone.clone();
    tokio::time::timeout(PATIENCE, gone.cancelled())
        .await
        .unwrap();
    drop(child);
    assert!(!is_alive(pid));
}

#[tokio::test]
async fn the_last_stderr_lines_are_kept() {
    let mut child = start(&shell("echo starting >&2; echo 'no licence' >&2; exit 1")).await;
    end_of(&mut child).await;
    let started = Instant::now();
    while child.stderr.lines().len() < 2 {
        assert!(started.elapsed() < PATIENCE);
        tokio::time::sleep(PAUSE).await;
    }
    assert_eq!(child.stderr.lines(), ["starting", "no licence"]);
}
