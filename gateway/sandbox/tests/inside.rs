//! What a program meets inside the strict tier, as root and as an ordinary user, driven by the protocol alone.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    missing_docs,
    unreachable_pub,
    reason = "a test fails by panicking"
)]

#[path = "inside/host.rs"]
mod host;
#[path = "inside/limits.rs"]
mod limits;

use std::os::fd::AsFd;

use host::{Code, LIMITS, Session, USERS};
use mooring_sandbox::helper::{Connections, filter};
use mooring_sandbox::{Argument, Stage, Tier};
use rustix::process::{Signal, pidfd_send_signal};

fn stage(tool: &str, arguments: &[Argument]) -> Stage {
    Stage {
        tool: tool.to_owned(),
        arguments: arguments.to_vec(),
    }
}

fn literal(text: &str) -> Argument {
    Argument::Literal(text.to_owned())
}

/// Runs python as both users and has both outputs looked at.
fn python_prints(code: &str, expected: &str) {
    for user in USERS {
        let ran = Session::new(user).run(&Code::Python(code));
        assert_eq!(ran.output().trim_end(), expected, "as {user:?}: {ran:?}");
    }
}

/// What a python expression evaluates to, or the name of the error that it raises.
fn python_attempt(expression: &str, expected: &str) {
    let code = format!(
        "import os, errno, socket, ctypes\ntry:\n    print({expression})\nexcept OSError as error:\n    print(errno.errorcode[error.errno])\n"
    );
    python_prints(&code, expected);
}

#[test]
fn python_prints_and_its_text_is_not_altered() {
    python_prints("print('''a\n  b''', 6 * 7)", "a\n  b 42");
}

#[test]
fn an_error_names_the_authors_line() {
    for user in USERS {
        let ran = Session::new(user).run(&Code::Python("x = 1\n\nraise ValueError('here')"));
        assert_eq!(ran.code(), Some(1));
        assert!(
            ran.stderr.contains("line 3") && ran.stderr.contains("ValueError: here"),
            "{ran:?}"
        );
    }
}

#[test]
fn deno_runs_typescript_and_writes() {
    for user in USERS {
        let code = "const n: number = 6 * 7; Deno.writeTextFileSync('/scratch/n', `${n}`); console.log(n);";
        let ran = Session::new(user).run(&Code::TypeScript(code));
        assert_eq!(ran.output(), "42\n", "as {user:?}");
        assert_eq!(ran.written("n"), "42");
    }
}

#[test]
fn deno_runs_workers_timers_and_web_assembly() {
    let code = r#"
        const source = "self.onmessage = (e) => { self.postMessage(e.data + 1); self.close(); }";
        const worker = new Worker("data:application/javascript," + encodeURIComponent(source), { type: "module" });
        const answer = await new Promise((done) => { worker.onmessage = (e) => done(e.data); worker.postMessage(41); });
        await new Promise((done) => setTimeout(done, 1));
        const memory = new WebAssembly.Memory({ initial: 1 });
        console.log(answer, memory.buffer.byteLength);
    "#;
    for user in USERS {
        let ran = Session::new(user).run(&Code::TypeScriptWorker(code));
        assert_eq!(ran.output(), "42 65536\n", "as {user:?}");
    }
}

#[test]
fn python_has_threads_children_and_event_loops() {
    python_prints(
        "import asyncio, multiprocessing, subprocess, sys, threading, tempfile, shutil\n\
         seen = []\n\
         thread = threading.Thread(target=lambda: seen.append('thread')); thread.start(); thread.join()\n\
         seen.append(subprocess.run([sys.executable, '-c', 'print(\"child\")'], capture_output=True, text=True).stdout.strip())\n\
         async def main():\n    await asyncio.sleep(0)\n    return 'loop'\n\
         seen.append(asyncio.run(main()))\n\
         with multiprocessing.get_context('fork').Pool(2) as pool:\n    seen.append(str(sum(pool.map(abs, [-1, -2]))))\n\
         with tempfile.NamedTemporaryFile() as file:\n    shutil.copy2(file.name, '/scratch/copy'); seen.append('copy')\n\
         print(' '.join(seen))",
        "thread child loop 3 copy",
    );
}

#[test]
fn tools_read_one_another_and_patterns_are_expanded() {
    for user in USERS {
        let session = Session::new(user);
        for name in ["b.txt", "a.txt", ".hidden.txt", "other"] {
            session.put(&format!("scratch/{name}"), name);
        }
        let pipeline = vec![
            stage(
                "ls",
                &[
                    literal("-1"),
                    Argument::Pattern("*.txt".to_owned()),
                    Argument::Pattern("*.no".to_owned()),
                ],
            ),
            stage("cat", &[]),
        ];
        let ran = session.run(&Code::Pipeline(pipeline));
        assert_eq!(
            (ran.stdout.as_str(), ran.code()),
            ("a.txt\nb.txt\n", Some(0)),
            "as {user:?}: {ran:?}"
        );
        assert!(
            ran.stderr.contains("*.no"),
            "a pattern without a match is taken as it stands: {ran:?}"
        );

        let ran = session.run(&Code::Pipeline(vec![
            stage("ls", &[literal("/scratch")]),
            stage("wc", &[literal("-l")]),
        ]));
        assert_eq!(ran.output().trim(), "3");
        let ran = session.run(&Code::Pipeline(vec![
            stage("yes", &[]),
            stage("head", &[literal("-n1")]),
        ]));
        assert_eq!(ran.output(), "y\n", "a tool whose reader is gone ends");
    }
}

