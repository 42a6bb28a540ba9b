//! What comes out of a run, and what is refused before it.

use std::fs;
use std::os::fd::AsFd;
use std::time::Duration;

use mooring_sandbox::{
    Argument, JobError, Limits, Options, Program, RunEnd, RunError, Sandbox, Stage, StopHandle,
    Tier,
};

use crate::support::{
    Ground, Turn, WAIT, limits, options, python, read_upper, run_python, sandbox, text,
};

const MIB: u64 = 1024 * 1024;

#[test]
fn a_program_ends_by_itself() {
    let _turn = Turn::take();
    let outcome = run_python(
        "import sys\nprint('out')\nprint('err', file=sys.stderr)\nsys.exit(7)",
        limits(),
    );
    assert_eq!(outcome.ended, RunEnd::Exited(7));
    assert_eq!(text(&outcome.stdout.bytes), "out\n");
    assert_eq!(text(&outcome.stderr.bytes), "err\n");
    assert_eq!(outcome.tier, Tier::Strict);
    assert_eq!(outcome.layers, sandbox().layers());
    let usage = outcome.usage;
    assert!(
        usage.cpu_time > Duration::ZERO && usage.memory_peak_bytes > MIB,
        "{usage:?}"
    );
    assert!(
        usage.start_time > Duration::ZERO && usage.wall_time > Duration::ZERO,
        "{usage:?}"
    );
}

#[test]
fn python_awaits_outside_of_functions_and_its_errors_keep_their_lines() {
    let _turn = Turn::take();
    let awaits = "import asyncio, sys\nasync def double(n):\n    await asyncio.sleep(0)\n    return 2 * n\n\
                  print(await asyncio.gather(double(1), double(2)), __name__, len(sys.argv))\nsys.exit(7)";
    let outcome = run_python(awaits, limits());
    assert_eq!(text(&outcome.stdout.bytes), "[2, 4] __main__ 1\n");
    assert_eq!(outcome.ended, RunEnd::Exited(7));
    for (source, traceback) in [
        (
            "import asyncio\nawait asyncio.sleep(0)\n1 / 0\n",
            "Traceback (most recent call last):\n  File \"/code/main.py\", line 3, in <module>\n    1 / 0\n",
        ),
        (
            "# await\nx = 1\n1 / 0\n",
            "Traceback (most recent call last):\n  File \"/code/main.py\", line 3, in <module>\n    1 / 0\n",
        ),
        (
            "await = 1\n",
            "  File \"/code/main.py\", line 1\n    await = 1\n",
        ),
    ] {
        let outcome = run_python(source, limits());
        assert_eq!(outcome.ended, RunEnd::Exited(1), "{source}");
        let error = text(&outcome.stderr.bytes);
        assert!(error.starts_with(traceback), "{source}: {error}");
    }
    // What a program runs by itself needs no help.
    let runs = "import asyncio\nasync def main():\n    await asyncio.sleep(0)\n    print('ran')\nasyncio.run(main())";
    assert_eq!(text(&run_python(runs, limits()).stdout.bytes), "ran\n");
}

#[test]
fn python_ends_by_exit_and_quit() {
    let _turn = Turn::take();
    for (source, ended) in [
        ("print('a')\nexit(3)\nprint('b')", RunEnd::Exited(3)),
        ("print('a')\nquit()", RunEnd::Exited(0)),
    ] {
        let outcome = run_python(source, limits());
        assert_eq!(outcome.ended, ended, "{}", text(&outcome.stderr.bytes));
        assert_eq!(text(&outcome.stdout.bytes), "a\n");
    }
}

#[test]
fn a_program_aborts() {
    let _turn = Turn::take();
    let outcome = run_python("import os\nos.abort()", limits());
    assert_eq!(
        outcome.ended,
        RunEnd::Signalled(6),
        "{}",
        text(&outcome.stderr.bytes)
    );
}

#[test]
fn a_pipeline_gives_the_last_stages_output() {
    let _turn = Turn::take();
    let ground = Ground::new();
    fs::write(ground.path("scratch").join("a.txt"), "b\na\nb\n").unwrap();
    let stage = |tool: &str, arguments: &[Argument]| Stage {
        tool: tool.to_owned(),
        arguments: arguments.to_vec(),
    };
    let stages = vec![
        stage("cat", &[Argument::Pattern("/scratch/*.txt".to_owned())]),
        stage("sort", &[]),
        stage("uniq", &[Argument::Literal("-c".to_owned())]),
    ];
    let job = ground.job(Program::Pipeline { stages }, limits());
    let outcome = sandbox().run(job, &StopHandle::new().unwrap()).unwrap();
    assert_eq!(
        outcome.ended,
        RunEnd::Exited(0),
        "{}",
        text(&outcome.stderr.bytes)
    );
    assert_eq!(text(&outcome.stdout.bytes), "      1 a\n      2 b\n");
}

