//! The table of ADR-0042, repeated as it was measured: three groups of 24 processes, one volume, one Redis, and one
//! client whose requests reach another process each time. It counted 17 sessions for 20 requests, 44 orphan
//! directories and 1,415 orphan files. Here it has to be one session, and nothing besides it.

use std::collections::BTreeMap;
use std::io::Write as _;

use anyhow::Context;
use futures_util::future::try_join_all;
use mooring_tests::code::{CodeVolume, Coder, SERVER};
use mooring_tests::gateway::Gateway;
use mooring_tests::redis::Redis;
use serde_json::json;

use crate::recovery::counted;

/// Containers of the measured system, and gateway processes in each.
const GROUPS: usize = 3;
const PROCESSES: usize = 24;
/// Requests of the one client.
const REQUESTS: usize = 20;
/// Clients at once.
const CLIENTS: usize = 50;
/// Gateways started at the same time: all of them at once would only wait for one another.
const STARTED_AT_ONCE: usize = 8;

/// The fleet. The order of its gateways is such that consecutive requests go to another group each.
async fn fleet(volume: &CodeVolume, redis: &Redis) -> anyhow::Result<Vec<Gateway>> {
    let settings = volume.settings(&redis.url());
    let names: Vec<String> = (0..PROCESSES)
        .flat_map(|process| (0..GROUPS).map(move |group| format!("group-{group}-{process}")))
        .collect();
    let mut gateways = Vec::new();
    for chunk in names.chunks(STARTED_AT_ONCE) {
        let starting = chunk
            .iter()
            .map(|name| Gateway::start(name, settings.clone()));
        gateways.extend(try_join_all(starting).await?);
    }
    Ok(gateways)
}

/// The records of code sessions in Redis.
fn records(redis: &Redis) -> anyhow::Result<Vec<String>> {
    let found = redis.cli(&["--scan", "--pattern", "mcpgw:code_exec_session:*"])?;
    Ok(found.lines().map(str::to_owned).collect())
}

fn generation(redis: &Redis, key: &str) -> anyhow::Result<String> {
    let identity = redis.cli(&["HGET", key, "id"])?;
    let generation = identity.split(' ').next().filter(|word| !word.is_empty());
    Ok(generation.context("no generation")?.to_owned())
}

#[tokio::test]
#[ignore = "soak"]
async fn soak_twenty_requests_over_seventy_two_processes_share_one_session() -> anyhow::Result<()> {
    let (volume, redis) = (CodeVolume::new()?, Redis::start().await?);
    let gateways = fleet(&volume, &redis).await?;
    let all: Vec<&Gateway> = gateways.iter().collect();
    let mut ada = Coder::open(&all, "ada@example.org").await?;

    let count = "import os\n\
                 n = int(open('/scratch/n').read()) if os.path.exists('/scratch/n') else 0\n\
                 open('/scratch/n', 'w').write(str(n + 1))\n\
                 print(n + 1)";
    let mut generations = BTreeMap::new();
    for request in 1..=REQUESTS {
        assert_eq!(ada.python(count).await?, request.to_string());
        let [key] = records(&redis)?
            .try_into()
            .map_err(|keys| anyhow::anyhow!("one record, and not {keys:?}"))?;
        *generations
            .entry(generation(&redis, &key)?)
            .or_insert(0_usize) += 1;
    }
    let reused = REQUESTS - generations.len();
    let [session] = volume
        .sessions()?
        .try_into()
        .map_err(|found| anyhow::anyhow!("one directory, and not {found:?}"))?;
    let resolved = counted(&gateways, "mooring_code_vfs_cache_misses_total", &[]).await?;
    let found = counted(&gateways, "mooring_code_vfs_cache_hits_total", &[]).await?;
    let orphans = volume.orphan_files()?;
    // Straight to the stream, because the figures are to be seen where the test passes, too.
    writeln!(
        std::io::stderr(),
        "{REQUESTS} requests of one client over {GROUPS} groups of {PROCESSES} processes: sessions {}, later requests \
         that reuse it {reused} of {}, directories {}, orphan files {}, tools resolved {resolved} time(s) \
         (ADR-0042 measured 17 sessions, 15 % reuse, 44 orphan directories, 1,415 orphan files)",
        generations.len(),
        REQUESTS - 1,
        volume.sessions()?.len(),
        orphans.len(),
    )?;
    assert_eq!(reused, REQUESTS - 1, "{generations:?}");
    assert_eq!((resolved, found), (1, REQUESTS as u64 - 1));
    assert!(orphans.is_empty(), "{orphans:?}");
    assert!(volume.own(".trash")?.is_empty());
    let user = session.parent().and_then(|user| user.file_name());
    let user = user.context("a user's directory")?.to_string_lossy();
    assert!(!user.contains('@'), "{user}");
    assert!(session.starts_with(volume.path().join(SERVER)));

    fifty_clients_at_once(&volume, &redis, &all).await
}