#[test]
fn a_tool_that_is_not_there_is_127_and_the_last_one_counts() {
    for user in USERS {
        let session = Session::new(user);
        let ran = session.run(&Code::Pipeline(vec![stage("ls", &[]), stage("sh", &[])]));
        assert_eq!(ran.code(), Some(127));
        assert!(ran.stderr.contains("sh: not found"), "{ran:?}");
        let ran = session.run(&Code::Pipeline(vec![
            stage("../bin/sh", &[]),
            stage("wc", &[literal("-c")]),
        ]));
        assert_eq!(ran.output().trim(), "0");
    }
}

#[test]
fn writes_go_to_the_layer_and_the_lower_directory_stays() {
    for user in USERS {
        let session = Session::new(user);
        session.put("scratch/old", "before");
        let code = "print(open('old').read()); open('old', 'a').write(' after'); open('new', 'w').write('new')";
        let ran = session.run(&Code::Python(code));
        assert_eq!(ran.output(), "before\n");
        assert_eq!(
            (ran.written("old").as_str(), ran.written("new").as_str()),
            ("before after", "new")
        );
        assert_eq!(
            std::fs::read_to_string(session.path("scratch/old")).unwrap(),
            "before"
        );
        assert!(!session.path("scratch/new").exists());
    }
}

#[test]
fn the_host_is_not_there() {
    for path in [
        "/etc/passwd",
        "/proc/self/environ",
        "/sys",
        "/home",
        "/root",
        "/usr/bin/sh",
        "/dev/mem",
        "/.layers",
    ] {
        python_attempt(&format!("os.stat('{path}')"), "ENOENT");
    }
    python_attempt(
        "sorted(os.listdir('/'))",
        "['bin', 'code', 'dev', 'etc', 'lib', 'lib64', 'results', 'scratch', 'skills', 'tmp', 'tools', 'usr']",
    );
    python_attempt(
        "sorted(os.listdir('/../../..')) == sorted(os.listdir('/'))",
        "True",
    );
}

#[test]
fn what_is_not_the_sessions_is_read_only() {
    for path in ["/tools/f", "/skills/f", "/usr/f", "/code/f", "/f"] {
        python_attempt(
            &format!("os.open('{path}', os.O_CREAT | os.O_WRONLY)"),
            "EROFS",
        );
    }
}

#[test]
fn only_files_and_directories_can_be_made() {
    python_attempt("os.symlink('/etc/passwd', '/scratch/l')", "ENOSYS");
    python_attempt("os.link('/code/main.py', '/scratch/l')", "EXDEV");
    python_attempt("os.mkfifo('/scratch/l')", "ENOSYS");
    python_attempt("os.chown('/scratch', 0, 0)", "ENOSYS");
    python_attempt(
        "os.setxattr('/scratch', 'user.overlay.opaque', b'y')",
        "ENOSYS",
    );
}

#[test]
fn a_written_binary_is_not_run() {
    let code = "import os, shutil, sys, errno\nshutil.copy(sys.executable, '/scratch/p'); os.chmod('/scratch/p', 0o755)\ntry:\n    os.execv('/scratch/p', ['p'])\nexcept OSError as error:\n    print(errno.errorcode[error.errno])";
    python_prints(code, "EACCES");
}

#[test]
fn there_are_no_sockets_but_pairs() {
    for family in [
        "AF_INET",
        "AF_INET6",
        "AF_UNIX",
        "AF_NETLINK",
        "AF_VSOCK",
        "AF_PACKET",
    ] {
        python_attempt(
            &format!("socket.socket(socket.{family}, socket.SOCK_DGRAM)"),
            "ENOSYS",
        );
    }
    python_attempt("len(socket.socketpair())", "2");
}

#[test]
fn calls_that_reach_outside_do_not_exist() {
    let code = "import ctypes, errno\nlibc = ctypes.CDLL(None, use_errno=True)\n\
         for number, *arguments in [(272, 0x10000000), (101, 0), (319, b'm', 0), (425, 1, 0), (250, 0), (165, 0, 0, 0, 0, 0), (435, 0, 0), (321, 0), (56, 0x10000011, 0, 0, 0, 0), (0x40000000 + 39,)]:\n\
         \x20   result = libc.syscall(number, *arguments)\n\
         \x20   print(result, errno.errorcode.get(ctypes.get_errno()))";
    let expected = ["-1 ENOSYS"; 10].join("\n");
    python_prints(code, &expected);
}

