//! What one process wrote another one reads, whoever dies in between.

use std::time::Duration;

use futures_util::future::try_join_all;
use mooring_tests::code::{CodeVolume, Coder};
use mooring_tests::gateway::Gateway;
use mooring_tests::process_tree::{descendants, is_running, name_of};
use mooring_tests::redis::Redis;
use mooring_tests::wait;
use serde_json::json;

use crate::recovery::counted;

/// How long something that is under way may take on a busy machine.
const SEEN_WITHIN: Duration = Duration::from_secs(30);

struct Scene {
    volume: CodeVolume,
    gateways: Vec<Gateway>,
    _redis: Redis,
}

impl Scene {
    async fn start(count: usize) -> anyhow::Result<Self> {
        let (volume, redis) = (CodeVolume::new()?, Redis::start().await?);
        let gateways = Gateway::fleet(count, &volume.settings(&redis.url())).await?;
        Ok(Self {
            volume,
            gateways,
            _redis: redis,
        })
    }

    async fn coder(&self, user: &str) -> anyhow::Result<Coder> {
        let all: Vec<&Gateway> = self.gateways.iter().collect();
        Coder::open(&all, user).await
    }

    async fn coder_of(&self, gateway: usize, user: &str) -> anyhow::Result<Coder> {
        Coder::open(&[&self.gateways[gateway]], user).await
    }
}

#[tokio::test]
async fn every_way_of_writing_is_read_by_every_way_of_reading() -> anyhow::Result<()> {
    let scene = Scene::start(3).await?;
    let mut ada = scene.coder("ada@example.org").await?;
    ada.write("/scratch/by-fs", "fs\n").await?;
    assert_eq!(ada.read("/scratch/by-fs").await?, "fs\n");
    assert_eq!(
        ada.python("print(open('/scratch/by-fs').read())").await?,
        "fs"
    );
    ada.python("open('/results/by-python', 'w').write('python')")
        .await?;
    assert_eq!(ada.names("/results").await?, ["by-python"]);
    assert_eq!(
        ada.python("print(open('/results/by-python').read())")
            .await?,
        "python"
    );
    let answer = ada
        .done(
            "shell_exec",
            json!({"code": "cat /results/by-python | wc -c"}),
        )
        .await?;
    assert_eq!(
        answer["output"].as_str().map(str::trim),
        Some("6"),
        "{answer}"
    );
    ada.python("import os; os.remove('/scratch/by-fs'); os.makedirs('/scratch/d/e')")
        .await?;
    assert_eq!(ada.names("/scratch").await?, ["d"]);
    let (answer, is_error) = ada
        .call("fs_read", json!({"path": "/scratch/by-fs"}))
        .await?;
    assert!(is_error, "{answer}");
    Ok(())
}

#[tokio::test]
async fn processes_that_begin_one_session_at_once_begin_it_once() -> anyhow::Result<()> {
    let scene = Scene::start(4).await?;
    let writers = (0..scene.gateways.len()).map(|gateway| {
        let scene = &scene;
        async move {
            let mut ada = scene.coder_of(gateway, "ada@example.org").await?;
            ada.write(&format!("/scratch/{gateway}"), "here").await
        }
    });
    try_join_all(writers).await?;
    let mut ada = scene.coder("ada@example.org").await?;
    assert_eq!(ada.names("/scratch").await?, ["0", "1", "2", "3"]);
    assert_eq!(scene.volume.sessions()?.len(), 1);
    let made = counted(&scene.gateways, "mooring_code_vfs_cache_misses_total", &[]).await?;
    assert_eq!(made, 1);
    Ok(())
}

#[tokio::test]
async fn runs_of_one_session_are_one_at_a_time_and_lose_no_write() -> anyhow::Result<()> {
    let scene = Scene::start(3).await?;
    let count = "import time\n\
                 try: n = int(open('/scratch/n').read())\n\
                 except FileNotFoundError: n = 0\n\
                 time.sleep(0.05)\n\
                 open('/scratch/n', 'w').write(str(n + 1))";
    const RUNS_EACH: usize = 6;
    let workers = (0..scene.gateways.len()).map(|gateway| {
        let scene = &scene;
        async move {
            let mut ada = scene.coder_of(gateway, "ada@example.org").await?;
            for _ in 0..RUNS_EACH {
                ada.python(count).await?;
            }
            anyhow::Ok(())
        }
    });
    try_join_all(workers).await?;
    let mut ada = scene.coder("ada@example.org").await?;
    let total = scene.gateways.len() * RUNS_EACH;
    assert_eq!(ada.read("/scratch/n").await?, total.to_string());
    Ok(())
}

#[tokio::test]
async fn a_worker_killed_in_mid_run_leaves_the_session_to_the_next() -> anyhow::Result<()> {
    let mut scene = Scene::start(2).await?;
    let mut first = scene.coder_of(0, "ada@example.org").await?;
    first.write("/scratch/before", "kept").await?;
    // The run holds the session's lock, and its turn.
    let code = "import time\nopen('/scratch/half', 'w').write('half')\ntime.sleep(25)";
    let run = tokio::spawn(async move { first.python(code).await });
    let killed = scene.gateways[0].process().id();
    wait::until_true("the run has begun", SEEN_WITHIN, async || {
        let mut names = descendants(killed)?.into_iter().filter_map(name_of);
        Ok(names.any(|name| name.starts_with("python")))
    })
    .await?;
    let tree = descendants(killed)?;
    scene.gateways[0].process().kill_now()?;
    assert!(run.await?.is_err(), "its worker was killed");
    wait::until_true("nothing of the run is left", SEEN_WITHIN, async || {
        Ok(tree.iter().all(|pid| !is_running(*pid)))
    })
    .await?;
    let mut second = scene.coder_of(1, "ada@example.org").await?;
    assert_eq!(second.read("/scratch/before").await?, "kept");
    // A run that did not end has not written.
    assert_eq!(
        second
            .python("import os; print(os.listdir('/scratch'))")
            .await?,
        "['before']"
    );
    Ok(())
}

#[tokio::test]
async fn users_with_one_slug_never_meet() -> anyhow::Result<()> {
    let scene = Scene::start(2).await?;
    // Each pair reads the same once it is cut down to letters and digits.
    for (one, other) in [
        ("a.b@example.org", "a-b@example.org"),
        ("c+d@example.org", "c_d@example.org"),
        ("E.F@example.org", "e.f@example.org"),
    ] {
        let (mut first, mut second) = (scene.coder(one).await?, scene.coder(other).await?);
        first.write("/scratch/mine", one).await?;
        let (answer, is_error) = second
            .call("fs_read", json!({"path": "/scratch/mine"}))
            .await?;
        assert!(is_error, "{answer}");
        second.write("/scratch/mine", other).await?;
        assert_eq!(first.read("/scratch/mine").await?, one);
        assert_eq!(second.read("/scratch/mine").await?, other);
    }
    Ok(())
}
