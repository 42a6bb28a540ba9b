//! Code sessions: what a run costs through the whole gateway against the interpreter alone, and what a thousand
//! sessions take of the disk and of memory.

use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use mooring_tests::code::{CodeVolume, Coder};
use mooring_tests::gateway::Gateway;
use mooring_tests::redis::Redis;
use serde_json::json;

use crate::cost::Cost;
use crate::figures::percentile;

/// Timed rounds, each with one of every kind of call.
const ROUNDS: usize = 200;
/// Rounds before them.
const WARM_UP: usize = 20;
const SESSIONS: usize = 1_000;

const PYTHON: &str = "/usr/bin/python3";
const PROGRAM: &str = "print(6 * 7)";
const BYTES_PER_BLOCK: u64 = 512;

/// The times of one kind of call.
struct Series {
    name: &'static str,
    taken: Vec<Duration>,
}

impl Series {
    fn new(name: &'static str) -> Self {
        Self {
            name,
            taken: Vec::with_capacity(ROUNDS),
        }
    }

    fn ms(&self, part: f64) -> f64 {
        let mut sorted = self.taken.clone();
        sorted.sort_unstable();
        percentile(&sorted, part).as_secs_f64() * 1000.0
    }
}

/// Both tables.
pub(crate) async fn measure() -> anyhow::Result<String> {
    let (volume, redis) = (CodeVolume::new()?, Redis::start().await?);
    let settings = volume.settings(&redis.url());
    let settings = settings.env("MOORING_CODE_DEFAULT_MAX_RUNS_PER_MINUTE", "1000");
    let mut gateway = Gateway::start("bench", settings).await?;
    let calls = calls(&gateway).await?;
    let sessions = sessions(&mut gateway, &volume, &redis).await?;
    Ok(format!("{calls}\n\n{sessions}"))
}

async fn calls(gateway: &Gateway) -> anyhow::Result<String> {
    let mut coder = Coder::open(&[gateway], "bench@example.org").await?;
    let mut bare = Series::new("`python3 -I -S -B`, bare");
    let mut run = Series::new("shell_exec, the same program");
    let mut write = Series::new("fs_write, 1 KiB");
    let mut read = Series::new("fs_read, 1 KiB");
    let mut browse = Series::new("fs_browse");
    let text = "x".repeat(1024);
    for round in 0..WARM_UP + ROUNDS {
        let mut taken = Vec::new();
        let mut started = Instant::now();
        let mut lap = || {
            taken.push(started.elapsed());
            started = Instant::now();
        };
        bare_run()?;
        lap();
        let output = coder.python(PROGRAM).await?;
        lap();
        ensure!(output == "42", "{output}");
        coder.write("/scratch/file", &text).await?;
        lap();
        coder.read("/scratch/file").await?;
        lap();
        coder.done("fs_browse", json!({"path": "/scratch"})).await?;
        lap();
        if round >= WARM_UP {
            let all = [&mut bare, &mut run, &mut write, &mut read, &mut browse];
            for (series, taken) in all.into_iter().zip(taken) {
                series.taken.push(taken);
            }
        }
    }
    let mut lines = vec![
        format!("### One call to a code server, {ROUNDS} rounds"),
        String::new(),
        "| | p50 ms | p95 ms | p50 against bare |".to_owned(),
        "|---|---|---|---|".to_owned(),
    ];
    for series in [&bare, &run, &write, &read, &browse] {
        lines.push(format!(
            "| {} | {:.2} | {:.2} | {:.2} |",
            series.name,
            series.ms(0.5),
            series.ms(0.95),
            series.ms(0.5) / bare.ms(0.5),
        ));
    }
    lines.push(String::new());
    lines.push(format!(
        "Added to a bare run, p50: {:.2} ms.",
        run.ms(0.5) - bare.ms(0.5)
    ));
    Ok(lines.join("\n"))
}

fn bare_run() -> anyhow::Result<()> {
    let output = Command::new(PYTHON)
        .args(["-I", "-S", "-B", "-c", PROGRAM])
        .env_clear()
        .stdin(Stdio::null())
        .output()
        .context("run python3")?;
    ensure!(output.stdout == b"42\n", "{output:?}");
    Ok(())
}

/// A thousand users, one file each.
async fn sessions(
    gateway: &mut Gateway,
    volume: &CodeVolume,
    redis: &Redis,
) -> anyhow::Result<String> {
    let gateway_before = Cost::of(gateway.process().id())?;
    let redis_before = used_memory(redis)?;
    let disk_before = taken(volume.path())?;
    for number in 0..SESSIONS {
        let mut coder = Coder::open(&[&*gateway], &format!("user-{number}@example.org")).await?;
        coder.write("/scratch/one", "1").await?;
    }
    let gateway_after = Cost::of(gateway.process().id())?;
    let disk = taken(volume.path())?;
    let per_session = |after: u64, before: u64| after.saturating_sub(before) / SESSIONS as u64;
    Ok([
        format!("### {SESSIONS} code sessions, one small file each"),
        String::new(),
        "| of one session | |".to_owned(),
        "|---|---|".to_owned(),
        format!(
            "| disk, bytes | {} |",
            per_session(disk.bytes, disk_before.bytes)
        ),
        format!(
            "| files and directories | {} |",
            per_session(disk.inodes, disk_before.inodes)
        ),
        format!(
            "| Redis, bytes | {} |",
            per_session(used_memory(redis)?, redis_before)
        ),
        String::new(),
        format!(
            "The gateway's RSS: {:.0} MiB before, {:.0} MiB after.",
            gateway_before.resident_mib, gateway_after.resident_mib
        ),
    ]
    .join("\n"))
}

fn used_memory(redis: &Redis) -> anyhow::Result<u64> {
    let info = redis.cli(&["INFO", "memory"])?;
    let line = info
        .lines()
        .find_map(|line| line.strip_prefix("used_memory:"));
    Ok(line.context("used_memory")?.trim().parse()?)
}

/// What a tree takes.
#[derive(Default)]
struct Taken {
    bytes: u64,
    inodes: u64,
}

fn taken(directory: &Path) -> anyhow::Result<Taken> {
    let mut total = Taken::default();
    let mut pending = vec![directory.to_owned()];
    while let Some(directory) = pending.pop() {
        for entry in std::fs::read_dir(directory)? {
            let path = entry?.path();
            let about = path.symlink_metadata()?;
            total.bytes += about.blocks() * BYTES_PER_BLOCK;
            total.inodes += 1;
            if about.is_dir() {
                pending.push(path);
            }
        }
    }
    Ok(total)
}