#[test]
fn descriptors_environment_and_identity_are_the_sandboxs_own() {
    let code = "import os\nopen_ones = []\nfor number in range(1024):\n    try:\n        os.fstat(number); open_ones.append(number)\n    except OSError:\n        pass\n\
         print(open_ones, os.read(0, 1))\nprint(sorted(os.environ))\nprint(os.getuid(), os.getgid(), os.getgroups(), os.uname().nodename, os.getcwd(), os.getpid() > 1)";
    for user in USERS {
        let ran = Session::new(user).run(&Code::Python(code));
        let lines: Vec<&str> = ran.output().lines().collect();
        assert_eq!(lines[0], "[0, 1, 2] b''");
        assert_eq!(
            lines[1],
            "['HOME', 'LANG', 'MALLOC_ARENA_MAX', 'MOORING_RESULTS', 'MOORING_SCRATCH', 'MOORING_SKILLS', \
             'MOORING_TOOLS', 'NO_COLOR', 'PATH', 'PYTHONPATH', 'PYTHONSAFEPATH', 'TMPDIR']"
        );
        assert!(lines[2].starts_with("1000 1000 ["), "{ran:?}");
        assert!(lines[2].ends_with("] sandbox /scratch True"), "{ran:?}");
    }
}

#[test]
fn no_capability_is_left_in_any_set() {
    let code = "import ctypes\nlibc = ctypes.CDLL(None)\nheader = (ctypes.c_uint32 * 2)(0x20080522, 0); data = (ctypes.c_uint32 * 6)()\n\
         print(libc.capget(header, data), list(data), [n for n in range(41) if libc.prctl(23, n, 0, 0, 0)], libc.prctl(39, 0, 0, 0, 0))";
    python_prints(code, "0 [0, 0, 0, 0, 0, 0] [] 1");
}

#[test]
fn a_file_in_scratch_shadows_no_module() {
    for user in USERS {
        let session = Session::new(user);
        session.put("scratch/json.py", "raise SystemExit('shadowed')");
        assert_eq!(
            session
                .run(&Code::Python("import json; print(json.dumps(1))"))
                .output(),
            "1\n"
        );
    }
}

#[test]
fn a_child_dies_with_the_main_process_and_keeps_no_stream_open() {
    let code = "import os, time, signal\nif os.fork() == 0:\n    os.setsid()\n    signal.signal(signal.SIGTERM, signal.SIG_IGN)\n    time.sleep(600)\nprint('main')";
    // The end of both streams is awaited: a survivor would keep them open.
    python_prints(code, "main");
}

#[test]
fn neither_process_one_nor_anything_outside_can_be_signalled_to_death() {
    python_prints(
        "import os\nos.kill(1, 9)\ntry:\n    os.kill(-1, 0)\nexcept OSError:\n    pass\nprint('alive')",
        "alive",
    );
}

#[test]
fn a_run_that_the_host_kills_still_hands_out_its_layers() {
    for user in USERS {
        let session = Session::new(user);
        let code =
            "import time\nopen('/scratch/f', 'w').write('kept')\nprint('ready')\ntime.sleep(600)";
        let running = session.start(
            &Code::Python(code),
            LIMITS,
            filter(Tier::Strict, Connections::Refused).unwrap(),
        );
        running.go();
        running.wait_for_output("ready\n");
        pidfd_send_signal(running.process.as_fd(), Signal::KILL).unwrap();
        let ran = running.collect();
        assert_eq!(ran.end.as_ref().unwrap().status, None);
        assert_eq!(ran.written("f"), "kept");
    }
}

#[test]
fn a_filter_that_is_damaged_fails_the_run_by_its_name() {
    for user in USERS {
        let ran = Session::new(user)
            .start(&Code::Python("print('ran')"), LIMITS, vec![1, 2, 3])
            .finish();
        assert_eq!(ran.end.as_ref().unwrap_err().step, "seccomp");
        assert_eq!(ran.stdout, "");
    }
}

#[test]
fn a_control_group_that_cannot_be_stepped_into_fails_the_run_by_its_name() {
    for user in USERS {
        // It cannot be written to.
        let door = std::fs::File::open("/dev/null").unwrap().into();
        let filter = filter(Tier::Strict, Connections::Refused).unwrap();
        let mut session = Session::new(user);
        session.doors.push(door);
        let ran = session
            .start(&Code::Python("print('ran')"), LIMITS, filter)
            .finish();
        assert_eq!(ran.end.as_ref().unwrap_err().step, "control_group");
        assert_eq!(ran.stdout, "");
    }
}

#[cfg(target_arch = "x86_64")]
#[test]
fn calls_of_another_architecture_end_the_process() {
    // mov eax, 20 (getpid of i386); int 0x80; ret
    let code = "import ctypes, mmap\nprint('before', flush=True)\n\
         page = mmap.mmap(-1, 4096, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)\n\
         page.write(bytes.fromhex('b814000000cd80c3'))\n\
         print(ctypes.CFUNCTYPE(ctypes.c_int)(ctypes.addressof(ctypes.c_char.from_buffer(page)))())";
    for user in USERS {
        let ran = Session::new(user).run(&Code::Python(code));
        assert_eq!(ran.stdout, "before\n", "{ran:?}");
        assert_eq!(
            ran.end.unwrap().status.map(|status| status & 0x7f),
            Some(libc::SIGSYS)
        );
    }
}
