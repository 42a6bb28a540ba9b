//! SDK clients that negotiate 2026-07-28 themselves, at fastmcp, whose state is that of a session.

use mooring_tests::code::USER;
use mooring_tests::fleet::settings_toml;
use mooring_tests::gateway::{Gateway, Settings};
use mooring_tests::redis::Redis;
use mooring_tests::script::{Answers, run_client_for};
use mooring_tests::servers::Server;
use serde_json::{Value, json};

/// What the Python SDK counts at three gateways, with these further arguments.
async fn counts(continuity: &str, more: &[&str]) -> anyhow::Result<Vec<Value>> {
    let (server, redis) = tokio::try_join!(Server::python_counting("one"), Redis::start())?;
    let toml =
        settings_toml(&redis.url(), &[server.url()]) + &format!("continuity = {continuity:?}\n");
    let gateways = Gateway::fleet(3, &Settings::toml(toml).users_by_header()).await?;
    let endpoints: Vec<String> = gateways
        .iter()
        .map(|gateway| gateway.mcp_url("tools"))
        .collect();
    let calls = Value::from(vec![json!({"name": "increment", "arguments": {}}); 4]).to_string();
    let user = format!("{USER}=ada");
    let mut words = vec!["--mode", "auto", "--header", &user, "--calls", &calls];
    for endpoint in &endpoints {
        words.extend(["--url", endpoint]);
    }
    words.extend(more);
    let answers: Answers = run_client_for("answers.py", &words).await?;
    let mut without_session = 0.0;
    for gateway in &gateways {
        let labels = ["method=\"tools/call\"", "era=\"modern\""];
        without_session += gateway
            .metric("mooring_request_duration_seconds_count", &labels)
            .await?;
    }
    assert!(
        without_session >= 4.0,
        "it has negotiated the revision: {without_session}"
    );
    let counts = answers.answers.into_iter();
    Ok(counts
        .map(|answer| answer.structured["count"].clone())
        .collect())
}

/// It keeps the cookie, and knows nothing of it.
#[tokio::test]
async fn the_python_sdk_counts_by_the_cookie() -> anyhow::Result<()> {
    assert_eq!(counts("header", &[]).await?, [1, 2, 3, 4]);
    Ok(())
}

#[tokio::test]
async fn the_python_sdk_counts_by_a_header_of_its_own() -> anyhow::Result<()> {
    let counted = counts("header", &["--header", "mooring-session=work"]).await?;
    assert_eq!(counted, [1, 2, 3, 4]);
    Ok(())
}

#[tokio::test]
async fn the_python_sdk_counts_by_its_user() -> anyhow::Result<()> {
    assert_eq!(counts("principal", &[]).await?, [1, 2, 3, 4]);
    Ok(())
}
