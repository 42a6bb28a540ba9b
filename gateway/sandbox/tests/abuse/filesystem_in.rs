//! 1 to 15: what code reaches of the machine's files, and of its own.

use std::fs;
use std::os::fd::{AsRawFd, OwnedFd};

use mooring_sandbox::RunEnd;

use crate::arena::Arena;
use crate::attack::{Attack, attack, check_python, strict_attack};
use crate::outside::Control;
use crate::who::{everybody, everybody_warm_and_cold};

const FILES: &[Attack] = &[
    // First: later attacks leave some of their own open.
    attack(
        13,
        "a descriptor besides the three and the bridge",
        r#"
def is_open(number):
    try:
        return os.fstat(number) is not None
    except OSError:
        return False
found = [number for number in range(4, 4096) if is_open(number)]
if not found:
    raise OSError(errno.EBADF, "none")
return found"#,
    ),
    attack(
        1,
        "the machine's users",
        r#"return open("/etc/passwd").read()"#,
    ),
    attack(2, "a file of another session", "return open(OTHER).read()"),
    attack(
        2,
        "the directory of another session",
        "return os.listdir(os.path.dirname(OTHER))",
    ),
    attack(
        2,
        "the same through a link left by an earlier run",
        r#"return open(SCRATCH + "/link").read()"#,
    ),
    attack(
        2,
        "its own session's host-only file",
        "return open(HOST_ONLY).read()",
    ),
    attack(3, "the gateway's settings", "return open(SETTINGS).read()"),
    attack(
        4,
        "the gateway's environment",
        r#"return open(f"/proc/{GATEWAY}/environ").read()"#,
    ),
    attack(
        4,
        "the first process's environment",
        r#"return open(f"/proc/{PROCESS}/environ").read()"#,
    ),
    attack(
        5,
        "its own environment in /proc",
        r#"return open("/proc/self/environ").read()"#,
    ),
    attack(
        5,
        "an inherited environment",
        r#"
if not any("SECRET" in name for name in os.environ):
    raise PermissionError(errno.EPERM, "no secret")"#,
    ),
    attack(
        6,
        "the first process's memory",
        r#"return os.open(f"/proc/{PROCESS}/mem", os.O_RDWR)"#,
    ),
    attack(
        6,
        "its own memory in /proc",
        r#"return os.open("/proc/self/mem", os.O_RDWR)"#,
    ),
    attack(
        7,
        "mounts in /proc",
        r#"return open("/proc/self/mountinfo").read()"#,
    ),
    attack(7, "statmount", "return reach(457, 0, 0, 0, 0)"),
    attack(7, "listmount", "return reach(458, 0, 0, 0, 0)"),
    attack(
        8,
        "a new file in /tools",
        r#"open(TOOLS + "/abuse-mark", "w").write("x"); os.remove(TOOLS + "/abuse-mark")"#,
    ),
    attack(
        8,
        "a tool's text",
        r#"open(TOOLS + "/stub.py", "a").write("")"#,
    ),
    attack(
        8,
        "a tool cut short",
        r#"os.truncate(TOOLS + "/stub.py", os.stat(TOOLS + "/stub.py").st_size)"#,
    ),
    attack(
        8,
        "a tool's name",
        r#"
os.rename(TOOLS + "/stub.py", TOOLS + "/abuse-mark")
os.rename(TOOLS + "/abuse-mark", TOOLS + "/stub.py")"#,
    ),
    attack(
        8,
        "a tool removed",
        r#"
text = open(TOOLS + "/stub.py").read()
os.remove(TOOLS + "/stub.py")
open(TOOLS + "/stub.py", "w").write(text)"#,
    ),
    strict_attack(
        8,
        "a tool's mode",
        r#"os.chmod(TOOLS + "/stub.py", 0o600); os.chmod(TOOLS + "/stub.py", 0o644)"#,
    ),
    strict_attack(
        8,
        "a tool's times",
        r#"os.utime(TOOLS + "/stub.py", (1, 1))"#,
    ),
    attack(
        2,
        "the mode of another session's file",
        r#"
before = os.stat(OTHER).st_mode & 0o777
os.chmod(OTHER, before ^ 0o100)
after = os.stat(OTHER).st_mode & 0o777
os.chmod(OTHER, before)
if after == before:
    raise PermissionError(errno.EPERM, "unchanged")"#,
    ),
    attack(
        2,
        "the times of another session's file",
        r#"
before = os.stat(OTHER).st_mtime_ns
os.utime(OTHER, ns=(before, before - 1))
after = os.stat(OTHER).st_mtime_ns
os.utime(OTHER, ns=(before, before))
if after == before:
    raise PermissionError(errno.EPERM, "unchanged")"#,
    ),
    attack(
        8,
        "a directory in /tools",
        r#"os.mkdir(TOOLS + "/abuse-mark"); os.rmdir(TOOLS + "/abuse-mark")"#,
    ),
    attack(
        8,
        "a tool under a second name",
        r#"
os.link(TOOLS + "/stub.py", SCRATCH + "/second")
open(SCRATCH + "/second", "a").write("")"#,
    ),
    attack(
        8,
        "a new skill",
        r#"open(SKILLS + "/abuse-mark", "w").write("x"); os.remove(SKILLS + "/abuse-mark")"#,
    ),
    attack(
        8,
        "a file of the system",
        r#"open(SYSTEM + "/abuse-mark", "w").write("x"); os.remove(SYSTEM + "/abuse-mark")"#,
    ),
    attack(
        8,
        "a directory in the root",
        r#"os.mkdir(ROOT + "/abuse-mark"); os.rmdir(ROOT + "/abuse-mark")"#,
    ),
    attack(
        10,
        "out by ..",
        r#"return open("../" * 40 + "etc/passwd").read()"#,
    ),
    attack(
        10,
        "out by .. from /tools",
        r#"return open(TOOLS + "/.." * 40 + "/etc/passwd").read()"#,
    ),
    attack(
        10,
        "out by chdir",
        r#"
def leave():
    os.chdir("../" * 40)
    open("etc/passwd").read()
in_child(leave)"#,
    ),
    attack(
        11,
        "a program that it wrote",
        r##"
with open(SCRATCH + "/program", "w") as program:
    program.write("#!/usr/bin/python3 -IS\n")
os.chmod(SCRATCH + "/program", 0o755)
in_child(lambda: os.execv(SCRATCH + "/program", ["program"]))"##,
    ),
    attack(
        12,
        "a setuid program",
        r#"
out, into = os.pipe()
def become():
    os.dup2(into, 1)
    os.execv(TOOLS + "/as-another", ["id", "-u"])
in_child(become)
os.close(into)
user = os.read(out, 100).decode().strip()
if user != "61235":
    raise PermissionError(errno.EPERM, user)
return user"#,
    ),
    attack(
        14,
        "an inherited descriptor with a high number",
        "return os.pread(1500, 4096, 0)",
    ),
    attack(
        14,
        "an inherited directory",
        r#"return os.open("mooring.toml", os.O_RDONLY, dir_fd=1501)"#,
    ),
];

