//! Which limit is used for memory, and that none overflows.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use super::*;

const LIMITS: WireLimits = WireLimits {
    cpu_seconds: 3,
    memory_bytes: 256 * 1024 * 1024,
    file_bytes: 10 * 1024 * 1024,
    upper_bytes: 1,
    upper_inodes: 1,
    temporary_bytes: 1,
    processes: 32,
};

fn soft(entries: &[Entry], resource: Resource) -> Option<u64> {
    entries
        .iter()
        .find(|entry| entry.0 == resource)
        .map(|entry| entry.1)
}

#[test]
fn python_is_limited_by_its_address_space() {
    let entries = table(
        &WireRuntime::Python {
            binary: "/usr/bin/python3".into(),
        },
        &LIMITS,
    );
    assert_eq!(
        soft(&entries, Resource::As),
        Some(LIMITS.memory_bytes + BASE_BYTES)
    );
    assert_eq!(soft(&entries, Resource::Data), None);
}

#[test]
fn deno_is_limited_by_its_data_on_top_of_an_idle_one() {
    let runtime = WireRuntime::Deno {
        binary: "/opt/deno".into(),
        data_bytes: 600,
    };
    let entries = table(&runtime, &LIMITS);
    assert_eq!(
        soft(&entries, Resource::Data),
        Some(LIMITS.memory_bytes + 600)
    );
    assert_eq!(soft(&entries, Resource::As), None);
}

#[test]
fn processor_time_warns_before_it_kills_and_is_never_zero() {
    let limits = WireLimits {
        cpu_seconds: 0,
        ..LIMITS
    };
    let entries = table(
        &WireRuntime::Python {
            binary: "/usr/bin/python3".into(),
        },
        &limits,
    );
    let (_, soft, hard) = *entries
        .iter()
        .find(|entry| entry.0 == Resource::Cpu)
        .unwrap();
    assert_eq!((soft, hard), (1, 2));
}

#[test]
fn the_largest_numbers_do_not_overflow() {
    let limits = WireLimits {
        cpu_seconds: u64::MAX,
        memory_bytes: u64::MAX,
        processes: u32::MAX,
        ..LIMITS
    };
    for runtime in [
        WireRuntime::Python {
            binary: "/usr/bin/python3".into(),
        },
        WireRuntime::Deno {
            binary: "/opt/deno".into(),
            data_bytes: u64::MAX,
        },
    ] {
        assert!(
            table(&runtime, &limits)
                .iter()
                .all(|(_, soft, hard)| soft <= hard)
        );
    }
}
