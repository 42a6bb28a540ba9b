//! Each limit is met, and says what it is.

use mooring_sandbox::protocol::WireLimits;

use super::host::{Code, LIMITS, Session, USERS, User};
use super::python_attempt;

#[test]
fn the_layer_is_full_at_its_limit() {
    let code = "import errno\ntry:\n    for n in range(100):\n        open(f'/scratch/{n}', 'wb').write(bytes(1 << 20))\nexcept OSError as error:\n    print(n, errno.errorcode[error.errno])";
    for user in USERS {
        let ran = Session::new(user).run(&Code::Python(code));
        assert_eq!(ran.output().trim_end(), "8 ENOSPC", "as {user:?}");
    }
    let code = "import errno\ntry:\n    for n in range(1000):\n        open(f'/results/{n}', 'wb')\nexcept OSError as error:\n    print(n <= 256, errno.errorcode[error.errno])";
    for user in USERS {
        let ran = Session::new(user).run(&Code::Python(code));
        assert_eq!(ran.output().trim_end(), "True ENOSPC", "as {user:?}");
    }
}

#[test]
fn one_file_has_its_own_limit() {
    python_attempt(
        "os.truncate(os.open('/scratch/f', os.O_CREAT | os.O_RDWR), 11 << 20)",
        "EFBIG",
    );
}

#[test]
fn memory_has_a_limit_per_process() {
    for user in USERS {
        for attempt in [
            "bytearray(400 << 20)",
            "__import__('mmap').mmap(-1, 400 << 20)",
        ] {
            let ran = Session::new(user).run(&Code::Python(attempt));
            assert_eq!(ran.code(), Some(1), "{attempt} as {user:?}: {ran:?}");
        }
        let code = "const held = []; for (;;) { held.push(new Uint8Array(32 << 20).fill(1)); }";
        let ran = Session::new(user).run(&Code::TypeScript(code));
        assert_ne!(ran.code(), Some(0), "{ran:?}");
    }
}

#[test]
fn processes_have_a_limit() {
    let limits = WireLimits {
        processes: 16,
        ..LIMITS
    };
    let code = "import os, time, errno\nn = 0\ntry:\n    while n < 2000:\n        if os.fork() == 0:\n            time.sleep(600)\n        n += 1\nexcept OSError as error:\n    print(n, errno.errorcode[error.errno])";
    for user in USERS {
        let ran = Session::new(user).run_within(&Code::Python(code), limits);
        let (count, error) = ran.output().trim_end().split_once(' ').unwrap();
        // The host's root is bound by process numbers, of which the kernel keeps 300 back.
        let (least, most) = if matches!(user, User::Root) {
            (15, 320)
        } else {
            (15, 15)
        };
        assert!(
            (least..=most).contains(&count.parse::<u32>().unwrap()) && error == "EAGAIN",
            "as {user:?}: {ran:?}"
        );
    }
}

#[test]
fn processor_time_ends_a_spin() {
    let limits = WireLimits {
        cpu_seconds: 1,
        ..LIMITS
    };
    for user in USERS {
        let ran = Session::new(user).run_within(&Code::Python("while True: pass"), limits);
        let finished = ran.end.as_ref().unwrap();
        assert_eq!(
            finished.status.map(|status| status & 0x7f),
            Some(libc::SIGXCPU),
            "{ran:?}"
        );
        assert!(finished.cpu_us >= 500_000, "{finished:?}");
    }
}
