//! What a program cannot reach, though nothing hides it.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::net::UnixDatagram;
use std::process::{Child, Command, Stdio};

use mooring_sandbox::RunEnd;

use crate::support::{Turn, is_root, limits, run_python, text};

/// What a python expression evaluates to, or the name of the error that it raises.
fn attempt(expression: &str) -> String {
    let source = format!(
        "import os, errno, socket, ctypes\ntry:\n    print({expression})\nexcept OSError as error:\n    \
         print(errno.errorcode[error.errno])\n"
    );
    let outcome = run_python(&source, limits());
    assert_eq!(
        outcome.ended,
        RunEnd::Exited(0),
        "{expression}: {}",
        text(&outcome.stderr.bytes)
    );
    text(&outcome.stdout.bytes).trim_end().to_owned()
}

#[test]
fn files_of_others_cannot_be_read_nor_written() {
    let _turn = Turn::take();
    let secret = tempfile::tempdir().unwrap();
    fs::set_permissions(secret.path(), fs::Permissions::from_mode(0o777)).unwrap();
    let file = secret.path().join("file");
    fs::write(&file, "secret").unwrap();
    fs::set_permissions(&file, fs::Permissions::from_mode(0o666)).unwrap();
    assert_eq!(fs::read_to_string(&file).unwrap(), "secret", "the control");
    let (file, directory) = (file.display(), secret.path().display());
    for expression in [
        format!("open('{file}').read()"),
        format!("open('{file}', 'w')"),
        format!("open('{directory}/new', 'w')"),
        format!("os.truncate('{file}', 0)"),
        format!("os.unlink('{file}')"),
        format!("os.rename('{file}', 'taken')"),
        format!("os.listdir('{directory}')"),
        "open('/etc/passwd').read()".to_owned(),
        "open('/proc/self/environ').read()".to_owned(),
        "os.listdir('/proc')".to_owned(),
        "open('/dev/shm/mark', 'w')".to_owned(),
        "open('/tmp/mark', 'w')".to_owned(),
        "open('../code/main.py', 'a')".to_owned(),
        "open('../tools/new', 'w')".to_owned(),
        "open('../new', 'w')".to_owned(),
        "os.execv('/usr/bin/id', ['id'])".to_owned(),
    ] {
        let came_to = attempt(&expression);
        assert!(
            matches!(came_to.as_str(), "EACCES" | "EXDEV" | "EPERM"),
            "{expression}: {came_to}"
        );
    }
    assert_eq!(
        fs::read_to_string(secret.path().join("file")).unwrap(),
        "secret"
    );
}

/// Access rules do not cover modes and times: the filter answers without doing anything.
#[test]
fn modes_and_times_of_files_outside_stay() {
    let _turn = Turn::take();
    let directory = tempfile::tempdir().unwrap();
    let before = fs::metadata(directory.path()).unwrap();
    let path = directory.path().display();
    for expression in [
        format!("os.chmod('{path}', 0o777)"),
        format!("os.utime('{path}', (1, 1))"),
        format!("os.chmod(os.open('{path}', os.O_PATH), 0o777, follow_symlinks=True)"),
    ] {
        attempt(&expression);
    }
    let after = fs::metadata(directory.path()).unwrap();
    assert_eq!(
        (after.mode(), after.mtime(), after.mtime_nsec()),
        (before.mode(), before.mtime(), before.mtime_nsec())
    );
}

#[test]
fn there_is_no_network_and_no_session() {
    let _turn = Turn::take();
    for family in ["AF_INET", "AF_INET6", "AF_UNIX", "AF_NETLINK"] {
        assert_eq!(
            attempt(&format!("socket.socket(socket.{family})")),
            "ENOSYS"
        );
    }
    assert_eq!(attempt("len(socket.socketpair())"), "2");
    for expression in [
        "os.setsid()",
        "os.setpgid(0, 0)",
        "os.memfd_create('m')",
        "os.setpriority(os.PRIO_USER, 0, 19)",
        "os.symlink('/etc/passwd', 'link')",
        "os.mkfifo('fifo')",
    ] {
        assert_eq!(attempt(expression), "ENOSYS", "{expression}");
    }
}

/// Neither the access rules nor a namespace stops a datagram to a path.
#[test]
fn sockets_of_the_host_get_no_datagram() {
    let _turn = Turn::take();
    let directory = tempfile::tempdir().unwrap();
    fs::set_permissions(directory.path(), fs::Permissions::from_mode(0o777)).unwrap();
    let path = directory.path().join("log");
    let log = UnixDatagram::bind(&path).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o777)).unwrap();
    log.set_nonblocking(true).unwrap();
    let path = path.display();
    for (kind, came_to) in [
        ("SOCK_DGRAM", "ENOSYS"),
        ("SOCK_RAW", "ENOSYS"),
        ("SOCK_STREAM", "EISCONN"),
        // To the other one of the pair, whatever the address.
        ("SOCK_SEQPACKET", "1"),
    ] {
        let pair = format!("socket.socketpair(socket.AF_UNIX, socket.{kind})");
        // Both stay open.
        let send = format!("(lambda pair: pair[0].sendto(b'x', '{path}'))({pair})");
        assert_eq!(attempt(&send), came_to, "{kind}");
    }
    let mut byte = [0];
    assert!(log.recv(&mut byte).is_err(), "it came through");
    let (control, _) = UnixDatagram::pair().unwrap();
    control
        .send_to(b"x", log.local_addr().unwrap().as_pathname().unwrap())
        .unwrap();
    assert_eq!(log.recv(&mut byte).unwrap(), 1, "the control");
}

/// Ends with its value.
struct Canary(Child);

impl Drop for Canary {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn no_process_outside_can_be_signalled() {
    let _turn = Turn::take();
    let mut canary = Canary(
        Command::new("/bin/sleep")
            .arg("600")
            .stdin(Stdio::null())
            .spawn()
            .unwrap(),
    );
    let (own, other) = (std::process::id(), canary.0.id());
    for target in [own, other] {
        assert_eq!(attempt(&format!("os.kill({target}, 9)")), "EPERM");
        assert_eq!(
            attempt(&format!("os.sched_setaffinity({target}, {{0}})")),
            "ENOSYS"
        );
    }
    let source = format!(
        "import os, signal\ntry:\n    signal.pidfd_send_signal(os.pidfd_open({other}), 9)\nexcept OSError:\n    \
         print('refused')\ntry:\n    os.kill(-1, 0)\nexcept PermissionError:\n    pass\nprint('alive')"
    );
    let outcome = run_python(&source, limits());
    assert_eq!(
        text(&outcome.stdout.bytes),
        "refused\nalive\n",
        "{}",
        text(&outcome.stderr.bytes)
    );
    assert!(canary.0.try_wait().unwrap().is_none(), "the canary lives");
}

#[test]
fn the_run_of_root_is_another_users() {
    let _turn = Turn::take();
    let seen = attempt("(os.getuid(), os.geteuid(), os.getgid(), os.getgroups())");
    let own = rustix::process::geteuid().as_raw();
    if is_root() {
        let number: u32 = seen
            .trim_start_matches('(')
            .split(',')
            .next()
            .unwrap()
            .parse()
            .unwrap();
        assert!(number >= 0x7000_0000, "{seen}");
        assert!(seen.ends_with("[])"), "no further group: {seen}");
    } else {
        assert!(seen.starts_with(&format!("({own}, {own}, ")), "{seen}");
    }
}
