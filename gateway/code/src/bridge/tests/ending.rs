//! The end of a program, of a run, and of half of a socket.

use super::*;

/// 95: what is open is cancelled, and what comes after goes nowhere.
#[tokio::test]
async fn the_end_of_the_run_cancels_what_is_open() {
    let (mut program, bridge, tools) = bridge();
    for id in 1..=6 {
        program.send(&call(id, "wait", json!({}))).await;
    }
    tools.have_begun(4).await;
    let served = bridge.end().await;
    assert_eq!(served.calls, 4);
    assert_eq!(tools.running.load(Ordering::SeqCst), 0);
    let message = framed(&serde_json::to_vec(&call(9, "echo", json!({}))).unwrap());
    assert!(program.0.write_all(&message).await.is_err());
    assert_eq!(program.answer().await, None);
    assert_eq!(tools.begun.load(Ordering::SeqCst), 4);
}

#[tokio::test]
async fn a_bridge_that_is_dropped_ends() {
    let (mut program, bridge, tools) = bridge();
    program.send(&call(1, "wait", json!({}))).await;
    tools.have_begun(1).await;
    drop(bridge);
    assert_eq!(program.answer().await, None);
}

/// 97: who says that nothing more comes still hears what it asked for.
#[tokio::test]
async fn half_a_socket_is_enough_for_answers() {
    let (mut program, bridge, tools) = bridge();
    program.send(&call(1, "wait", json!({}))).await;
    program.send(&call(2, "echo", json!({}))).await;
    program.0.shutdown().await.unwrap();
    assert_eq!(program.answer().await.unwrap()["id"], 2);
    tools.ends.add_permits(1);
    assert_eq!(program.answer().await.unwrap()["id"], 1);
    assert_eq!(program.answer().await, None);
    let served = bridge.end().await;
    assert_eq!((served.calls, served.violations), (2, vec![]));
}

#[tokio::test]
async fn the_end_within_a_frame_is_noted() {
    for sent in [1, 4, 20] {
        let (mut program, bridge, _) = bridge();
        program.is_fine().await;
        let message = framed(&serde_json::to_vec(&call(1, "echo", json!({}))).unwrap());
        program.send_bytes(&message[..sent]).await;
        program.0.shutdown().await.unwrap();
        assert_eq!(program.answer().await, None);
        let served = bridge.end().await;
        assert_eq!(served.violations, [Violation::CutShort { bytes: sent }]);
    }
}

#[tokio::test]
async fn a_program_that_is_gone_leaves_nothing_running() {
    let (mut program, bridge, tools) = bridge();
    for id in 1..=3 {
        program.send(&call(id, "wait", json!({}))).await;
    }
    tools.have_begun(3).await;
    drop(program);
    tools.ends.add_permits(1);
    let served = bridge.end().await;
    assert_eq!((served.calls, served.violations), (3, vec![]));
    assert_eq!(tools.running.load(Ordering::SeqCst), 0);
}
