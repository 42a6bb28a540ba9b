#!/usr/bin/env bash
# A machine of its own on this one: clean-machine.sh WORK
#
# Namespaces for mounts, processes, host name, network and control groups; this machine's files below a writable layer,
# WORK/changed, which shows afterwards every file that was made or changed; and systemd as its first process, with nothing
# to start but what is asked of it. WORK/shared is /shared in it. It ends with this process.
set -euo pipefail

if [ "${2:-}" != inside ]; then
    exec unshare --mount --pid --fork --kill-child=KILL --uts --ipc --net --cgroup --propagation private \
        "$0" "$1" inside
fi
work=$1
root=$work/root
mkdir -p "$work"/{layers,shared,root}
# The layers may not be on an overlay themselves.
mount -t tmpfs layers "$work/layers"
mkdir "$work"/layers/{changed,work}
mount -t overlay -o "lowerdir=/,upperdir=$work/layers/changed,workdir=$work/layers/work" overlay "$root"
mount -t proc proc "$root/proc"
mount -t sysfs sysfs "$root/sys"
mount -t tmpfs cgroup "$root/sys/fs/cgroup"
mount -t cgroup2 cgroup2 "$root/sys/fs/cgroup"
mount -t tmpfs run "$root/run"
mount -t tmpfs tmp "$root/tmp"
mount --rbind /dev "$root/dev"
# Not in a directory that would be left in the changed layer.
mkdir "$root"/run/{shared,changed}
mount --bind "$work/shared" "$root/run/shared"
mount --bind "$work/layers/changed" "$root/run/changed"
# Without lists of packages apt has nothing to read, and installs what it is given a file of.
mount -t tmpfs lists "$root/var/lib/apt/lists"
ip link set lo up
install -d "$root/run/systemd/system"
printf '[Unit]\nDefaultDependencies=no\n' >"$root/run/systemd/system/clean.target"
# Not chroot: a process below one may make no user namespaces, which the sandbox needs.
mkdir "$root/run/before"
cd "$root"
pivot_root . run/before
cd /
umount --lazy /run/before
rmdir /run/before
exec env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin container=test SYSTEMD_LOG_TARGET=console \
    /lib/systemd/systemd --unit=clean.target --show-status=no