/// Needs capabilities outside.
const REMOUNT: &[Attack] = &[
    attack(
        9,
        "/tools remounted for writing",
        "return reach(165, 0, TOOLS.encode(), 0, 0x1020, 0)",
    ),
    attack(
        9,
        "the root remounted for writing",
        r#"return reach(165, 0, b"/", 0, 0x1020, 0)"#,
    ),
    attack(
        9,
        "/tools by mount_setattr",
        "return reach(442, -100, TOOLS.encode(), 0, 0, 0)",
    ),
];

/// Refused in the strict tier only: the degraded one sees the machine's own programs and libraries.
const SYSTEM_FILES: &[Attack] = &[
    strict_attack(
        1,
        "which programs the machine has",
        r#"return os.listdir("/usr/sbin")"#,
    ),
    strict_attack(
        1,
        "the machine's settings",
        r#"
if "group" not in os.listdir("/etc"):
    raise PermissionError(errno.EPERM, "none")"#,
    ),
    strict_attack(
        1,
        "the root of the machine",
        r#"
if "home" not in os.listdir("/"):
    raise PermissionError(errno.EPERM, "none")"#,
    ),
];

#[test]
fn python_reaches_no_file_of_others() {
    everybody_warm_and_cold("filesystem_in::python_reaches_no_file_of_others", |arena| {
        let _inherited = inheritable_descriptors(arena);
        check_python(arena, Control::Plain, &[], FILES);
        check_python(arena, Control::Privileged, &[], REMOUNT);
    });
}

