//! Each bound, from both of its sides.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test says what it expects by failing"
)]

use super::*;

use std::fs::File;
use std::time::Duration;

use crate::job::{Network, SessionTrees};

fn limits() -> Limits {
    Limits {
        wall_time: Duration::from_secs(30),
        cpu_time: Duration::from_secs(30),
        cpu_percent: 50,
        memory_bytes: 256 * 1024 * 1024,
        file_bytes: 1024,
        disk_bytes: 1024 * 1024,
        inodes: 100,
        processes: 64,
        access: crate::tree::TreeAccess::WHOLE,
        output_bytes: 1024,
    }
}

fn checked(program: Program, limits: Limits) -> Result<(), JobError> {
    let open = || File::open("/").expect("a directory").into();
    let trees = SessionTrees {
        tools: open(),
        skills: open(),
        scratch: open(),
        results: open(),
    };
    Job {
        program,
        trees,
        limits,
        bridge: None,
        network: Network::None,
    }
    .check()
}

fn python(bytes: usize) -> Program {
    Program::Python {
        source: "#".repeat(bytes),
    }
}

fn pipeline(stages: usize, arguments: usize, word: &str) -> Program {
    let arguments = vec![Argument::Literal(word.to_owned()); arguments];
    Program::Pipeline {
        stages: vec![
            Stage {
                tool: "cat".to_owned(),
                arguments
            };
            stages
        ],
    }
}

#[test]
fn programs_have_bounds() {
    let check = |program, expected| assert_eq!(checked(program, limits()), expected);
    check(python(Limits::SOURCE_BYTES_MAX), Ok(()));
    let most = Limits::SOURCE_BYTES_MAX;
    let too_much = |what, amount, most| Err(JobError::TooMuch { what, amount, most });
    check(
        python(most + 1),
        too_much("bytes of source text", most + 1, most),
    );
    check(pipeline(0, 0, ""), Err(JobError::NoStage));
    check(pipeline(16, 1, "x"), Ok(()));
    check(pipeline(17, 1, "x"), too_much("stages", 17, 16));
    check(pipeline(1, 513, ""), too_much("arguments", 513, 512));
    check(pipeline(1, 1, "a\0b"), Err(JobError::NulByte));
    let (long, most) = ("x".repeat(16 * 1024), 16 * 1024);
    check(
        pipeline(1, 1, &long),
        too_much("bytes in its words", most + 3, most),
    );
}

#[test]
fn limits_have_bounds() {
    let refused = |name, limits| match checked(python(1), limits) {
        Err(JobError::Limit(error)) => assert_eq!(error.name, name),
        other => panic!("{name}: {other:?}"),
    };
    refused(
        "wall_time_ms",
        Limits {
            wall_time: Duration::ZERO,
            ..limits()
        },
    );
    refused(
        "wall_time_ms",
        Limits {
            wall_time: Limits::TIME_MAX * 2,
            ..limits()
        },
    );
    refused(
        "cpu_time_ms",
        Limits {
            cpu_time: Duration::ZERO,
            ..limits()
        },
    );
    refused(
        "cpu_percent",
        Limits {
            cpu_percent: 0,
            ..limits()
        },
    );
    refused(
        "cpu_percent",
        Limits {
            cpu_percent: 101,
            ..limits()
        },
    );
    refused(
        "memory_bytes",
        Limits {
            memory_bytes: 1024,
            ..limits()
        },
    );
    refused(
        "file_bytes",
        Limits {
            file_bytes: 0,
            ..limits()
        },
    );
    refused(
        "disk_bytes",
        Limits {
            disk_bytes: 0,
            ..limits()
        },
    );
    refused(
        "inodes",
        Limits {
            inodes: 0,
            ..limits()
        },
    );
    refused(
        "processes",
        Limits {
            processes: 0,
            ..limits()
        },
    );
    refused(
        "output_bytes",
        Limits {
            output_bytes: usize::MAX,
            ..limits()
        },
    );
}
