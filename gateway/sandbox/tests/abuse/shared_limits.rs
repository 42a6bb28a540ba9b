//! 111: limits that the kernel counts per host user, which a run may share with the gateway: it uses up none of them.
//!
//! Each attack wants more than its share and then holds what it got. While it runs, and when it is over, another
//! process of the gateway's user goes on to use everything of that kind.

use std::io::{BufRead as _, BufReader, Write as _};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use mooring_sandbox::{Limits, RunEnd, StopReason};

use crate::arena::{Arena, limits};
use crate::outside::Control;
use crate::who::everybody;

/// A process of the gateway's user uses a little of everything that is counted per user.
const GATEWAY: &str = r#"
import ctypes, mmap, os, select, socket, sys, threading
libc = ctypes.CDLL(None, use_errno=True)
def call(number, *arguments):
    result = libc.syscall(number, *arguments)
    if result < 0:
        raise OSError(ctypes.get_errno(), f"system call {number}")
    return result
def use():
    # Epoll watches, and what accepts connections with them.
    listener = socket.create_server(("127.0.0.1", 0))
    client = socket.create_connection(listener.getsockname())
    accepted, _ = listener.accept()
    watch = select.epoll()
    watch.register(accepted, select.EPOLLIN)
    client.send(b"x")
    assert watch.poll(5)
    # Pipes.
    out, into = os.pipe()
    assert os.write(into, b"x" * 4096) == 4096
    os.close(out)
    os.close(into)
    # Descriptors in flight.
    one, other = socket.socketpair()
    socket.send_fds(one, [b"x"], [0])
    _, received, _, _ = socket.recv_fds(other, 1, 1)
    os.close(received[0])
    # inotify instances and watches.
    instance = call(294, 0)
    call(254, instance, b"/", 0x100)
    os.close(instance)
    # Kernel keys.
    call(248, b"user", b"mooring-test", b"x", 1, -2)
    # POSIX message queues.
    name = b"mooring-test-%d" % os.getpid()
    os.close(call(240, name, 0o302, 0o600, 0))
    call(241, name)
    # Pending signals and timers, which count together.
    timer = ctypes.c_int()
    call(222, 1, 0, ctypes.byref(timer))
    call(226, timer)
    # Locked memory.
    locked = mmap.mmap(-1, 4096)
    address = ctypes.c_void_p(ctypes.addressof(ctypes.c_char.from_buffer(locked)))
    call(149, address, 4096)
    call(150, address, 4096)
    # Threads and processes.
    thread = threading.Thread(target=lambda: None)
    thread.start()
    thread.join()
    child = os.fork()
    if child == 0:
        # User namespaces.
        os._exit(libc.unshare(0x10000000))
    assert os.waitpid(child, 0)[1] == 0
for _ in sys.stdin:
    try:
        use()
        print("works", flush=True)
    except BaseException as error:
        print(repr(error), flush=True)
"#;

/// One attack.
struct Flood {
    name: &'static str,
    source: &'static str,
}

/// How long a flood holds what it got, in seconds: inside until it is stopped, outside until all its processes have it.
const HOLD_S: f32 = 5.0;
const CONTROL_HOLD_S: f32 = 0.5;

/// How often the gateway uses everything while an attack runs: often enough to meet it, and the processors stay free.
const USE_INTERVAL: Duration = Duration::from_millis(20);

/// Those that have to be stopped. `HOLD_S` is set before each.
const STOPPED: &[Flood] = &[
    Flood {
        name: "200,000 epoll watches of 8 processes",
        source: r#"
import os, resource, select, time
most = min(256, resource.getrlimit(resource.RLIMIT_NOFILE)[1])
resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
children = []
for _ in range(8):
    child = os.fork()
    if child == 0:
        # A watch stays with its file: each number that the file had can be watched.
        polls = [select.epoll() for _ in range(40)]
        files = [os.eventfd(0) for _ in range(40)]
        number = os.dup(0)
        for shift in range(16):
            numbers = [os.dup(0) for _ in range(16)] if shift == 0 else numbers
            for file in files:
                os.dup2(file, numbers[shift])
                for poll in polls:
                    poll.register(numbers[shift], 0)
        time.sleep(HOLD_S)
        os._exit(0)
    children.append(child)
print("done" if all(os.waitpid(child, 0)[1] == 0 for child in children) else "failed")"#,
    },
    Flood {
        name: "1,200 pipes of 12 processes",
        source: r#"
import os, time
children = []
for _ in range(12):
    child = os.fork()
    if child == 0:
        pipes = [os.pipe() for _ in range(100)]
        time.sleep(HOLD_S)
        os._exit(0)
    children.append(child)
print("done" if all(os.waitpid(child, 0)[1] == 0 for child in children) else "failed")"#,
    },
    Flood {
        name: "2,400 sockets of 24 processes",
        source: r#"
import os, socket, time
children = []
for _ in range(24):
    child = os.fork()
    if child == 0:
        pairs = [socket.socketpair() for _ in range(50)]
        time.sleep(HOLD_S)
        os._exit(0)
    children.append(child)
print("done" if all(os.waitpid(child, 0)[1] == 0 for child in children) else "failed")"#,
    },
    Flood {
        name: "descriptors that nobody receives",
        source: r#"
import select, socket, time
one, other = socket.socketpair()
poll = select.epoll()
socket.send_fds(one, [b"x"], [poll.fileno()] * 100)
poll.close()
time.sleep(HOLD_S)
print("done")"#,
    },
    Flood {
        name: "pipes of a thread whose process's first thread has ended",
        source: r#"
import ctypes, os, threading, time
libc = ctypes.CDLL(None)
def hold():
    pipes = []
    for _ in range(12):
        if os.fork() == 0:
            pipes = [os.pipe() for _ in range(100)]
            threading.Thread(target=last).start()
            libc.syscall(60, 0)
    time.sleep(HOLD_S)
    print("done", flush=True)
    os._exit(0)
def last():
    time.sleep(HOLD_S)
    os._exit(0)
threading.Thread(target=hold).start()
libc.syscall(60, 0)"#,
    },
];

