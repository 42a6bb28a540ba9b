//! 32 to 35, 43, 47 to 49, 53, 55: code that wants more than its share.

use std::time::Duration;

use mooring_sandbox::{Limits, RunEnd, StopReason};

use crate::arena::{Arena, limits};
use crate::attack::{Attack, attack, check_python_within};
use crate::outside::Control;
use crate::who::everybody;

const MIB: u64 = 1 << 20;

/// What a limit answers to the program itself, which goes on.
const BOMBS: &[Attack] = &[
    attack(
        34,
        "200 processes",
        r#"
import signal
children = []
try:
    for _ in range(200):
        child = os.fork()
        if child == 0:
            signal.pause()
        children.append(child)
finally:
    for child in children:
        os.kill(child, signal.SIGKILL)
    for child in children:
        os.waitpid(child, 0)"#,
    ),
    attack(
        35,
        "200 threads",
        r#"
import threading
threading.stack_size(65536)
over = threading.Event()
threads = []
try:
    for _ in range(200):
        one = threading.Thread(target=over.wait)
        one.start()
        threads.append(one)
except RuntimeError as error:
    raise OSError(errno.EAGAIN, str(error))
finally:
    over.set()
    for one in threads:
        one.join()"#,
    ),
    attack(
        61,
        "200 zombies",
        r#"
children = []
try:
    for _ in range(200):
        child = os.fork()
        if child == 0:
            os._exit(0)
        children.append(child)
finally:
    for child in children:
        os.waitpid(child, 0)"#,
    ),
    attack(
        43,
        "a file of 2 MB",
        r#"
try:
    with open(SCRATCH + "/big", "wb") as file:
        for _ in range(32):
            file.write(b"x" * 65536)
finally:
    os.remove(SCRATCH + "/big")"#,
    ),
    attack(
        43,
        "a sparse file of 1 GB",
        r#"
with open(SCRATCH + "/sparse", "wb") as file:
    os.ftruncate(file.fileno(), 1 << 30)"#,
    ),
    attack(
        43,
        "10 MB set aside",
        r#"
with open(SCRATCH + "/aside", "wb") as file:
    os.posix_fallocate(file.fileno(), 0, 10 << 20)"#,
    ),
    attack(
        46,
        "a file in /var/tmp",
        r#"
open("/var/tmp/abuse-mark", "wb").write(b"x" * 100)
os.remove("/var/tmp/abuse-mark")"#,
    ),
    attack(
        47,
        "2,000 descriptors",
        r#"
import resource
_, most = resource.getrlimit(resource.RLIMIT_NOFILE)
resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
opened = []
try:
    for _ in range(2000):
        opened.append(os.dup(1))
finally:
    for one in opened:
        os.close(one)"#,
    ),
    attack(48, "inotify", "return reach(294, 0)"),
    attack(
        49,
        "a pipe of 1 MB",
        r#"
import fcntl
out, into = os.pipe()
fcntl.fcntl(into, 1031, 1 << 20)"#,
    ),
    attack(
        49,
        "a lease on a file",
        r#"
import fcntl
with open(SCRATCH + "/leased", "w"):
    pass
with open(SCRATCH + "/leased") as file:
    fcntl.fcntl(file, 1024, fcntl.F_RDLCK)
os.remove(SCRATCH + "/leased")"#,
    ),
    attack(
        48,
        "a watch on a directory",
        r#"
import fcntl
fcntl.fcntl(os.open(".", os.O_RDONLY), 1026, 2)"#,
    ),
    attack(
        38,
        "memory behind a descriptor",
        r#"return os.memfd_create("abuse-mark")"#,
    ),
    attack(
        53,
        "a core dump",
        r#"
import resource
_, most = resource.getrlimit(resource.RLIMIT_CORE)
if most == 0:
    raise PermissionError(errno.EPERM, "none")
return most"#,
    ),
    attack(
        55,
        "larger files",
        r#"
import resource
try:
    resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
except ValueError as error:
    raise PermissionError(errno.EPERM, str(error))"#,
    ),
    attack(
        55,
        "more processor time",
        r#"
import resource
try:
    resource.setrlimit(resource.RLIMIT_CPU, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
except ValueError as error:
    raise PermissionError(errno.EPERM, str(error))"#,
    ),
    attack(55, "locked memory", "return reach(151, 1)"),
];

#[test]
fn bombs_are_refused() {
    everybody("resources::bombs_are_refused", |arena| {
        // Without a control group, each process counts the pages that it shares with the one that forked it.
        let within = Limits {
            memory_bytes: 1024 * MIB,
            ..limits()
        };
        check_python_within(arena, Control::Plain, &[], BOMBS, within);
    });
}

/// 32: sleeping does not help.
#[test]
fn the_wall_time_ends_a_sleep() {
    everybody("resources::the_wall_time_ends_a_sleep", |arena| {
        let source = "import time; time.sleep(1.5); print('done')";
        assert_eq!(arena.python_outside(source, Control::Plain), "done\n");
        let run = arena.python_within(
            source,
            Limits {
                wall_time: Duration::from_millis(400),
                ..limits()
            },
        );
        assert_eq!(
            (run.ended, run.stdout.as_str()),
            (RunEnd::Stopped(StopReason::WallTime), "")
        );
        arena.is_fine();
    });
}

/// 33: processor time is that of all processes together, and the limit of each one is less than what they use.
#[test]
fn the_processor_time_of_all_processes_is_bounded() {
    const SPIN: &str = "
import os
children = []
for _ in range(4):
    child = os.fork()
    if child == 0:
        while sum(os.times()[:2]) < 0.7:
            pass
        os._exit(0)
    children.append(child)
for child in children:
    os.waitpid(child, 0)
print('done')";
    everybody(
        "resources::the_processor_time_of_all_processes_is_bounded",
        |arena| {
            assert_eq!(arena.python_outside(SPIN, Control::Plain), "done\n");
            let run = arena.python_within(
                SPIN,
                Limits {
                    cpu_time: Duration::from_secs(1),
                    ..limits()
                },
            );
            assert_eq!(
                (run.ended, run.stdout.as_str()),
                (RunEnd::Stopped(StopReason::CpuTime), "")
            );
            arena.is_fine();
        },
    );
}

/// 33: one thread of JavaScript that never yields, in a worker.
#[test]
fn a_spinning_worker_is_stopped() {
    const SPIN: &str = "
const body = 'const start = performance.now(); while (performance.now() - start < LASTS_MS); postMessage(1);';
const worker = new Worker(URL.createObjectURL(new Blob([body])), { type: 'module' });
await new Promise((resolve, reject) => { worker.onmessage = resolve; worker.onerror = reject; });
console.log('done');
Deno.exit(0);";
    everybody("resources::a_spinning_worker_is_stopped", |arena| {
        let spin = |lasts_ms: &str| SPIN.replace("LASTS_MS", lasts_ms);
        assert_eq!(arena.typescript_outside(&spin("100")), "done\n");
        // Each worker reserves as much again as deno itself.
        let within = Limits {
            cpu_time: Duration::from_secs(1),
            memory_bytes: 1024 * MIB,
            ..limits()
        };
        let run = arena.typescript_within(&spin("Infinity"), within);
        assert_eq!(
            (run.ended, run.stdout.as_str()),
            (RunEnd::Stopped(StopReason::CpuTime), ""),
            "{}",
            run.stderr
        );
        arena.is_fine();
    });
}

/// 47, 34, 44: a run that used up everything leaves nothing used up.
#[test]
fn what_a_run_used_up_is_there_again() {
    const ALL: &str = r#"
import os, sys
made = []
try:
    while True:
        made.append(os.dup(1))
except OSError:
    os.close(made.pop())
try:
    while True:
        open(f"file-{len(os.listdir('.'))}", "w").write("x" * 100000)
except OSError:
    pass
try:
    while True:
        if os.fork() == 0:
            import signal
            signal.pause()
except OSError:
    pass
print("used up", flush=True)
os._exit(0)
"#;
    everybody(
        "resources::what_a_run_used_up_is_there_again",
        |arena: &Arena<'_>| {
            for _ in 0..2 {
                let run = arena.python(ALL);
                assert!(
                    !arena.is_strict()
                        || (run.ended == RunEnd::Exited(0) && run.stdout == "used up\n"),
                    "{run:?}"
                );
            }
            arena.is_fine();
        },
    );
}
