//! 56 to 63: processes that mean to outlive their run, to end others, or to hold up whoever waits for them.

use std::io::Read as _;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use mooring_sandbox::{Program, RunEnd, StopHandle, StopReason};

use crate::aftermath::{MARKER, marked_processes, no_process_is_left};
use crate::arena::limits;
use crate::attack::{Attack, attack, check_python, strict_attack};
use crate::driver::{Scene, start};
use crate::outside::Control;
use crate::who::{as_each, everybody};

/// How long something may take that has to happen.
const WAIT: Duration = Duration::from_secs(20);
const POLL: Duration = Duration::from_millis(5);

/// Calls itself by the marker, so that it is found if it lives.
const MARK: &str = "
import ctypes, os, signal, sys, time
ctypes.CDLL(None).prctl(15, b'abuse-mark', 0, 0, 0)
";

/// Signals to what is not its own. `CANARY` is a process of the same user on the host.
const SIGNALS: &[Attack] = &[
    attack(59, "a signal to the gateway", "os.kill(GATEWAY, 0)"),
    attack(
        59,
        "a signal to another process of the user",
        "os.kill(CANARY, 0)",
    ),
    attack(
        59,
        "the end of another process of the user",
        "os.kill(CANARY, 15)",
    ),
    attack(
        59,
        "a queued signal",
        "return reach(129, CANARY, 0, (ctypes.c_int * 32)(0, 0, -1))",
    ),
    attack(
        59,
        "another's priority",
        "os.setpriority(os.PRIO_PROCESS, CANARY2, 10)",
    ),
    attack(
        59,
        "another's limits",
        r#"
import resource
resource.prlimit(CANARY2, resource.RLIMIT_NOFILE)"#,
    ),
    attack(
        59,
        "another's processors",
        "os.sched_setaffinity(CANARY2, [0])",
    ),
    strict_attack(
        59,
        "a descriptor of another",
        "return os.pidfd_open(CANARY2)",
    ),
    attack(
        59,
        "a signal by a descriptor",
        "import signal; signal.pidfd_send_signal(os.pidfd_open(CANARY2), 15)",
    ),
];

#[test]
fn others_get_no_signal() {
    everybody("processes::others_get_no_signal", |arena| {
        let (first, second) = (canary(), canary());
        let names = [
            ("CANARY", first.0.id().to_string()),
            ("CANARY2", second.0.id().to_string()),
        ];
        check_python(arena, Control::Plain, &names, SIGNALS);
    });
}

/// 59: a signal to everybody stays inside.
#[test]
fn a_signal_to_everybody_stays_inside() {
    everybody("processes::a_signal_to_everybody_stays_inside", |arena| {
        let mut canary = canary();
        let source = format!(
            "{MARK}
for target in (-1, 1, os.getppid(), 0):
    for number in (signal.SIGKILL, signal.SIGTERM):
        if os.fork() == 0:
            try:
                os.kill(target, number)
            except OSError:
                pass
            os._exit(0)
        time.sleep(0.02)
os.kill(-1, signal.SIGKILL)
"
        );
        let run = arena.python(&source);
        assert!(!matches!(run.ended, RunEnd::Stopped(_)), "{run:?}");
        assert!(
            canary.0.try_wait().unwrap().is_none(),
            "another process of the user was killed"
        );
        arena.is_fine();
    });
}

/// 56, 57, 58: whatever they do, the processes of a run end with it, and nobody waits for them.
#[test]
fn no_process_outlives_its_run() {
    const DAEMONS: [(u16, &str); 4] = [
        (
            56,
            "if os.fork() == 0:\n    os.setsid()\n    if os.fork() == 0:\n        time.sleep(60)\n    os._exit(0)",
        ),
        (
            57,
            "for n in range(1, 65):\n    try:\n        signal.signal(n, signal.SIG_IGN)\n    except (OSError, ValueError):\n        pass\nif os.fork() == 0:\n    time.sleep(60)",
        ),
        (
            58,
            "if os.fork() == 0:\n    os.write(1, b'begun\\n')\n    time.sleep(60)\ntime.sleep(0.1)",
        ),
        (
            56,
            "for _ in range(40):\n    if os.fork() == 0:\n        try:\n            os.setsid()\n        except OSError:\n            pass\n        signal.signal(15, signal.SIG_IGN)\n        time.sleep(60)\n        os._exit(0)",
        ),
    ];
    everybody("processes::no_process_outlives_its_run", |arena| {
        for (number, body) in DAEMONS {
            let source = format!("{MARK}\n{body}\nprint('over', flush=True)\nos._exit(0)\n");
            daemon_outlives_its_parent_outside(number, &source);
            let run = arena.python(&source);
            assert_eq!(run.ended, RunEnd::Exited(0), "{number}: {run:?}");
            assert!(run.stdout.ends_with("over\n"), "{number}: {run:?}");
            assert!(
                run.usage.wall_time < limits().wall_time,
                "{number}: {run:?}"
            );
        }
        arena.is_fine();
    });
}