#[test]
fn what_the_kernel_counts_per_user_is_not_used_up() {
    everybody(
        "shared_limits::what_the_kernel_counts_per_user_is_not_used_up",
        |arena| {
            let mut gateway = Gateway::start();
            for flood in STOPPED {
                let source = |hold_s: f32| format!("HOLD_S = {hold_s}\n{}", flood.source);
                let control = arena.python_outside(&source(CONTROL_HOLD_S), Control::Plain);
                assert!(
                    control.contains("done"),
                    "the control of {} has to work: {control}",
                    flood.name
                );
                let run = gateway.works_during(|| arena.python(&source(HOLD_S)));
                assert_eq!(
                    (run.ended.clone(), run.stdout.as_str()),
                    (RunEnd::Stopped(StopReason::Memory), ""),
                    "{}: {run:?}",
                    flood.name
                );
                gateway.works();
            }
            arena.is_fine();
        },
    );
}

/// What is refused outright, or at a limit of the run's own, and held at that limit for a while.
const HOLD: &str = r#"
import ctypes, os, signal, time
libc = ctypes.CDLL(None, use_errno=True)
def most(number, *arguments):
    for count in range(100_000):
        if libc.syscall(number, *arguments) < 0:
            return count
    return count
timer = ctypes.c_int()
signal.pthread_sigmask(signal.SIG_BLOCK, [40])
print("inotify", most(294, 0))
print("keys", most(248, b"user", b"abuse-mark", b"x", 1, -2))
print("queues", most(240, b"abuse-mark", 0o102, 0o600, 0))
print("timers", most(222, 1, 0, ctypes.byref(timer)))
print("signals", most(129, os.getpid(), 40, ctypes.byref((ctypes.c_int * 32)(40, 0, -1))))
print("locked", most(149, 0, 4096))
print("namespaces", most(272, 0x10000000), flush=True)
time.sleep(1)
"#;

#[test]
fn what_a_run_cannot_have_the_gateway_still_can() {
    everybody(
        "shared_limits::what_a_run_cannot_have_the_gateway_still_can",
        |arena: &Arena<'_>| {
            let mut gateway = Gateway::start();
            let run = gateway.works_during(|| arena.python_within(HOLD, patient()));
            assert_eq!(run.ended, RunEnd::Exited(0), "{run:?}");
            for line in run.stdout.lines() {
                let (kind, count) = line.split_once(' ').unwrap();
                let count: u32 = count.parse().unwrap();
                let allowed = match kind {
                    "timers" | "signals" => 0..=256,
                    _ => 0..=0,
                };
                assert!(allowed.contains(&count), "{line}\n{run:?}");
            }
            assert_eq!(run.stdout.lines().count(), 7, "{run:?}");
            gateway.works();
            arena.is_fine();
        },
    );
}

fn patient() -> Limits {
    Limits {
        wall_time: Duration::from_secs(60),
        ..limits()
    }
}

/// Another process of this user.
struct Gateway {
    process: Child,
    answers: BufReader<ChildStdout>,
}

impl Gateway {
    fn start() -> Self {
        let mut process = Command::new("/usr/bin/python3")
            .args(["-I", "-S", "-c", GATEWAY])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("run python");
        let answers = BufReader::new(process.stdout.take().unwrap());
        let mut gateway = Self { process, answers };
        gateway.works();
        gateway
    }

    /// It can still use everything.
    fn works(&mut self) {
        self.process
            .stdin
            .as_mut()
            .unwrap()
            .write_all(b"\n")
            .unwrap();
        let mut answer = String::new();
        self.answers.read_line(&mut answer).unwrap();
        assert_eq!(answer, "works\n");
    }

    /// What `attack` comes to, while this process goes on using everything.
    fn works_during<T>(&mut self, attack: impl FnOnce() -> T) -> T {
        let is_over = AtomicBool::new(false);
        thread::scope(|scope| {
            let working = scope.spawn(|| {
                while !is_over.load(Ordering::Relaxed) {
                    self.works();
                    thread::sleep(USE_INTERVAL);
                }
            });
            let result = catch_unwind(AssertUnwindSafe(attack));
            is_over.store(true, Ordering::Relaxed);
            working.join().unwrap();
            result.unwrap_or_else(|panic| resume_unwind(panic))
        })
    }
}

impl Drop for Gateway {
    fn drop(&mut self) {
        // It ends when its input does.
        drop(self.process.stdin.take());
        let _ = self.process.wait();
    }
}
