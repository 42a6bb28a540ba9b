//! A code server in the degraded tier: files of a run are kept as in the strict one, and its places are told.

use mooring_tests::client::HttpClient;
use mooring_tests::gateway::Settings;
use serde_json::{Value, json};

use super::{Scene, text};

#[tokio::test]
async fn files_stay_from_run_to_run_and_the_tier_is_named() -> anyhow::Result<()> {
    let degraded = |settings: Settings| settings.env("MOORING_CODE_ISOLATION", "degraded");
    let mut scene = Scene::start_with(degraded).await?;
    scene
        .coder
        .write("/scratch/in.txt", "written before")
        .await?;
    let code = "import os\nprint(open('in.txt').read())\nos.unlink('in.txt')\n\
                open(os.environ['MOORING_RESULTS'] + '/r.txt', 'w').write('kept')";
    let answer = scene
        .coder
        .done("shell_exec", json!({"code": code}))
        .await?;
    assert_eq!(answer["output"], "written before\n");
    assert_eq!(answer["metrics"]["isolation"]["tier"], "degraded");
    assert_eq!(scene.coder.read("/results/r.txt").await?, "kept");
    let (answer, _) = scene
        .coder
        .call("shell_exec", json!({"code": "ls ../scratch ../results"}))
        .await?;
    assert_eq!(answer["output"], "../results:\nr.txt\n\n../scratch:\n");

    let greedy = "import time\nfor n in range(100000):\n    open(str(n), 'w').close()\n    time.sleep(0.0001)";
    let arguments = json!({"code": greedy, "language": "python", "timeout_ms": 30_000});
    let answer = scene.failed(arguments).await?;
    assert_eq!(answer["metrics"]["outcome"], "killed", "{answer}");
    assert!(text(&answer, "/error").contains("its files were more than"));
    assert_eq!(scene.coder.read("/results/r.txt").await?, "kept");

    let url = scene.gateway.url("/readyz");
    let ready: Value = HttpClient::default().get(&url).await?.json().await?;
    assert!(
        ready.to_string().contains("\"tier\":\"degraded\""),
        "{ready}"
    );
    Ok(())
}
