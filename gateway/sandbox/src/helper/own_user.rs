//! Step: a dedicated user for a run of the degraded tier, if the host is root.
//!
//! Every run gets a uid that no account and no other run has, so that file permissions keep it from everything else on
//! the machine, and the kernel counts its processes separately. A host that is an ordinary user cannot change to
//! another user, nor can root of a user namespace without such a uid: the run then shares the host's uid, and its
//! process limit is added to the number of processes that this user already has.

use std::fs;

use rustix::fs::{Gid, Uid};
use rustix::process::geteuid;
use rustix::rand::{GetRandomFlags, getrandom};
use rustix::thread::{
    CapabilitySet, capabilities, set_thread_groups, set_thread_res_gid, set_thread_res_uid,
};

use super::error::{HelperStep, StepError, at};

/// The first user id of runs, above those of accounts and of the ranges that container engines assign.
const NUMBERS_FROM: u32 = 0x7000_0000;

/// How many there are, as a mask.
const NUMBERS_MASK: u32 = 0x00ff_ffff;

/// The capabilities that root needs, here and later for the run's files.
const NEEDED: CapabilitySet = CapabilitySet::SETUID
    .union(CapabilitySet::SETGID)
    .union(CapabilitySet::CHOWN)
    .union(CapabilitySet::FOWNER)
    .union(CapabilitySet::DAC_OVERRIDE)
    .union(CapabilitySet::KILL);

/// A number that only this run has, as user and as group.
#[derive(Debug, Clone, Copy)]
pub(super) struct OwnUser(u32);

impl OwnUser {
    /// A uid for this run; none if the host is an ordinary user of the machine.
    pub(super) fn choose() -> Result<Option<Self>, StepError> {
        match kind_of_host() {
            HostKind::Ordinary => return Ok(None),
            HostKind::RootAlone => {
                return Err(HelperStep::IDENTITY.words(
                    "the machine's root stands in a user namespace without another user: run the gateway as an ordinary user",
                ));
            }
            HostKind::Root => {}
        }
        let has = capabilities(None).map_err(HelperStep::IDENTITY.at("capget"))?;
        if !has.effective.contains(NEEDED) {
            return Err(HelperStep::IDENTITY.words(
                "root lacks a capability that it needs to become another user: run the gateway as an ordinary user",
            ));
        }
        let mut bytes = [0; 4];
        getrandom(&mut bytes, GetRandomFlags::empty())
            .map_err(HelperStep::IDENTITY.at("getrandom"))?;
        let number = u32::from_ne_bytes(bytes) & NUMBERS_MASK;
        Ok(Some(Self(NUMBERS_FROM | number)))
    }

    pub(super) fn uid(self) -> Uid {
        Uid::from_raw(self.0)
    }

    pub(super) fn gid(self) -> Gid {
        Gid::from_raw(self.0)
    }

    /// Becomes it, for good, without a further group.
    pub(super) fn become_it(self) -> Result<(), StepError> {
        let (user, group) = (self.uid(), self.gid());
        set_thread_groups(&[])
            .map_err(at("setgroups"))
            .and_then(|()| set_thread_res_gid(group, group, group).map_err(at("setresgid")))
            .and_then(|()| set_thread_res_uid(user, user, user).map_err(at("setresuid")))
            .map_err(HelperStep::IDENTITY.failed())
    }
}

/// The kind of user that the host process runs as.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum HostKind {
    /// It can become every user.
    Root,
    /// The machine's root, and no other user exists in its namespace.
    RootAlone,
    /// Whatever its uid in its namespace, an ordinary user of the machine.
    Ordinary,
}

/// The kind of user that this process runs as.
pub(crate) fn kind_of_host() -> HostKind {
    if !geteuid().is_root() {
        return HostKind::Ordinary;
    }
    let maps = ["/proc/self/uid_map", "/proc/self/gid_map"].map(|file| {
        let map = fs::read_to_string(file).unwrap_or_default();
        (
            mapped(&map, NUMBERS_FROM),
            mapped(&map, NUMBERS_FROM | NUMBERS_MASK),
            mapped(&map, 0),
        )
    });
    match maps {
        [(Some(_), Some(_), _), (Some(_), Some(_), _)] => HostKind::Root,
        [(_, _, Some(0)), _] => HostKind::RootAlone,
        _ => HostKind::Ordinary,
    }
}

/// The uid in the outer namespace that `number` is mapped to, if any. Each line of a map has the first uid inside, the
/// first outside, and the count.
fn mapped(map: &str, number: u32) -> Option<u32> {
    map.lines().find_map(|line| {
        let mut fields = line.split_whitespace().map(str::parse::<u32>);
        let (inside, outside, count) = (
            fields.next()?.ok()?,
            fields.next()?.ok()?,
            fields.next()?.ok()?,
        );
        let offset = number.checked_sub(inside)?;
        (offset < count).then(|| outside.checked_add(offset))?
    })
}

/// How many processes and threads this process's user has on the machine, which count against the same limit.
pub(super) fn running_already() -> u32 {
    let own = geteuid().as_raw().to_string();
    let Ok(processes) = fs::read_dir("/proc") else {
        return 0;
    };
    processes
        .flatten()
        .filter_map(|entry| fs::read_to_string(entry.path().join("status")).ok())
        .filter(|status| field(status, "Uid:") == Some(own.as_str()))
        .filter_map(|status| field(&status, "Threads:")?.parse::<u32>().ok())
        .sum()
}

/// The first word after a line's name.
fn field<'a>(status: &'a str, name: &str) -> Option<&'a str> {
    let line = status.lines().find_map(|line| line.strip_prefix(name))?;
    line.split_whitespace().next()
}