/// 15: files that an earlier run left under the names of modules do not get into the next run's start.
#[test]
fn the_start_of_a_run_imports_nothing_that_an_earlier_run_left() {
    everybody(
        "filesystem_in::the_start_of_a_run_imports_nothing_that_an_earlier_run_left",
        |arena| {
            let names = [
                "json",
                "os",
                "io",
                "encodings",
                "sitecustomize",
                "usercustomize",
                "site",
                "types",
                "ctypes",
            ];
            let scratch = arena.planted.scratch();
            // Of the mounted packages as well, and of what only the working directory would have.
            let names = names
                .into_iter()
                .chain(["tools", "skills", "left_behind", "main"]);
            let names: Vec<_> = names.collect();
            for name in &names {
                fs::write(scratch.join(format!("{name}.py")), "print('shadowed')\n").unwrap();
            }
            let source = "
import ctypes, json, subprocess, sys, types
import skills.skill, tools.stub
print(tools.stub.call(), skills.skill.help())
try:
    import left_behind
except ImportError:
    print('not found')
child = [sys.executable, '-S', '-c', 'import json, tools.stub; import left_behind']
print(subprocess.run(child, capture_output=True, text=True).stderr.splitlines()[-1])
";
            let run = arena.python(source);
            let control = std::process::Command::new("/usr/bin/python3")
                .args(["-c", "import json"])
                .current_dir(&scratch)
                .output()
                .unwrap();
            for name in &names {
                fs::remove_file(scratch.join(format!("{name}.py"))).unwrap();
            }
            let _ = fs::remove_dir_all(scratch.join("__pycache__"));
            assert!(
                String::from_utf8_lossy(&control.stdout).contains("shadowed"),
                "{control:?}"
            );
            assert_eq!(
                (run.ended, run.stdout.as_str()),
                (
                    RunEnd::Exited(0),
                    "1 1\nnot found\nModuleNotFoundError: No module named 'left_behind'\n"
                ),
                "{}",
                run.stderr
            );
        },
    );
}

/// What a run says of itself names no place of the host.
#[test]
fn no_path_of_the_host_is_shown() {
    everybody("filesystem_in::no_path_of_the_host_is_shown", |arena| {
        let source = "
import os, sys
print(sys.argv, sys.path, sys.executable, sys.prefix, dict(os.environ), __file__ if '__file__' in dir() else '')
for show in (os.getcwd, os.uname, os.getlogin, lambda: os.listdir('/'), lambda: os.listdir('.')):
    try:
        print(show())
    except OSError as error:
        print(error)
raise ValueError('with a trace')
";
        let run = arena.python(source);
        assert_eq!(run.ended, RunEnd::Exited(1), "{run:?}");
        let said = format!("{}{}", run.stdout, run.stderr);
        assert!(said.contains("with a trace"), "{said}");
        if arena.is_strict() {
            let place = arena.planted.root().to_str().unwrap();
            assert!(!said.contains(place), "{said}");
            let host = rustix::system::uname();
            assert!(!said.contains(host.nodename().to_str().unwrap()), "{said}");
        }
    });
}

#[test]
fn the_machine_itself_is_out_of_sight() {
    everybody(
        "filesystem_in::the_machine_itself_is_out_of_sight",
        |arena| {
            check_python(arena, Control::Plain, &[], SYSTEM_FILES);
        },
    );
}

/// Descriptors that every child of this process inherits: a secret file at 1500, the planted directory at 1501.
pub(crate) fn inheritable_descriptors(arena: &Arena<'_>) -> [OwnedFd; 2] {
    let mut limit = rustix::process::getrlimit(rustix::process::Resource::Nofile);
    limit.current = limit.maximum;
    rustix::process::setrlimit(rustix::process::Resource::Nofile, limit).unwrap();
    let file = fs::File::open(arena.planted.settings()).unwrap();
    let directory = fs::File::open(arena.planted.root()).unwrap();
    let high = |file: &fs::File, number| {
        let copy = rustix::io::fcntl_dupfd_cloexec(file, number).unwrap();
        assert_eq!(copy.as_raw_fd(), number, "another scene holds it");
        rustix::io::fcntl_setfd(&copy, rustix::io::FdFlags::empty()).unwrap();
        copy
    };
    [high(&file, 1500), high(&directory, 1501)]
}
