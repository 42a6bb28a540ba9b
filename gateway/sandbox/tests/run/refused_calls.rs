//! Refused system calls as they are reported: every row is a call, and the error that its program sees.

use mooring_sandbox::{RefusedCall, RunEnd};

use crate::deno;
use crate::support::{Turn, limits, run_python, text};

/// Makes a call by its number, and shows its error.
const CALL: &str = r"
import ctypes, errno
libc = ctypes.CDLL(None, use_errno=True)
def call(number, *arguments):
    libc.syscall(number, *arguments)
    print(errno.errorcode[ctypes.get_errno()], flush=True)
";

fn refused(name: &str, count: u32) -> RefusedCall {
    RefusedCall {
        name: name.to_owned(),
        count,
    }
}

#[test]
fn each_call_out_of_the_sandbox_fails_as_before_and_is_reported() {
    let _turn = Turn::take();
    let rows: &[(&str, i64, &str)] = &[
        ("bpf", libc::SYS_bpf, "0, 0, 0"),
        ("chroot", libc::SYS_chroot, "b'/scratch'"),
        ("io_uring_setup", libc::SYS_io_uring_setup, "1, 0"),
        ("keyctl", libc::SYS_keyctl, "0, 0"),
        (
            "mknodat",
            libc::SYS_mknodat,
            "-100, b'/scratch/n', 0o20666, 0x103",
        ),
        (
            "mount",
            libc::SYS_mount,
            "b'none', b'/scratch', b'tmpfs', 0, 0",
        ),
        (
            "open_by_handle_at",
            libc::SYS_open_by_handle_at,
            "-100, 0, 0",
        ),
        (
            "perf_event_open",
            libc::SYS_perf_event_open,
            "0, 0, -1, -1, 0",
        ),
        ("pivot_root", libc::SYS_pivot_root, "b'/', b'/'"),
        (
            "process_vm_readv",
            libc::SYS_process_vm_readv,
            "1, 0, 0, 0, 0, 0",
        ),
        ("ptrace", libc::SYS_ptrace, "16, 1, 0, 0"),
        ("setns", libc::SYS_setns, "0, 0"),
        ("setuid", libc::SYS_setuid, "0"),
        ("socket", libc::SYS_socket, "2, 1, 0"),
        ("umount2", libc::SYS_umount2, "b'/scratch', 2"),
        ("unshare", libc::SYS_unshare, "0x10000000"),
        ("userfaultfd", libc::SYS_userfaultfd, "0"),
    ];
    let calls = rows
        .iter()
        .map(|(_, number, arguments)| format!("call({number}, {arguments})\n"));
    let outcome = run_python(&format!("{CALL}{}", calls.collect::<String>()), limits());
    assert_eq!(
        outcome.ended,
        RunEnd::Exited(0),
        "{}",
        text(&outcome.stderr.bytes)
    );
    assert_eq!(text(&outcome.stdout.bytes), "ENOSYS\n".repeat(rows.len()));
    let expected: Vec<_> = rows.iter().map(|(name, ..)| refused(name, 1)).collect();
    assert_eq!(outcome.refused_calls, expected);
}

#[test]
fn ordinary_programs_of_python_and_deno_are_not_reported() {
    let _turn = Turn::take();
    let python = "import asyncio, subprocess, sys, threading, multiprocessing, tempfile, shutil, uuid\n\
                  subprocess.run([sys.executable, '-c', 'pass'])\n\
                  thread = threading.Thread(target=print)\nthread.start()\nthread.join()\n\
                  with multiprocessing.Pool(2) as pool:\n    pool.map(abs, [1, 2])\n\
                  shutil.copytree('/tools', '/scratch/copy')\n\
                  async def main():\n    await asyncio.sleep(0)\nasyncio.run(main())";
    let typescript = "await Deno.writeTextFile('/scratch/a', 'a');\nnew TextEncoder().encode('a');\n\
                      const { readFileSync } = await import('node:fs');\nreadFileSync('/scratch/a');\n\
                      setTimeout(() => console.log('done'), 1);";
    for outcome in [
        run_python(python, limits()),
        deno::run(&deno::sandbox(), typescript),
    ] {
        let errors = text(&outcome.stderr.bytes);
        assert_eq!(outcome.ended, RunEnd::Exited(0), "{errors}");
        assert_eq!(outcome.refused_calls, []);
    }
}

#[test]
fn a_flood_of_refused_calls_is_counted_up_to_a_limit_and_goes_on() {
    let _turn = Turn::take();
    let source = "import errno, os, socket\nseen = set()\nfor _ in range(2000):\n    try:\n        \
                  socket.socket()\n    except OSError as error:\n        seen.add(errno.errorcode[error.errno])\n\
                  print(seen)";
    let outcome = run_python(source, limits());
    assert_eq!(text(&outcome.stdout.bytes), "{'ENOSYS'}\n");
    assert_eq!(outcome.refused_calls, [refused("socket", 256)]);
}

#[test]
fn every_process_of_a_run_is_reported_and_may_die_while_it_waits() {
    let _turn = Turn::take();
    let source = format!(
        "{CALL}import os, signal\nfor _ in range(8):\n    if os.fork() == 0:\n        signal.alarm(1)\n        \
         call({}, 0x10000000)\n        os._exit(0)\nfor _ in range(8):\n    os.wait()\n",
        libc::SYS_unshare
    );
    let outcome = run_python(&source, limits());
    assert_eq!(
        outcome.ended,
        RunEnd::Exited(0),
        "{}",
        text(&outcome.stderr.bytes)
    );
    assert_eq!(outcome.refused_calls, [refused("unshare", 8)]);
}
