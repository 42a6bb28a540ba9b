//! 65 to 77: what code reaches of the kernel.

use crate::attack::{Attack, attack, check_python};
use crate::outside::Control;
use crate::who::everybody_warm_and_cold;

/// The control has every capability over namespaces of its own.
const CALLS: &[Attack] = &[
    attack(
        65,
        "a user namespace",
        "in_child(lambda: call(272, 0x10000000))",
    ),
    attack(
        65,
        "a mount namespace",
        "in_child(lambda: call(272, 0x00020000))",
    ),
    attack(
        65,
        "a network namespace",
        "in_child(lambda: call(272, 0x40000000))",
    ),
    attack(
        65,
        "a process namespace",
        "in_child(lambda: call(272, 0x20000000))",
    ),
    attack(
        65,
        "a process in a user namespace",
        r"
def enter():
    if call(56, 0x10000000 | 17, 0, 0, 0, 0) == 0:
        os._exit(0)
in_child(enter)",
    ),
    attack(65, "another's namespace", "return reach(308, -1, 0)"),
    attack(
        66,
        "mount",
        r#"return reach(165, b"none", b".", b"tmpfs", 0, 0)"#,
    ),
    attack(
        66,
        "bind mount",
        r#"return reach(165, b"/", b".", 0, 0x1000, 0)"#,
    ),
    attack(66, "umount", r#"return reach(166, b".", 2)"#),
    attack(66, "pivot_root", r#"return reach(155, b".", b".")"#),
    attack(66, "chroot", r#"in_child(lambda: os.chroot("."))"#),
    attack(66, "fsopen", r#"return reach(430, b"tmpfs", 0)"#),
    attack(66, "open_tree", r#"return reach(428, -100, b"/", 1)"#),
    attack(
        66,
        "move_mount",
        r#"return reach(429, -1, b"", -1, b"", 0)"#,
    ),
    attack(66, "fspick", r#"return reach(433, -100, b"/", 0)"#),
    attack(67, "clone3", "return reach(435, 0, 0)"),
    attack(68, "io_uring", "return reach(425, 1, 0)"),
    attack(
        68,
        "asynchronous I/O of the old kind",
        "return reach(206, 1, 0)",
    ),
    attack(69, "the session keyring", "return reach(250, 0, -3, 1)"),
    attack(
        69,
        "a new key",
        r#"return reach(248, b"user", b"abuse-mark", b"x", 1, -2)"#,
    ),
    attack(
        69,
        "a key asked for",
        r#"return reach(249, b"user", b"abuse-mark", 0, 0)"#,
    ),
    attack(70, "bpf", "return reach(321, 0, 0, 0)"),
    attack(
        70,
        "performance counters",
        "return reach(298, 0, 0, -1, -1, 0)",
    ),
    attack(70, "userfaultfd", "return reach(323, 1)"),
    attack(
        70,
        "memory that the kernel cannot see",
        "return reach(447, 0)",
    ),
    attack(70, "fanotify", "return reach(300, 0x200, 0)"),
    attack(
        71,
        "a call of the 32-bit kind",
        r#"
import mmap
code = mmap.mmap(-1, 4096, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)
code.write(b"\xb8\x14\x00\x00\x00\xcd\x80\xc3")
address = ctypes.addressof(ctypes.c_char.from_buffer(code))
def getpid():
    if ctypes.CFUNCTYPE(ctypes.c_int)(address)() != os.getpid():
        raise OSError(errno.ENOSYS, "no such call")
in_child(getpid)"#,
    ),
    attack(
        73,
        "a file's handle",
        r#"return reach(303, -100, b".", 0, 0, 0)"#,
    ),
    attack(73, "a file by its handle", r#"return reach(304, -1, 0, 0)"#),
    attack(
        74,
        "typing into a terminal",
        r#"
import fcntl, termios
def steal():
    _, terminal = os.openpty()
    os.setsid()
    fcntl.ioctl(terminal, termios.TIOCSCTTY, 0)
    try:
        fcntl.ioctl(terminal, termios.TIOCSTI, b"x")
    except OSError as error:
        # What newer kernels answer to everybody.
        if error.errno != errno.EIO:
            raise
in_child(steal)"#,
    ),
    attack(
        75,
        "another personality",
        "in_child(lambda: call(135, 0x0040000))",
    ),
    attack(76, "a netlink socket", "return reach(41, 16, 3, 0)"),
    attack(76, "a packet socket", "return reach(41, 17, 3, 0)"),
    attack(
        76,
        "a socket to the host's machine",
        "return reach(41, 40, 1, 0)",
    ),
    attack(
        76,
        "a socket to the kernel's ciphers",
        "return reach(41, 38, 5, 0)",
    ),
    attack(
        76,
        "urgent data on a pair of sockets",
        r#"
import socket
one, _other = socket.socketpair()
return one.send(b"x", socket.MSG_OOB)"#,
    ),
    attack(76, "a Bluetooth socket", "return reach(41, 31, 3, 0)"),
    attack(76, "a key management socket", "return reach(41, 15, 3, 2)"),
    attack(
        77,
        "a real-time priority",
        "return reach(144, 0, 1, ctypes.byref(ctypes.c_int(1000)))",
    ),
    attack(77, "a deadline", "return reach(314, 0, 0, 0)"),
    attack(60, "tracing", "in_child(lambda: call(101, 0, 0, 0, 0))"),
    attack(
        60,
        "another process's memory",
        "return reach(310, os.getpid(), 0, 0, 0, 0, 0)",
    ),
    attack(
        60,
        "another process's memory, for writing",
        "return reach(311, os.getpid(), 0, 0, 0, 0, 0)",
    ),
    attack(
        60,
        "another process's descriptor",
        "return reach(438, -1, 0, 0)",
    ),
    attack(
        60,
        "whether processes share something",
        "return reach(312, os.getpid(), os.getpid(), 0, 0, 0)",
    ),
    attack(
        60,
        "advice on another's memory",
        "return reach(440, -1, 0, 0, 0, 0)",
    ),
    attack(
        66,
        "the host name",
        r#"return reach(170, b"abuse-mark", 10)"#,
    ),
    attack(66, "a segment descriptor", "return reach(154, 0, 0, 0)"),
    attack(
        66,
        "shared memory of System V",
        "return reach(29, 0, 4096, 0o1600)",
    ),
    attack(
        66,
        "a message queue of System V",
        "return reach(68, 0, 0o1600)",
    ),
    attack(
        66,
        "semaphores of System V",
        "return reach(64, 0, 1, 0o1600)",
    ),
    attack(
        66,
        "a message queue",
        r#"return reach(240, b"abuse-mark", 0o102, 0o600, 0)"#,
    ),
    attack(
        22,
        "a device, which the overlay takes for a deletion",
        r#"return reach(259, -100, b"device", 0o20600, 0)"#,
    ),
    attack(
        16,
        "a symbolic link",
        r#"os.symlink("/etc/passwd", "own-link")"#,
    ),
    attack(21, "a FIFO", r#"os.mkfifo("fifo")"#),
    attack(
        29,
        "a mark of the overlay's own",
        r#"return reach(188, b".", b"user.overlay.opaque", b"y", 1, 0)"#,
    ),
    attack(
        66,
        "landlock rules of its own",
        "return reach(444, 0, 0, 1)",
    ),
    attack(66, "a filter of its own", "return reach(317, 2, 0, 0)"),
    attack(66, "another user", "in_child(lambda: call(105, 0))"),
    attack(66, "another group", "in_child(lambda: call(106, 0))"),
];

/// 72: calls of the x32 kind are those of x86-64 with another number. The control: on a kernel that has them, they work;
/// one that does not know them answers so itself, and then there is nothing to attack.
const X32: &[Attack] = &[attack(
    72,
    "a call of the x32 kind",
    r#"
def getpid():
    if libc.syscall(ctypes.c_long(0x40000000 | 39)) == os.getpid():
        os._exit(0)
    if PROCESS == GATEWAY and ctypes.get_errno() == errno.ENOSYS:
        os._exit(0)
    raise OSError(errno.ENOSYS, "no such call")
in_child(getpid)"#,
)];

#[test]
fn the_kernel_is_out_of_reach() {
    everybody_warm_and_cold("kernel::the_kernel_is_out_of_reach", |arena| {
        check_python(arena, Control::Privileged, &[], CALLS);
        check_python(arena, Control::Plain, &[], X32);
    });
}
