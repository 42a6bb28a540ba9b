//! Runs: how each of them ends, how many there may be, and whose files they see.

use std::time::Duration;

use anyhow::Context;
use mooring_tests::code::{CodeVolume, Coder, SERVER};
use mooring_tests::gateway::{Gateway, Settings};
use mooring_tests::process_tree::{descendants, is_running, name_of};
use mooring_tests::redis::Redis;
use mooring_tests::wait;
use serde_json::json;

use super::{ADA, Scene, text};

/// How long a run may take to begin on a busy machine.
const BEGUN_WITHIN: Duration = Duration::from_secs(30);
/// How long a worker may take to stop: the time for open calls, and some for its runs to die.
const ENDED_WITHIN: Duration = Duration::from_secs(30);

#[tokio::test]
async fn a_run_is_answered_with_what_it_did() -> anyhow::Result<()> {
    let mut scene = Scene::start().await?;
    let code = "import sys\nprint('out')\nprint('err', file=sys.stderr)\n\
                open('/results/r.txt', 'w').write('kept')";
    let answer = scene
        .coder
        .done("shell_exec", json!({"code": code}))
        .await?;
    assert_eq!(answer["output"], "out\n");
    assert_eq!(answer["error"], "err\n");
    assert_eq!(answer["tool_calls_made"], json!([]));
    assert_eq!(answer["run_id"], answer["metrics"]["run_id"]);
    let metrics = &answer["metrics"];
    for (field, expected) in [
        ("outcome", json!("completed")),
        ("runtime", json!("python")),
        ("exit_code", json!(0)),
        ("bytes_written", json!(4)),
        ("bytes_error", json!(4)),
        ("tool_call_count", json!(0)),
        ("limits_hit", json!([])),
    ] {
        assert_eq!(metrics[field], expected, "{field}");
    }
    assert_eq!(metrics["isolation"]["tier"], "strict");
    assert_eq!(metrics["files"]["written"], 1);
    assert_eq!(text(metrics, "/code_hash").len(), 64);
    for measured in ["wall_time_ms", "cpu_time_ms", "memory_peak_bytes"] {
        assert!(
            metrics[measured].as_f64() > Some(0.0),
            "{measured}: {metrics}"
        );
    }
    assert_eq!(scene.coder.read("/results/r.txt").await?, "kept");
    assert_eq!(scene.volume.sessions()?.len(), 1);
    assert_eq!(scene.runs("completed").await?, 1.0);
    Ok(())
}

#[tokio::test]
async fn the_one_line_shell_reads_files_and_refuses_the_rest() -> anyhow::Result<()> {
    let mut scene = Scene::start().await?;
    scene.coder.write("/scratch/b.txt", "b\n").await?;
    scene.coder.write("/scratch/a.txt", "a\na\n").await?;
    for (line, expected) in [
        ("ls /scratch", "a.txt\nb.txt\n"),
        ("cat /scratch/*.txt | sort -u | wc -l", "2\n"),
        ("grep -c 'a' /scratch/a.txt", "2\n"),
        ("cat \"/scratch/*.txt\" /scratch/b.txt", "b\n"),
    ] {
        let (answer, _) = scene
            .coder
            .call("shell_exec", json!({"code": line}))
            .await?;
        assert_eq!(answer["output"], expected, "{line}: {answer}");
        assert_eq!(answer["metrics"]["runtime"], "shell", "{line}: {answer}");
    }
    for (line, named, exit_code, outcome) in [
        (
            "ls; cat /scratch/a.txt",
            "\";\" at character 3",
            2,
            "failed",
        ),
        (
            "cat /scratch/a.txt > /results/x",
            "\">\" at character 20",
            2,
            "failed",
        ),
        ("ls | sh", "\"sh\" is not a command", 126, "failed"),
        ("find /scratch -exec cat x", "-exec", 126, "blocked"),
    ] {
        let answer = scene.failed(json!({"code": line})).await?;
        assert!(text(&answer, "/error").contains(named), "{line}: {answer}");
        assert_eq!(
            answer["metrics"]["exit_code"], exit_code,
            "{line}: {answer}"
        );
        assert_eq!(answer["metrics"]["outcome"], outcome, "{line}: {answer}");
    }
    Ok(())
}

