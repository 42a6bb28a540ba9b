//! A sandbox with everything planted around it, and runs in it that are looked at from all sides.
//!
//! In the strict tier every run is one in a helper that had waited for it, except in an arena that is made cold.

use std::fs::File;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use mooring_sandbox::{
    HelperStart, Job, Limits, Network, Options, Program, RunEnd, Sandbox, SessionTrees, StopHandle,
    Tier, Usage,
};

use crate::aftermath::Before;
use crate::planted::{Planted, random};
use crate::who::Binaries;

/// One sandbox and what stands around it.
#[derive(Debug)]
pub(crate) struct Arena<'a> {
    pub(crate) planted: &'a Planted,
    pub(crate) binaries: Binaries,
    pub(crate) sandbox: Sandbox,
    /// How many helpers wait for a run, between runs.
    waiting: usize,
}

/// Helpers that wait in an arena of the strict tier.
const WARM_HELPERS: usize = 1;
/// For a helper to be begun.
const WARM_WAIT: Duration = Duration::from_secs(20);

/// What a run came to, its streams as text.
#[derive(Debug)]
pub(crate) struct Run {
    pub(crate) ended: RunEnd,
    pub(crate) stdout: String,
    pub(crate) stdout_written: u64,
    pub(crate) stderr: String,
    pub(crate) stderr_written: u64,
    pub(crate) usage: Usage,
}

/// The limits of an attack that is not about limits: enough for an interpreter, little for a bomb. The wall time is
/// enough beside any other load, and less than the minute that daemons of attacks sleep.
pub(crate) fn limits() -> Limits {
    Limits {
        wall_time: Duration::from_secs(55),
        cpu_time: Duration::from_secs(20),
        cpu_percent: 100,
        memory_bytes: 256 << 20,
        file_bytes: 1 << 20,
        disk_bytes: 8 << 20,
        inodes: 256,
        processes: 64,
        access: mooring_sandbox::tree::TreeAccess::WHOLE,
        output_bytes: 256 << 10,
    }
}

/// The options of this test's sandboxes.
pub(crate) fn options(tier: Tier, binaries: &Binaries) -> Options {
    Options {
        launcher: binaries.launcher.clone(),
        deno: Some(binaries.deno.clone()),
        ..Options::new(tier)
    }
}

impl<'a> Arena<'a> {
    pub(crate) fn new(tier: Tier, planted: &'a Planted) -> Self {
        Self::with_waiting(tier, planted, WARM_HELPERS)
    }

    /// One in which every run begins its own helper.
    pub(crate) fn cold(tier: Tier, planted: &'a Planted) -> Self {
        Self::with_waiting(tier, planted, 0)
    }

    fn with_waiting(tier: Tier, planted: &'a Planted, warm_helpers: usize) -> Self {
        let binaries = Binaries::of_this_process();
        let options = Options {
            warm_helpers,
            ..options(tier, &binaries)
        };
        let sandbox = Sandbox::probe(options).expect("this machine has every wall of the tier");
        Self {
            planted,
            binaries,
            sandbox,
            waiting: if tier == Tier::Strict {
                warm_helpers
            } else {
                0
            },
        }
    }

    /// The processes of helpers that wait, as many as there are to be.
    pub(crate) fn waiting_processes(&self) -> Vec<[i32; 2]> {
        let deadline = Instant::now() + WARM_WAIT;
        loop {
            let waiting = self.sandbox.waiting_processes();
            if waiting.len() == self.waiting {
                return waiting;
            }
            assert!(Instant::now() < deadline, "no helper waits: {waiting:?}");
            thread::sleep(Duration::from_millis(1));
        }
    }

    pub(crate) fn is_strict(&self) -> bool {
        self.sandbox.tier() == Tier::Strict
    }

    /// Runs Python under the usual limits.
    pub(crate) fn python(&self, source: &str) -> Run {
        self.python_within(source, limits())
    }

    pub(crate) fn python_within(&self, source: &str, limits: Limits) -> Run {
        self.run(
            Program::Python {
                source: source.to_owned(),
            },
            limits,
            &StopHandle::new().unwrap(),
        )
    }

    pub(crate) fn typescript_within(&self, source: &str, limits: Limits) -> Run {
        self.run(
            Program::TypeScript {
                source: source.to_owned(),
            },
            limits,
            &StopHandle::new().unwrap(),
        )
    }

    /// Runs Python that says `begun` and then goes on until its wall time ends it, which is longer where the machine is
    /// too busy for it to begin.
    pub(crate) fn python_until_its_wall_time(&self, source: &str) -> Run {
        let within = |wall_time| {
            self.python_within(
                source,
                Limits {
                    wall_time,
                    ..limits()
                },
            )
        };
        [Duration::from_millis(800), Duration::from_secs(6)]
            .into_iter()
            .map(within)
            .find(|run| !run.stdout.is_empty())
            .unwrap_or_else(|| within(limits().wall_time))
    }

    /// Runs a program with a bridge where nobody answers, and sees to it that it read nothing of others and left nothing.
    pub(crate) fn run(&self, program: Program, limits: Limits, stop: &StopHandle) -> Run {
        let before = Before::look(self);
        let (host, bridge) = UnixStream::pair().unwrap();
        let run = self.run_connected(program, limits, stop, bridge.into(), Network::None);
        drop(host);
        before.compare(self);
        run
    }

    /// Runs a program with this bridge and network, and sees to it that it read nothing of others.
    pub(crate) fn run_connected(
        &self,
        program: Program,
        limits: Limits,
        stop: &StopHandle,
        bridge: OwnedFd,
        network: Network,
    ) -> Run {
        let job = Job {
            program,
            trees: trees(self.planted),
            limits,
            bridge: Some(bridge),
            network,
        };
        let is_warm = !self.waiting_processes().is_empty();
        let outcome = self.sandbox.run(job, stop).expect("the walls stand");
        assert_eq!(outcome.start == HelperStart::Warm, is_warm);
        let run = Run {
            ended: outcome.ended.clone(),
            stdout: String::from_utf8_lossy(&outcome.stdout.bytes).into_owned(),
            stdout_written: outcome.stdout.written_bytes,
            stderr: String::from_utf8_lossy(&outcome.stderr.bytes).into_owned(),
            stderr_written: outcome.stderr.written_bytes,
            usage: outcome.usage,
        };
        drop(outcome);
        for said in [&run.stdout, &run.stderr] {
            assert!(
                !said.contains(self.planted.secret()),
                "a secret was read: {said}"
            );
        }
        run
    }

    /// The next run works.
    pub(crate) fn is_fine(&self) {
        let number = random();
        let run = self.python(&format!("print('fine', {number})"));
        assert_eq!(run.ended, RunEnd::Exited(0), "{run:?}");
        assert_eq!(run.stdout, format!("fine {number}\n"));
    }
}

/// The trees of the planted session.
pub(crate) fn trees(planted: &Planted) -> SessionTrees {
    let open = |path: &Path| OwnedFd::from(File::open(path).unwrap());
    SessionTrees {
        tools: open(&planted.tools()),
        skills: open(&planted.skills()),
        scratch: open(&planted.scratch()),
        results: open(&planted.results()),
    }
}
