//! The list is one of distinct calls, compiles, and leaves out what it must.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test fails by panicking"
)]

use std::collections::BTreeSet;

use super::calls::{ANY, GROUPS, MODES, OLDER, OLDER_MODES, PROCESSES, SOME};
use super::*;

#[test]
fn no_call_is_listed_twice() {
    let mut seen = BTreeSet::new();
    let lists = [ANY, OLDER, GROUPS, PROCESSES, MODES, OLDER_MODES];
    for (name, number) in lists.into_iter().flatten() {
        assert!(seen.insert(*number), "{name} is listed twice");
    }
    for allowed in SOME {
        assert!(
            !seen.contains(&allowed.call.1),
            "{} is allowed with any argument as well",
            allowed.call.0
        );
    }
}

#[test]
fn what_reaches_outside_is_not_listed() {
    let listed: BTreeSet<i64> = ANY
        .iter()
        .chain(OLDER)
        .chain(GROUPS)
        .map(|call| call.1)
        .collect();
    for number in [
        libc::SYS_socket,
        libc::SYS_connect,
        libc::SYS_bind,
        libc::SYS_clone3,
        libc::SYS_unshare,
        libc::SYS_setns,
        libc::SYS_mount,
        libc::SYS_ptrace,
        libc::SYS_process_vm_readv,
        libc::SYS_memfd_create,
        libc::SYS_symlinkat,
        libc::SYS_mknodat,
        libc::SYS_setxattr,
        libc::SYS_io_uring_setup,
        libc::SYS_bpf,
        libc::SYS_keyctl,
        libc::SYS_userfaultfd,
        libc::SYS_inotify_init1,
        libc::SYS_seccomp,
    ] {
        assert!(!listed.contains(&number), "system call {number} is allowed");
    }
}

#[test]
fn a_compiled_filter_survives_being_written_down() {
    for tier in [Tier::Strict, Tier::Degraded] {
        for connections in [Connections::Refused, Connections::Allowed] {
            let program = compile(tier, connections).unwrap();
            assert!(program.len() < INSTRUCTIONS_MAX);
            let bytes = filter(tier, connections).unwrap();
            assert_eq!(from_bytes(&bytes).unwrap(), program);
        }
    }
}

#[test]
fn the_weaker_tier_allows_less() {
    let rules = |tier| rules(tier, Connections::Refused).unwrap();
    let (strict, degraded) = (rules(Tier::Strict), rules(Tier::Degraded));
    assert!(degraded.keys().all(|number| strict.contains_key(number)));
    let lists = [GROUPS, PROCESSES, MODES, OLDER_MODES];
    for (name, number) in lists.into_iter().flatten() {
        assert!(!degraded.contains_key(number), "{name} is allowed");
    }
}

#[test]
fn a_filter_that_was_cut_short_is_refused() {
    let bytes = filter(Tier::Strict, Connections::Refused).unwrap();
    assert!(from_bytes(bytes.get(..bytes.len() - 1).unwrap()).is_none());
    assert!(from_bytes(&[]).is_none());
}

#[test]
fn connections_add_three_calls_and_nothing_that_listens() {
    let (without, with) = (
        rules(Tier::Strict, Connections::Refused).unwrap(),
        rules(Tier::Strict, Connections::Allowed).unwrap(),
    );
    let added: Vec<i64> = with
        .keys()
        .filter(|number| !without.contains_key(number))
        .copied()
        .collect();
    let mut expected = [libc::SYS_socket, libc::SYS_connect, libc::SYS_setsockopt];
    expected.sort_unstable();
    assert_eq!(added, expected);
    // Each of them together, or any descriptor could be a socket of any kind.
    assert!(
        with.get(&libc::SYS_socket)
            .is_some_and(|rules| rules.len() == 2)
    );
}