/// Part of the same test, because 72 processes are not started twice.
async fn fifty_clients_at_once(
    volume: &CodeVolume,
    redis: &Redis,
    gateways: &[&Gateway],
) -> anyhow::Result<()> {
    let before = volume.sessions()?.len();
    let clients = (0..CLIENTS).map(|number| async move {
        let endpoints = (0..gateways.len()).map(|n| gateways[(number * 7 + n) % gateways.len()]);
        let endpoints: Vec<&Gateway> = endpoints.collect();
        let mut coder = Coder::open(&endpoints, &format!("user-{number}@example.org")).await?;
        let mine = format!("only {number}");
        coder.write("/results/mine.txt", &mine).await?;
        assert_eq!(coder.read("/results/mine.txt").await?, mine);
        assert_eq!(coder.names("/results").await?, ["mine.txt"]);
        anyhow::Ok(())
    });
    try_join_all(clients).await?;
    assert_eq!(volume.sessions()?.len(), before + CLIENTS);
    assert_eq!(records(redis)?.len(), before + CLIENTS);
    assert_eq!(volume.orphan_files()?.len(), 0);
    // All of them see one tree of tools.
    assert_eq!(volume.own(".tools")?.len(), 1);
    locks_held(gateways).await
}

/// How long locks were held where sessions were made: each was made once, and the time is told. The bound of ADR-0042,
/// 50 ms in 95 of 100 cases, is a figure of docs/benchmarks.md and no assertion: a starved machine breaks no promise.
async fn locks_held(gateways: &[&Gateway]) -> anyhow::Result<()> {
    let (mut all, mut brief) = (0.0, 0.0);
    for gateway in gateways {
        let opened = "use=\"open\"";
        let name = "mooring_code_lock_held_seconds";
        all += gateway.metric(&format!("{name}_count"), &[opened]).await?;
        let within = [opened, "le=\"0.05\""];
        brief += gateway.metric(&format!("{name}_bucket"), &within).await?;
    }
    writeln!(
        std::io::stderr(),
        "sessions opened under the lock: {all}, of them within 50 ms: {brief}"
    )?;
    assert_eq!(all, CLIENTS as f64 + 1.0);
    Ok(())
}

#[tokio::test]
async fn without_redis_the_directory_is_still_one_and_nothing_is_lost() -> anyhow::Result<()> {
    let (volume, mut redis) = (CodeVolume::new()?, Redis::start().await?);
    let gateways = Gateway::fleet(3, &volume.settings(&redis.url())).await?;
    let all: Vec<&Gateway> = gateways.iter().collect();
    let mut ada = Coder::open(&all, "ada@example.org").await?;
    ada.write("/scratch/before", "with redis").await?;

    redis.process().kill_now()?;
    for (number, path) in ["/scratch/a", "/scratch/b", "/scratch/c"]
        .iter()
        .enumerate()
    {
        ada.write(path, &number.to_string()).await?;
    }
    let listed = ada
        .python("import os; print(sorted(os.listdir('/scratch')))")
        .await?;
    assert_eq!(listed, "['a', 'b', 'before', 'c']");
    // A user whom nobody has seen before is served too.
    let mut bob = Coder::open(&all, "bob@example.org").await?;
    bob.write("/scratch/bob", "while away").await?;
    assert_eq!(
        bob.python("print(open('/scratch/bob').read())").await?,
        "while away"
    );
    assert_eq!(volume.sessions()?.len(), 2);

    redis.restart().await?;
    for gateway in &gateways {
        mooring_tests::wait::until_true(
            "the store is back",
            mooring_tests::wait::STARTED_WITHIN,
            async || Ok(gateway.metric("mooring_degraded", &[]).await? == 0.0),
        )
        .await?;
    }
    let listed = ada
        .python("import os; print(sorted(os.listdir('/scratch')))")
        .await?;
    assert_eq!(listed, "['a', 'b', 'before', 'c']");
    assert_eq!(bob.read("/scratch/bob").await?, "while away");
    assert_eq!(volume.sessions()?.len(), 2);
    assert!(volume.own(".trash")?.is_empty());
    Ok(())
}

#[tokio::test]
async fn a_redis_that_forgot_everything_costs_no_file() -> anyhow::Result<()> {
    let (volume, redis) = (CodeVolume::new()?, Redis::start().await?);
    let gateways = Gateway::fleet(2, &volume.settings(&redis.url())).await?;
    let all: Vec<&Gateway> = gateways.iter().collect();
    let mut ada = Coder::open(&all, "ada@example.org").await?;
    ada.write("/results/kept", "kept").await?;
    redis.cli(&["FLUSHALL"])?;
    assert_eq!(ada.read("/results/kept").await?, "kept");
    let answer = ada.done("fs_browse", json!({"path": "/results"})).await?;
    assert_eq!(answer["truncated"], json!(false), "{answer}");
    assert_eq!(volume.sessions()?.len(), 1);
    Ok(())
}
