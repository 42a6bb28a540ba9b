//! The system calls that a program may make. Every other one fails with `ENOSYS`.
//!
//! The list is what python, deno and the tools need. What is left out on purpose: sockets (only connected pairs can be
//! made, and connections by TCP where a run may make any),
//! new namespaces and mounts, symbolic links and nodes, owners and attributes, other users, `ptrace` and its kin, memory files,
//! watches (`inotify` counts per user, the gateway's included), shared memory and queues of System V, kernel keys,
//! `io_uring`, `bpf`, `perf`, locked memory, the clock, real-time scheduling, filters of its own, and hiding a process
//! (`PR_SET_DUMPABLE`) from the host that counts its descriptors.

/// One call by its name, for tests and messages.
pub(super) type Call = (&'static str, i64);

/// Names with their numbers on this processor.
macro_rules! calls {
    ($($name:ident)*) => {
        &[$((stringify!($name), libc::$name as i64)),*]
    };
}

/// Allowed with any argument.
pub(super) const ANY: &[Call] = calls![
    // Files, by descriptor.
    SYS_read SYS_write SYS_pread64 SYS_pwrite64 SYS_readv SYS_writev SYS_preadv SYS_pwritev SYS_preadv2 SYS_pwritev2
    SYS_lseek SYS_close SYS_close_range SYS_dup SYS_dup3 SYS_flock SYS_fsync SYS_fdatasync SYS_ftruncate
    SYS_fallocate SYS_fadvise64 SYS_readahead SYS_sendfile SYS_copy_file_range SYS_getdents64 SYS_fchdir
    SYS_fstat SYS_fstatfs SYS_fgetxattr SYS_flistxattr
    // Files, by path. Hard links are how the C library makes a named semaphore, which python's pools need.
    SYS_openat SYS_openat2 SYS_newfstatat SYS_statx SYS_statfs SYS_truncate SYS_faccessat SYS_faccessat2 SYS_readlinkat
    SYS_mkdirat SYS_unlinkat SYS_renameat SYS_renameat2 SYS_chdir SYS_getcwd
    SYS_linkat SYS_umask SYS_getxattr SYS_lgetxattr SYS_listxattr SYS_llistxattr
    // Waiting.
    SYS_pipe2 SYS_ppoll SYS_pselect6 SYS_epoll_create1 SYS_epoll_ctl SYS_epoll_pwait SYS_epoll_pwait2 SYS_eventfd2
    SYS_timerfd_create SYS_timerfd_settime SYS_timerfd_gettime SYS_signalfd4 SYS_nanosleep SYS_clock_nanosleep
    // Pairs of sockets, and what is done with them.
    SYS_recvfrom SYS_recvmsg SYS_recvmmsg SYS_shutdown SYS_getsockname SYS_getpeername SYS_getsockopt
    // Memory.
    SYS_mmap SYS_munmap SYS_mprotect SYS_mremap SYS_madvise SYS_brk SYS_msync SYS_mincore SYS_membarrier
    // Threads and processes.
    SYS_execve SYS_exit SYS_exit_group SYS_wait4 SYS_waitid SYS_kill SYS_tgkill SYS_tkill SYS_futex SYS_set_robust_list
    SYS_get_robust_list SYS_set_tid_address SYS_rseq SYS_sched_yield SYS_sched_getaffinity
    SYS_sched_getparam SYS_sched_getscheduler SYS_sched_get_priority_max SYS_sched_get_priority_min SYS_getpriority
    SYS_getpid SYS_getppid SYS_gettid SYS_getpgid SYS_getsid SYS_getuid SYS_geteuid SYS_getgid
    SYS_getegid SYS_getresuid SYS_getresgid SYS_getgroups SYS_capget SYS_getrusage SYS_times
    SYS_pidfd_send_signal SYS_getcpu
    // Signals and timers.
    SYS_rt_sigaction SYS_rt_sigprocmask SYS_rt_sigreturn SYS_rt_sigpending SYS_rt_sigsuspend SYS_rt_sigtimedwait
    SYS_sigaltstack SYS_restart_syscall SYS_getitimer SYS_setitimer SYS_timer_create SYS_timer_settime
    SYS_timer_gettime SYS_timer_getoverrun SYS_timer_delete
    // The machine, as far as a program may know it.
    SYS_clock_gettime SYS_clock_getres SYS_gettimeofday SYS_uname SYS_sysinfo SYS_getrandom
];

/// Refused calls that are reported: except for sockets, ordinary programs do not make them, but attempts to escape the
/// sandbox do. Where a call is allowed with some arguments, others are not reported.
pub(super) const REPORTED: &[Call] = calls![
    // The network.
    SYS_socket SYS_connect SYS_bind SYS_listen
    // Namespaces, roots and mounts.
    SYS_unshare SYS_setns SYS_mount SYS_umount2 SYS_pivot_root SYS_chroot SYS_open_tree SYS_move_mount SYS_fsopen
    SYS_fsmount SYS_mount_setattr SYS_mknodat SYS_open_by_handle_at SYS_name_to_handle_at
    // Other processes and users.
    SYS_ptrace SYS_process_vm_readv SYS_process_vm_writev SYS_pidfd_getfd SYS_setuid SYS_setgid SYS_setreuid
    SYS_setregid SYS_setresuid SYS_setresgid SYS_setgroups
    // The kernel and the machine.
    SYS_bpf SYS_perf_event_open SYS_userfaultfd SYS_io_uring_setup SYS_keyctl SYS_add_key SYS_request_key
    SYS_init_module SYS_finit_module SYS_delete_module SYS_kexec_load SYS_reboot SYS_swapon SYS_swapoff SYS_acct
    SYS_settimeofday SYS_clock_settime SYS_sethostname SYS_setdomainname
];

/// Older forms of the calls above, which this processor still has.
#[cfg(target_arch = "x86_64")]
pub(super) const OLDER: &[Call] = calls![
    SYS_open SYS_creat SYS_stat SYS_lstat SYS_access SYS_readlink SYS_mkdir SYS_rmdir SYS_link SYS_unlink SYS_rename
    SYS_getdents SYS_dup2 SYS_pipe SYS_poll SYS_select SYS_epoll_create
    SYS_epoll_wait SYS_eventfd SYS_fork SYS_vfork SYS_arch_prctl SYS_getpgrp SYS_alarm SYS_pause SYS_time
    SYS_getrlimit SYS_setrlimit
];

/// Older forms of the calls above: this processor never had them.
#[cfg(not(target_arch = "x86_64"))]
pub(super) const OLDER: &[Call] = calls![SYS_getrlimit SYS_setrlimit];

/// Creating a process group or session: harmless within a process namespace. Without a namespace, the whole tree is
/// killed by its group, which no process may leave.
pub(super) const GROUPS: &[Call] = calls![SYS_setpgid SYS_setsid];

/// Calls that affect any process of the same user: within a process namespace, only those of the run.
pub(super) const PROCESSES: &[Call] = calls![SYS_setpriority SYS_sched_setaffinity SYS_pidfd_open];

/// Modes and times of files. Landlock does not cover them, so without a private root a run could change those of every
/// file of its user, the gateway's included.
pub(super) const MODES: &[Call] = calls![SYS_fchmod SYS_fchmodat SYS_fchmodat2 SYS_utimensat];

/// Older forms of these.
#[cfg(target_arch = "x86_64")]
pub(super) const OLDER_MODES: &[Call] = calls![SYS_chmod SYS_utime SYS_utimes SYS_futimesat];

/// Older forms of these: this processor never had them.
#[cfg(not(target_arch = "x86_64"))]
pub(super) const OLDER_MODES: &[Call] = &[];

/// One value of one argument with which a call is allowed.
#[derive(Debug, Clone, Copy)]
pub(super) struct ArgumentRule {
    pub(super) call: Call,
    /// Which argument, from 0.
    pub(super) argument: u8,
    /// Its lower 32 bits.
    pub(super) test: ArgumentTest,
}

/// The test of an argument.
#[derive(Debug, Clone, Copy)]
pub(super) enum ArgumentTest {
    /// It is this value.
    Is(u32),
    /// It has none of these bits.
    HasNone(u32),
    /// It is the second value once these bits are taken away.
    IsBut(u32, u32),
}

/// Every flag of `clone` that creates a namespace.
const CLONE_NAMESPACES: u32 = 0x7E02_0000;

/// The flag of `clone` that creates a thread, and the one that shares the descriptor table.
const CLONE_THREAD: u32 = libc::CLONE_THREAD as u32;
const CLONE_FILES: u32 = libc::CLONE_FILES as u32;

/// Urgent data, which nothing needs and which has let others out of their sandboxes; and data that connects a socket by
/// itself, past the rule on ports.
const SEND_FLAGS: u32 = (libc::MSG_OOB | libc::MSG_FASTOPEN) as u32;

/// `PR_SET_VMA`, which names a piece of memory and does nothing else.
const PR_SET_VMA: u32 = 0x5356_4d41;

macro_rules! allowed {
    ($($name:ident[$argument:literal] $test:expr),* $(,)?) => {
        &[$(ArgumentRule { call: (stringify!($name), libc::$name as i64), argument: $argument, test: $test }),*]
    };
}

/// Allowed with these arguments only. Several lines of one call are alternatives.
pub(super) const SOME: &[ArgumentRule] = allowed![
    SYS_clone[0] ArgumentTest::HasNone(CLONE_NAMESPACES | CLONE_THREAD),
    // A thread with its own descriptor table would hide descriptors from the host, which reads one table per process.
    SYS_clone[0] ArgumentTest::IsBut(!(CLONE_NAMESPACES | CLONE_THREAD | CLONE_FILES), CLONE_THREAD | CLONE_FILES),
    SYS_sendto[3] ArgumentTest::HasNone(SEND_FLAGS),
    SYS_sendmsg[2] ArgumentTest::HasNone(SEND_FLAGS),
    SYS_sendmmsg[3] ArgumentTest::HasNone(SEND_FLAGS),
    // Not the size of a pipe, which counts per user, the gateway's included; and neither leases nor watches, which are
    // kept on files that the host has as well.
    SYS_fcntl[1] ArgumentTest::Is(libc::F_DUPFD as u32),
    SYS_fcntl[1] ArgumentTest::Is(libc::F_DUPFD_CLOEXEC as u32),
    SYS_fcntl[1] ArgumentTest::Is(libc::F_GETFD as u32),
    SYS_fcntl[1] ArgumentTest::Is(libc::F_SETFD as u32),
    SYS_fcntl[1] ArgumentTest::Is(libc::F_GETFL as u32),
    SYS_fcntl[1] ArgumentTest::Is(libc::F_SETFL as u32),
    SYS_fcntl[1] ArgumentTest::Is(libc::F_GETLK as u32),
    SYS_fcntl[1] ArgumentTest::Is(libc::F_SETLK as u32),
    SYS_fcntl[1] ArgumentTest::Is(libc::F_SETLKW as u32),
    SYS_fcntl[1] ArgumentTest::Is(libc::F_OFD_GETLK as u32),
    SYS_fcntl[1] ArgumentTest::Is(libc::F_OFD_SETLK as u32),
    SYS_fcntl[1] ArgumentTest::Is(libc::F_OFD_SETLKW as u32),
    SYS_fcntl[1] ArgumentTest::Is(libc::F_GETPIPE_SZ as u32),
    SYS_fcntl[1] ArgumentTest::Is(libc::F_GET_SEALS as u32),
    // Of the process itself: not of process 1, which has the same user.
    SYS_prlimit64[0] ArgumentTest::Is(0),
    SYS_prctl[0] ArgumentTest::Is(libc::PR_SET_NAME as u32),
    SYS_prctl[0] ArgumentTest::Is(libc::PR_GET_NAME as u32),
    SYS_prctl[0] ArgumentTest::Is(libc::PR_SET_PDEATHSIG as u32),
    SYS_prctl[0] ArgumentTest::Is(libc::PR_CAPBSET_READ as u32),
    SYS_prctl[0] ArgumentTest::Is(libc::PR_GET_NO_NEW_PRIVS as u32),
    SYS_prctl[0] ArgumentTest::Is(libc::PR_GET_DUMPABLE as u32),
    SYS_prctl[0] ArgumentTest::Is(PR_SET_VMA),
    // No terminal can be typed into: what can be asked for are sizes and modes of descriptors.
    SYS_ioctl[1] ArgumentTest::Is(libc::FIONREAD as u32),
    SYS_ioctl[1] ArgumentTest::Is(libc::FIONBIO as u32),
    SYS_ioctl[1] ArgumentTest::Is(libc::FIOCLEX as u32),
    SYS_ioctl[1] ArgumentTest::Is(libc::FIONCLEX as u32),
    SYS_ioctl[1] ArgumentTest::Is(libc::TCGETS as u32),
    SYS_ioctl[1] ArgumentTest::Is(libc::TIOCGWINSZ as u32),
];

/// The flags that may be combined with a socket type.
const SOCKET_FLAGS: u32 = (libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK) as u32;

/// Allowed with these combinations of arguments. Only pairs that stay connected: one of datagrams could send to every
/// socket of the host that has a path, such as that of its log, where no private root hides them. Landlock does not
/// cover that.
pub(super) const TOGETHER: &[&[ArgumentRule]] = &[
    allowed![
        SYS_socketpair[0] ArgumentTest::Is(libc::AF_UNIX as u32),
        SYS_socketpair[1] ArgumentTest::IsBut(SOCKET_FLAGS, libc::SOCK_STREAM as u32),
    ],
    // Programs in Rust learn by it how a start of another one came out.
    allowed![
        SYS_socketpair[0] ArgumentTest::Is(libc::AF_UNIX as u32),
        SYS_socketpair[1] ArgumentTest::IsBut(SOCKET_FLAGS, libc::SOCK_SEQPACKET as u32),
    ],
];

/// If connections are allowed, with any argument: the namespace and the access rules limit the destinations.
pub(super) const CONNECT: &[Call] = calls![SYS_connect];

/// A socket for TCP, by this protocol.
const fn stream(protocol: i32) -> [ArgumentRule; 3] {
    *allowed![
        SYS_socket[0] ArgumentTest::Is(libc::AF_INET as u32),
        SYS_socket[1] ArgumentTest::IsBut(SOCKET_FLAGS, libc::SOCK_STREAM as u32),
        SYS_socket[2] ArgumentTest::Is(protocol as u32),
    ]
}

/// One option of a socket.
const fn option(level: i32, name: i32) -> [ArgumentRule; 2] {
    *allowed![
        SYS_setsockopt[1] ArgumentTest::Is(level as u32),
        SYS_setsockopt[2] ArgumentTest::Is(name as u32),
    ]
}

/// If connections are allowed, also with these. The proxy is reached by IPv4.
pub(super) const CONNECT_TOGETHER: &[&[ArgumentRule]] = &[
    &stream(0),
    &stream(libc::IPPROTO_TCP),
    &option(libc::SOL_SOCKET, libc::SO_KEEPALIVE),
    &option(libc::SOL_SOCKET, libc::SO_REUSEADDR),
    &option(libc::SOL_SOCKET, libc::SO_RCVTIMEO),
    &option(libc::SOL_SOCKET, libc::SO_SNDTIMEO),
    &option(libc::IPPROTO_TCP, libc::TCP_NODELAY),
    &option(libc::IPPROTO_TCP, libc::TCP_KEEPIDLE),
    &option(libc::IPPROTO_TCP, libc::TCP_KEEPINTVL),
    &option(libc::IPPROTO_TCP, libc::TCP_KEEPCNT),
];
