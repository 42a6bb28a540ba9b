//! Whichever process is killed, none is left.

use std::io::{BufRead as _, BufReader, Write as _};
use std::process::{Command, Stdio};

use rustix::process::Signal;

use super::*;

/// A child with a daemon, both of which only SIGKILL ends; all processes that must be dead in the end.
async fn with_daemon() -> (Child, Vec<i32>) {
    let mut child = start(&hurried(python(&format!("{WITH_DAEMON}{AND_STAYS}")))).await;
    let daemon = next_number(&mut child, "daemon").await;
    let mut all = vec![child.pid, daemon];
    all.extend(supervisors_of(&child));
    (child, all)
}

#[tokio::test]
async fn a_killed_keeper_leaves_nothing() {
    let (mut child, all) = with_daemon().await;
    let [_, keeper] = supervisors_of(&child);
    kill(keeper, Signal::KILL);
    let end = end_of(&mut child).await;
    assert!(matches!(end, LinkEnd::Broken(_)), "{end}");
    tokio::time::timeout(PATIENCE, child.link.gone.cancelled())
        .await
        .unwrap();
    until_dead(&all).await;
}

#[tokio::test]
async fn a_killed_guard_leaves_nothing() {
    let (mut child, all) = with_daemon().await;
    let [guard, _] = supervisors_of(&child);
    kill(guard, Signal::KILL);
    let end = end_of(&mut child).await;
    assert!(
        matches!(end, LinkEnd::Broken(_) | LinkEnd::Exited(_)),
        "{end}"
    );
    tokio::time::timeout(PATIENCE, child.link.gone.cancelled())
        .await
        .unwrap();
    until_dead(&all).await;
}

#[tokio::test]
async fn without_supervisors_the_gateway_ends_the_child_and_its_descendants() {
    let mut child = start(&shell(
        "setsid sleep 100000 & echo \"{\\\"sleeper\\\":$!}\"; wait",
    ))
    .await;
    let sleeper = next_number(&mut child, "sleeper").await;
    // In its own session, so that signals to the child's group do not reach it.
    let process = rustix::process::Pid::from_raw(sleeper);
    let started = Instant::now();
    while rustix::process::getsid(process).ok() != process {
        assert!(started.elapsed() < PATIENCE);
        tokio::time::sleep(PAUSE).await;
    }
    let supervisors = supervisors_of(&child);
    // Stopped first, so that neither reacts to the other's end.
    for pid in supervisors {
        kill(pid, Signal::STOP);
    }
    for pid in supervisors {
        kill(pid, Signal::KILL);
    }
    let end = end_of(&mut child).await;
    assert!(matches!(end, LinkEnd::Broken(_)), "{end}");
    tokio::time::timeout(PATIENCE, child.link.gone.cancelled())
        .await
        .unwrap();
    until_dead(&[child.pid, sleeper]).await;
}

#[tokio::test]
async fn supervisors_ignore_termination_signals() {
    let (mut child, all) = with_daemon().await;
    for signal in [Signal::TERM, Signal::INT, Signal::HUP] {
        for supervisor in supervisors_of(&child) {
            kill(supervisor, signal);
        }
    }
    child
        .link
        .to_server
        .send(Bytes::from_static(b"{}"))
        .await
        .unwrap();
    assert_eq!(next_message(&mut child).await, &b"{}"[..]);
    stop(child).await;
    until_dead(&all).await;
}

#[tokio::test]
async fn a_killed_gateway_leaves_nothing() {
    let mut gateway = Command::new(std::env::current_exe().unwrap())
        .args(arguments("kills::the_other_gateway"))
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let output = BufReader::new(gateway.stdout.take().unwrap());
    let all: Vec<i32> = output
        .lines()
        .map(Result::unwrap)
        .find_map(|line| line.split_once("@ ").map(|(_, pids)| pids.to_owned()))
        .expect("it says whom it started")
        .split(' ')
        .map(|pid| pid.parse().unwrap())
        .collect();
    assert_eq!(all.len(), 3 * 4);
    assert!(all.iter().all(|pid| is_alive(*pid)));
    gateway.kill().unwrap();
    gateway.wait().unwrap();
    until_dead(&all).await;
}

/// A gateway with three children, which prints their process ids and keeps running.
#[tokio::test]
#[ignore = "started by another test, as a process of its own"]
async fn the_other_gateway() {
    let mut kept = Vec::new();
    let mut all = Vec::new();
    for _ in 0..3 {
        let (child, pids) = with_daemon().await;
        kept.push(child);
        all.extend(pids.iter().map(i32::to_string));
    }
    // The test's name may precede it in the line.
    writeln!(std::io::stdout(), "@ {}", all.join(" ")).unwrap();
    std::future::pending::<()>().await;
}