#[tokio::test]
async fn a_session_at_its_limit_of_files_can_be_cleaned_up() -> anyhow::Result<()> {
    let few = |settings: Settings| settings.env("MOORING_CODE_DEFAULT_MAX_FILES", "200");
    let mut scene = Scene::start_with(few).await?;
    // 10 directories of 18 files each, and 10 files beside them.
    let fill = "import os\nfor d in range(10):\n    os.mkdir(f'/scratch/{d}')\n    \
                for f in range(18):\n        open(f'/scratch/{d}/{f}', 'w').write('x')\n\
                for f in range(10):\n    open(f'/results/{f}', 'w').close()";
    scene.coder.python(fill).await?;
    // What goes beyond the limit is refused as a whole, and nothing changes.
    let beyond = "import os\nos.remove('/results/0')\nfor n in range(5):\n    open(f'/scratch/new-{n}', 'w').close()";
    let answer = scene
        .failed(json!({"code": beyond, "language": "python"}))
        .await?;
    let error = text(&answer, "/error");
    assert!(error.contains("none of its files were kept"), "{error}");
    assert!(
        error.contains("204 files and directories, and may have 200"),
        "{error}"
    );
    assert_eq!(scene.coder.names("/scratch").await?.len(), 10);
    assert_eq!(scene.coder.names("/results").await?.len(), 10);
    // Everything goes in one run, and there is room for as much again.
    let clean = "import os, shutil\nfor top in ('/scratch', '/results'):\n    for name in os.listdir(top):\n        \
                 path = os.path.join(top, name)\n        \
                 shutil.rmtree(path) if os.path.isdir(path) else os.remove(path)\nprint('clean')";
    assert_eq!(scene.coder.python(clean).await?, "clean");
    assert!(scene.coder.names("/scratch").await?.is_empty());
    assert!(scene.coder.names("/results").await?.is_empty());
    scene.coder.python(fill).await?;
    Ok(())
}

#[tokio::test]
async fn every_way_a_run_can_end_is_told_apart() -> anyhow::Result<()> {
    let mut scene =
        Scene::start_with(|settings| settings.env("MOORING_CODE_DEFAULT_MAX_CPU_TIME_MS", "300"))
            .await?;
    let mut check = async |code: &str, timeout_ms: u64, outcome: &str, said: &str| {
        let arguments = json!({"code": code, "language": "python", "timeout_ms": timeout_ms});
        let answer = scene.failed(arguments).await?;
        assert_eq!(answer["metrics"]["outcome"], outcome, "{code}: {answer}");
        assert!(text(&answer, "/error").contains(said), "{code}: {answer}");
        assert!(answer["output"].is_string(), "{code}: {answer}");
        anyhow::Ok(answer)
    };
    let exit = check(
        "import sys; print('x'); sys.exit(3)",
        20_000,
        "failed",
        "exit code 3",
    )
    .await?;
    assert_eq!(exit["metrics"]["exit_code"], 3);
    assert_eq!(exit["output"], "x\n");
    check("1 / 0", 20_000, "failed", "ZeroDivisionError").await?;
    let signal = check("import os; os.abort()", 20_000, "failed", "signal 6").await?;
    assert_eq!(signal["metrics"]["signal"], 6);
    let late = check(
        "import time; time.sleep(60)",
        200,
        "timed_out",
        "longer than 200 ms",
    )
    .await?;
    assert_eq!(
        late["metrics"]["limits_hit"],
        json!(["max_execution_time_ms"])
    );
    let busy = check(
        "while True: pass",
        20_000,
        "killed",
        "300 ms of processor time",
    )
    .await?;
    assert_eq!(busy["metrics"]["limits_hit"], json!(["max_cpu_time_ms"]));
    let blocked = check(
        "x = 1\nbreakpoint()",
        20_000,
        "blocked",
        "\"breakpoint\" in line 2",
    );
    assert_eq!(blocked.await?["metrics"]["pattern"], "breakpoint");
    for (outcome, count) in [
        ("failed", 3.0),
        ("timed_out", 1.0),
        ("killed", 1.0),
        ("blocked", 1.0),
    ] {
        assert_eq!(scene.runs(outcome).await?, count, "{outcome}");
    }
    // What looks dangerous and is not.
    let harmless = "import re\nprint(re.compile('a').match('a') is not None, isinstance(1, int))";
    assert_eq!(scene.coder.python(harmless).await?, "True True");
    Ok(())
}

