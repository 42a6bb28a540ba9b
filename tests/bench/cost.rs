//! What a process costs, as Linux counts it: CPU time so far, and resident memory now (proc(5)).

use anyhow::Context;
use mooring_tests::redis::Redis;

/// Ticks per second of the CPU times in `/proc/PID/stat`. The kernel scales them to this for every program.
const TICKS_PER_SECOND: f64 = 100.0;

const KIB_PER_MIB: f64 = 1024.0;

/// One reading. The default is the cost of nothing.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Cost {
    /// User and system time of all threads.
    pub(crate) cpu_seconds: f64,
    /// Resident memory.
    pub(crate) resident_mib: f64,
}

impl Cost {
    pub(crate) fn of(process: u32) -> anyhow::Result<Self> {
        let stat = read(process, "stat")?;
        // The second field is the program's name in parentheses, and may hold anything but the last one.
        let (_, fields) = stat.rsplit_once(") ").context("a program's name")?;
        // Of the fields after the name, user and system time are the 12th and 13th.
        let ticks: u64 = fields
            .split(' ')
            .skip(11)
            .take(2)
            .map(|field| field.parse::<u64>().context("a CPU time"))
            .sum::<anyhow::Result<u64>>()?;
        let status = read(process, "status")?;
        let resident_kib: f64 = status
            .lines()
            .find_map(|line| line.strip_prefix("VmRSS:"))
            .and_then(|rest| rest.split_whitespace().next())
            .context("VmRSS")?
            .parse()
            .context("VmRSS")?;
        Ok(Self {
            cpu_seconds: ticks as f64 / TICKS_PER_SECOND,
            resident_mib: resident_kib / KIB_PER_MIB,
        })
    }
}

/// What a Redis server has done since it was started, as it counts it: to the microsecond, where `/proc` has ticks.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct StoreCost {
    /// User and system time.
    pub(crate) cpu_seconds: f64,
    /// Commands about sessions.
    pub(crate) commands: u64,
}

impl StoreCost {
    pub(crate) fn of(redis: &Redis) -> anyhow::Result<Self> {
        let info = redis.cli(&["INFO", "cpu", "commandstats"])?;
        let mut cost = Self::default();
        for line in info.lines() {
            let (name, value) = line.trim().split_once(':').unwrap_or_default();
            if name == "used_cpu_user" || name == "used_cpu_sys" {
                cost.cpu_seconds += value.parse::<f64>().context("a CPU time")?;
            }
            if name.starts_with("cmdstat_session.") {
                let calls = value
                    .split(',')
                    .find_map(|field| field.strip_prefix("calls="));
                cost.commands += calls.context("calls")?.parse::<u64>().context("calls")?;
            }
        }
        Ok(cost)
    }

    /// What it has done since then.
    pub(crate) fn since(self, before: Self) -> Self {
        Self {
            cpu_seconds: self.cpu_seconds - before.cpu_seconds,
            commands: self.commands - before.commands,
        }
    }
}

fn read(process: u32, name: &str) -> anyhow::Result<String> {
    let path = format!("/proc/{process}/{name}");
    std::fs::read_to_string(&path).context(path)
}