/// The control: without a sandbox, the same program leaves a process, which is then ended here.
fn daemon_outlives_its_parent_outside(number: u16, source: &str) {
    let mut command = Command::new("/usr/bin/python3");
    command
        .args(["-I", "-S", "-c", source])
        .stdin(Stdio::null())
        .stdout(Stdio::null());
    assert!(
        command.status().unwrap().success(),
        "the control of {number}"
    );
    assert!(
        marked_processes() > 0,
        "the control of {number} has to leave a process"
    );
    until("the control has ended", || {
        for process in marked() {
            let _ = rustix::process::kill_process(process, rustix::process::Signal::KILL);
        }
        marked_processes() == 0
    });
}

fn marked() -> Vec<rustix::process::Pid> {
    let is_marked = |pid: &str| {
        std::fs::read_to_string(format!("/proc/{pid}/comm"))
            .is_ok_and(|name| name.trim_end() == MARKER)
    };
    std::fs::read_dir("/proc")
        .unwrap()
        .flatten()
        .map(|entry| entry.file_name().to_string_lossy().into_owned())
        .filter(|pid| is_marked(pid))
        .filter_map(|pid| rustix::process::Pid::from_raw(pid.parse().ok()?))
        .collect()
}

/// 57: neither does it help against the wall time.
#[test]
fn ignoring_signals_does_not_help() {
    everybody("processes::ignoring_signals_does_not_help", |arena| {
        let source = format!(
            "{MARK}
for number in range(1, 65):
    try:
        signal.signal(number, signal.SIG_IGN)
    except (OSError, ValueError):
        pass
print('begun', flush=True)
for _ in range(10):
    if os.fork() == 0:
        break
time.sleep(60)
"
        );
        let run = arena.python_until_its_wall_time(&source);
        assert_eq!(
            (run.ended, run.stdout.as_str()),
            (RunEnd::Stopped(StopReason::WallTime), "begun\n")
        );
        arena.is_fine();
    });
}

/// 63: whoever waits may give up.
#[test]
fn a_run_is_stopped_when_asked() {
    everybody("processes::a_run_is_stopped_when_asked", |arena| {
        let source = format!("{MARK}\nif os.fork() == 0:\n    time.sleep(60)\ntime.sleep(60)\n");
        let stop = StopHandle::new().unwrap();
        let run = thread::scope(|scope| {
            scope.spawn(|| {
                until("the run begins", || marked_processes() > 0);
                stop.ask();
            });
            arena.run(
                Program::Python {
                    source: source.clone(),
                },
                limits(),
                &stop,
            )
        });
        assert_eq!(run.ended, RunEnd::Stopped(StopReason::Asked));
        let run = arena.run(Program::Python { source }, limits(), &stop);
        assert_eq!(
            run.ended,
            RunEnd::Stopped(StopReason::Asked),
            "a stop stays asked for"
        );
        arena.is_fine();
    });
}

/// 62: the gateway is killed in mid-run, and so is the run.
#[test]
fn nothing_survives_the_gateway() {
    as_each("processes::nothing_survives_the_gateway", |planted| {
        for tier in crate::who::TIERS {
            let mut gateway = start(Scene::Endless, tier, planted);
            until("the run begins", || marked_processes() >= 5);
            gateway.kill().unwrap();
            gateway.wait().unwrap();
            no_process_is_left();
        }
    });
}

/// A process of this user that does nothing. Dropping it ends it.
struct Canary(Child);

impl Drop for Canary {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn canary() -> Canary {
    // Signal 15 is ignored, so that a control which sends it does not take the target from the next one.
    let mut child = Command::new("/usr/bin/python3")
        .args(["-I", "-S", "-c", "import signal; signal.signal(15, signal.SIG_IGN); print(1, flush=True); signal.pause()"])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut begun = [0; 1];
    child
        .stdout
        .as_mut()
        .unwrap()
        .read_exact(&mut begun)
        .unwrap();
    Canary(child)
}

/// Waits for something that has to happen.
fn until(what: &str, mut happened: impl FnMut() -> bool) {
    let deadline = Instant::now() + WAIT;
    while !happened() {
        assert!(Instant::now() < deadline, "waited in vain: {what}");
        thread::sleep(POLL);
    }
}
