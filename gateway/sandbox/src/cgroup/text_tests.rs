//! The kernel's texts, as they were seen on machines of several kinds.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test says what it expects by failing"
)]

use super::*;

const HYBRID_MOUNTS: &str = "\
30 25 0:26 / /sys/fs/cgroup ro,nosuid - tmpfs tmpfs ro,mode=755
31 30 0:27 / /sys/fs/cgroup/memory rw,relatime - cgroup cgroup rw,memory
32 30 0:28 / /sys/fs/cgroup/cpu,cpuacct rw shared:9 - cgroup cgroup rw,cpu,cpuacct
33 30 0:29 / /sys/fs/cgroup/unified rw,relatime - cgroup2 cgroup2 rw,nsdelegate";
const HYBRID_MEMBERSHIP: &str =
    "4:memory:/service/one\n3:cpu,cpuacct:/\n1:name=systemd:/x\n0::/user.slice/a";

const CONTAINER_MOUNTS: &str = "\
40 25 0:27 /docker/abc /sys/fs/cgroup/memory ro - cgroup cgroup rw,memory
41 25 0:28 / /sys/fs/cgroup rw,nosuid - cgroup2 cgroup rw";
const CONTAINER_MEMBERSHIP: &str = "4:memory:/docker/abc/inner\n0::/";

#[test]
fn the_own_group_is_found_below_its_mount() {
    let check = |kind, mounts, membership, expected: Option<&str>| {
        assert_eq!(
            own_group(kind, mounts, membership),
            expected.map(PathBuf::from),
            "{kind:?}"
        );
    };
    let hybrid = |kind, expected| check(kind, HYBRID_MOUNTS, HYBRID_MEMBERSHIP, expected);
    hybrid(
        CgroupVersion::V1("memory"),
        Some("/sys/fs/cgroup/memory/service/one"),
    );
    hybrid(
        CgroupVersion::V1("cpu"),
        Some("/sys/fs/cgroup/cpu,cpuacct/"),
    );
    hybrid(
        CgroupVersion::V1("cpuacct"),
        Some("/sys/fs/cgroup/cpu,cpuacct/"),
    );
    hybrid(
        CgroupVersion::V2,
        Some("/sys/fs/cgroup/unified/user.slice/a"),
    );
    hybrid(CgroupVersion::V1("pids"), None);
    let container = |kind, expected| check(kind, CONTAINER_MOUNTS, CONTAINER_MEMBERSHIP, expected);
    container(
        CgroupVersion::V1("memory"),
        Some("/sys/fs/cgroup/memory/inner"),
    );
    container(CgroupVersion::V2, Some("/sys/fs/cgroup/"));
    // What is mounted is another container's part of the hierarchy.
    check(
        CgroupVersion::V1("memory"),
        CONTAINER_MOUNTS,
        "4:memory:/docker/other",
        None,
    );
}

#[test]
fn a_key_is_found_whole() {
    let text = "cache 1\nrss 20\nrss_huge 300\nshmem x\n";
    assert_eq!(value(text, "rss"), 20);
    assert_eq!(value(text, "rss_huge"), 300);
    assert_eq!(value(text, "shmem"), 0);
    assert_eq!(value(text, "missing"), 0);
}