#[tokio::test]
async fn runs_are_counted_over_all_gateways() -> anyhow::Result<()> {
    let (volume, redis) = (CodeVolume::new()?, Redis::start().await?);
    let settings = Settings::toml(format!(
        "[store]\nurl = {:?}\n\n[[servers]]\nid = {SERVER:?}\nkind = \"code\"\nallow = [{{}}]\n\
         [servers.sandbox_policy]\nmax_runs_per_minute = 4\n",
        redis.url()
    ))
    .env(
        "MOORING_CODE_BASE_DIR",
        &volume.path().display().to_string(),
    )
    .users_by_header();
    let gateways = Gateway::fleet(2, &settings).await?;
    let all: Vec<&Gateway> = gateways.iter().collect();
    let mut ada = Coder::open(&all, ADA).await?;
    let mut bob = Coder::open(&all, "bob@example.org").await?;
    for count in 1..=4 {
        assert_eq!(
            ada.python(&format!("print({count})")).await?,
            count.to_string()
        );
    }
    let (answer, is_error) = ada.call("shell_exec", json!({"code": "print(5)"})).await?;
    assert!(is_error, "{answer}");
    assert!(text(&answer, "/error").starts_with("rate limited: 4 runs a minute"));
    let retry_after_ms = answer["retry_after_ms"].as_u64().context("a time")?;
    assert!((1..=60_000).contains(&retry_after_ms), "{retry_after_ms}");
    assert_eq!(answer["output"], "");
    assert_eq!(answer.get("metrics"), None);
    assert_eq!(
        bob.python("print('bob')").await?,
        "bob",
        "everybody has their own"
    );
    assert_eq!(ada.names("/scratch").await?.len(), 0, "files are no runs");
    let mut limited = 0.0;
    for gateway in &gateways {
        limited += gateway
            .metric("mooring_code_rate_limited_total", &[])
            .await?;
    }
    assert_eq!(limited, 1.0);
    Ok(())
}

#[tokio::test]
async fn two_gateways_on_one_redis_share_a_session_and_users_do_not() -> anyhow::Result<()> {
    let (volume, redis) = (CodeVolume::new()?, Redis::start().await?);
    let gateways = Gateway::fleet(2, &volume.settings(&redis.url())).await?;
    let all: Vec<&Gateway> = gateways.iter().collect();
    // Both read alike in a path, and are two people.
    let mut ada = Coder::open(&all, "a.b@example.org").await?;
    let mut other = Coder::open(&all, "a-b@example.org").await?;
    ada.write("/scratch/mine", "1").await?;
    for expected in ["2", "3", "4"] {
        let code = "p = '/scratch/mine'\nn = int(open(p).read()) + 1\n\
                    open(p, 'w').write(str(n))\nprint(n)";
        assert_eq!(ada.python(code).await?, expected);
    }
    assert_eq!(ada.read("/scratch/mine").await?, "4");
    assert_eq!(other.names("/scratch").await?.len(), 0);
    assert_eq!(volume.sessions()?.len(), 2);
    Ok(())
}

#[tokio::test]
async fn a_worker_that_stops_ends_its_runs_and_leaves_none_behind() -> anyhow::Result<()> {
    let mut scene = Scene::start().await?;
    let mut session = scene.session().await?;
    let code = "import time\nopen('/scratch/begun', 'w').write('yes')\ntime.sleep(60)";
    let params = json!({"name": "shell_exec", "arguments": {"code": code}});
    let call = session.request_body("tools/call", params);
    let caller = tokio::spawn(async move { session.post(&call).await.map(drop) });
    let gateway = scene.gateway.process().id();
    wait::until_true("the run to begin", BEGUN_WITHIN, async || {
        let mut names = descendants(gateway)?.into_iter().filter_map(name_of);
        Ok(names.any(|name| name.starts_with("python")))
    })
    .await?;
    let begun = descendants(gateway)?;
    // It lets open calls finish first, for longer than this waits.
    let _ = scene.gateway.process().terminate().await;
    assert!(scene.gateway.process().ended(ENDED_WITHIN).await?.success());
    for process in begun {
        assert!(!is_running(process), "{process} outlived its worker");
    }
    drop(caller.await?);
    Ok(())
}