#[test]
fn what_a_run_wrote_is_handed_over_and_the_trees_are_untouched() {
    let _turn = Turn::take();
    let ground = Ground::new();
    fs::write(ground.path("scratch").join("old"), "old").unwrap();
    let source = "open('/scratch/new','w').write('new')\nopen('/results/r','w').write('r')\n\
                  open('/scratch/old','a').write('er')";
    let outcome = sandbox()
        .run(
            ground.job(python(source), limits()),
            &StopHandle::new().unwrap(),
        )
        .unwrap();
    assert_eq!(
        outcome.ended,
        RunEnd::Exited(0),
        "{}",
        text(&outcome.stderr.bytes)
    );
    assert_eq!(read_upper(outcome.changes.scratch.as_fd(), "new"), "new");
    assert_eq!(read_upper(outcome.changes.scratch.as_fd(), "old"), "older");
    assert_eq!(read_upper(outcome.changes.results.as_fd(), "r"), "r");
    assert_eq!(
        fs::read_to_string(ground.path("scratch").join("old")).unwrap(),
        "old"
    );
    assert!(!ground.path("scratch").join("new").exists());
}

#[test]
fn both_streams_are_drained_and_bounded() {
    let _turn = Turn::take();
    let source = "import os\nblock = b'x' * 65536\n\
                  for _ in range(512):\n    os.write(1, block)\n    os.write(2, block)";
    let outcome = run_python(source, limits());
    assert_eq!(
        outcome.ended,
        RunEnd::Exited(0),
        "{}",
        text(&outcome.stderr.bytes)
    );
    for output in [&outcome.stdout, &outcome.stderr] {
        assert_eq!(output.bytes.len(), limits().output_bytes);
        assert_eq!(output.written_bytes, 512 * 65536);
        assert!(output.is_truncated());
    }
}

#[test]
fn one_stream_floods_while_the_other_is_idle() {
    let _turn = Turn::take();
    let source =
        "import os\nfor _ in range(256):\n    os.write(2, b'y' * 65536)\nos.write(1, b'done')";
    let outcome = run_python(source, limits());
    assert_eq!(outcome.ended, RunEnd::Exited(0));
    assert_eq!(text(&outcome.stdout.bytes), "done");
    assert_eq!(outcome.stderr.written_bytes, 256 * 65536);
}

#[test]
fn a_child_that_holds_the_stream_holds_nothing_up() {
    let _turn = Turn::take();
    let source =
        "import os, time\nif os.fork() == 0:\n    os.setsid()\n    time.sleep(600)\nprint('out')";
    let outcome = run_python(source, limits());
    assert_eq!(
        outcome.ended,
        RunEnd::Exited(0),
        "{}",
        text(&outcome.stderr.bytes)
    );
    assert_eq!(text(&outcome.stdout.bytes), "out\n");
    assert!(outcome.usage.wall_time < WAIT);
}

#[test]
fn a_job_out_of_bounds_is_refused() {
    let _turn = Turn::take();
    let job = Ground::new().job(
        python(""),
        Limits {
            cpu_percent: 0,
            ..limits()
        },
    );
    let refused = sandbox().run(job, &StopHandle::new().unwrap());
    assert!(
        matches!(refused, Err(RunError::Job(JobError::Limit(_)))),
        "{refused:?}"
    );
    let stages = vec![Stage {
        tool: "sh".to_owned(),
        arguments: Vec::new(),
    }];
    let refused = sandbox().run(
        Ground::new().job(Program::Pipeline { stages }, limits()),
        &StopHandle::new().unwrap(),
    );
    assert!(
        matches!(refused, Err(RunError::ToolUnknown { .. })),
        "{refused:?}"
    );
}

#[test]
fn a_runtime_that_is_missing_is_named() {
    let _turn = Turn::take();
    let sandbox = Sandbox::probe(Options {
        deno: Some("/nonexistent/deno".into()),
        ..options()
    })
    .unwrap();
    let job = Ground::new().job(
        Program::TypeScript {
            source: String::new(),
        },
        limits(),
    );
    let refused = sandbox
        .run(job, &StopHandle::new().unwrap())
        .expect_err("there is no deno there")
        .to_string();
    assert!(
        refused.contains("deno is not installed") && refused.contains("install deno"),
        "{refused}"
    );
}
