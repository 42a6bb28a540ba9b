//! Programs that ask for too much, or send what nobody asked for.

use std::io::{IoSlice, Read};
use std::mem::MaybeUninit;
use std::os::fd::AsFd;

use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};

use super::*;

#[tokio::test]
async fn calls_beyond_the_most_are_refused_and_noted_once() {
    let (mut program, bridge, tools) = bridge_within(BridgeLimits {
        calls_max: 3,
        ..LIMITS
    });
    for id in 0..50 {
        let answer = program.ask(&call(id, "echo", json!({}))).await;
        let kind = answer["error"]["kind"].as_str();
        assert_eq!(kind, (id >= 3).then_some("limit"), "{answer}");
    }
    assert_eq!(tools.begun.load(Ordering::SeqCst), 3);
    let served = bridge.end().await;
    assert_eq!((served.calls, served.refused), (3, 47));
    assert_eq!(served.violations, [Violation::TooManyCalls { most: 3 }]);
}

#[tokio::test]
async fn a_result_that_is_too_long_is_a_limit() {
    let (mut program, bridge, _) = bridge();
    let most = LIMITS.result_bytes_max;
    // What stands around the text: {"id":1,"result":""}
    let fits = most - 20;
    let answer = program.ask(&call(1, "long", json!({"bytes": fits}))).await;
    assert_eq!(answer["result"].as_str().map(str::len), Some(fits));
    let long = program
        .ask(&call(1, "long", json!({"bytes": fits + 1})))
        .await;
    assert_eq!(long["error"]["kind"], "limit");
    program.is_fine().await;
    bridge.end().await;
}

/// 97: what it does not read takes no more than the places that there are.
#[tokio::test]
async fn a_program_that_reads_nothing_is_read_no_further() {
    let (mut program, bridge, tools) = bridge();
    // More than the socket holds, so that no answer is ever out as a whole.
    let message = serde_json::to_vec(&call(0, "long", json!({"bytes": 250_000}))).unwrap();
    let text = String::from_utf8(message).unwrap();
    for id in 1..50 {
        let message = text.replacen("\"id\":0", &format!("\"id\":{id}"), 1);
        program.send_bytes(&framed(message.as_bytes())).await;
    }
    tools.have_begun(4).await;
    // One byte at a time it gets on.
    let mut one = [0];
    for _ in 0..100 {
        program.0.read_exact(&mut one).await.unwrap();
    }
    let served = bridge.end().await;
    assert_eq!((served.calls, served.violations), (4, vec![]));
}

/// 96: the kernel closes them, because nobody receives them.
#[tokio::test]
async fn descriptors_that_are_sent_along_are_closed_and_noted() {
    let (mut program, bridge, tools) = bridge();
    program.send(&call(1, "wait", json!({}))).await;
    tools.have_begun(1).await;
    let (reader, writer) = rustix::pipe::pipe().unwrap();
    let message = framed(&serde_json::to_vec(&call(2, "echo", json!({}))).unwrap());
    let descriptors = [writer.as_fd(); 8];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(8))];
    let mut ancillary = SendAncillaryBuffer::new(&mut space);
    assert!(ancillary.push(SendAncillaryMessage::ScmRights(&descriptors)));
    let slices = [IoSlice::new(&message)];
    sendmsg(&program.0, &slices, &mut ancillary, SendFlags::empty()).unwrap();
    drop(writer);
    tools.ends.add_permits(1);
    assert_eq!(program.answer().await.unwrap()["id"], 1);
    assert_eq!(program.answer().await, None);
    // The end of the pipe comes when the last of them is closed.
    let read = std::fs::File::from(reader).read_to_end(&mut Vec::new());
    assert_eq!(read.unwrap(), 0);
    let served = bridge.end().await;
    assert_eq!(
        (served.calls, served.violations),
        (1, vec![Violation::Descriptors])
    );
}

#[tokio::test]
async fn a_bridge_without_a_place_has_one() {
    let (mut program, bridge, _) = bridge_within(BridgeLimits {
        at_once_max: 0,
        ..LIMITS
    });
    program.is_fine().await;
    bridge.end().await;
}
