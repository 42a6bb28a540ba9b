//! The list is one of distinct calls, compiles, and leaves out what it must.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test fails by panicking"
)]

use std::collections::BTreeSet;

use super::calls::{ANY, GROUPS, MODES, OLDER, OLDER_MODES, PROCESSES, SOME, TOGETHER};
use super::*;

#[test]
fn no_call_is_listed_twice() {
    let mut seen = BTreeSet::new();
    let lists = [ANY, OLDER, GROUPS, PROCESSES, MODES, OLDER_MODES];
    for (name, number) in lists.into_iter().flatten() {
        assert!(seen.insert(*number), "{name} is listed twice");
    }
    for allowed in SOME.iter().chain(TOGETHER.iter().copied().flatten()) {
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

/// What a program answers to a call of this architecture, as the kernel runs it. The instructions are all that this
/// crate and its library use.
fn answer(program: &[sock_filter], architecture: u32, number: u32, argument: u32) -> u32 {
    let (mut position, mut loaded) = (0, 0);
    loop {
        let sock_filter { code, jt, jf, k } = *program.get(position).unwrap();
        position += 1;
        let passed = match code {
            LOAD_WORD => {
                loaded = match k {
                    NUMBER_OFFSET => number,
                    4 => architecture,
                    // The lower and the upper half of each argument.
                    _ if k % 8 == 0 => argument,
                    _ => 0,
                };
                continue;
            }
            SKIP => {
                position += k as usize;
                continue;
            }
            ANSWER => return k,
            SKIP_UNLESS_EQUAL => loaded == k,
            SKIP_UNLESS_AT_LEAST => loaded >= k,
            // `BPF_ALU | BPF_AND | BPF_K`
            0x54 => {
                loaded &= k;
                continue;
            }
            _ => panic!("instruction {code:#x}"),
        };
        position += usize::from(if passed { jt } else { jf });
    }
}

#[test]
fn the_search_answers_as_a_chain_of_all_rules_does() {
    #[cfg(target_arch = "x86_64")]
    let own = 0xC000_003E;
    #[cfg(target_arch = "aarch64")]
    let own = 0xC000_00B7;
    for connections in [Connections::Refused, Connections::Allowed] {
        let rules = rules(Tier::Strict, connections).unwrap();
        // What is reported, the chain of what is allowed refuses.
        let is_reported = |number: u32| {
            let number = i64::from(number);
            !rules.contains_key(&number) && reported_name(number).is_some()
        };
        let (searched, chained) = (
            listed(rules.clone()).unwrap(),
            chain(rules.clone()).unwrap(),
        );
        // Whatever an argument is compared with, and its neighbors.
        let mut arguments: BTreeSet<u32> =
            chained.iter().map(|instruction| instruction.k).collect();
        arguments.extend(
            arguments
                .clone()
                .into_iter()
                .map(|value| value.wrapping_add(1)),
        );
        let (mut allowed, mut refused) = (0, 0);
        for number in (0..=600).chain([0x4000_0000, 0x4000_0001, u32::MAX]) {
            for argument in &arguments {
                let found = answer(&searched, own, number, *argument);
                let expected = match is_reported(number) {
                    true => libc::SECCOMP_RET_USER_NOTIF,
                    false => answer(&chained, own, number, *argument),
                };
                assert_eq!(found, expected, "call {number} with {argument:#x}");
                if found == libc::SECCOMP_RET_ALLOW {
                    allowed += 1;
                } else {
                    refused += 1;
                }
            }
            // i386
            let foreign = answer(&searched, 0x4000_0003, number, 0);
            assert_eq!(foreign, libc::SECCOMP_RET_KILL_PROCESS);
        }
        assert!(allowed > 0 && refused > 0);
    }
}
