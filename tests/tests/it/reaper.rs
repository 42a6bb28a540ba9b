//! The reaper: sessions that are over hold nothing upstream any more, and every upstream session is deleted once,
//! however many gateways look, and whichever of them dies.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use mooring_tests::advised_users::advised_users;
use mooring_tests::client::HttpClient;
use mooring_tests::fixture::Fixture;
use mooring_tests::fleet::settings_toml;
use mooring_tests::gateway::{Gateway, Settings};
use mooring_tests::redis::Redis;
use mooring_tests::session::McpSession;
use mooring_tests::wait;
use serde_json::json;
use tempfile::TempDir;

use crate::faulty::{Fate, FaultyProxy, Seen};
use crate::reaping::{
    CLEANED_WITHIN, calls, deletes_and_live, endpoints_of, key_of, open_sessions, reaped, reaping,
    records, until_no_record,
};

fn is_delete(seen: &Seen<'_>) -> bool {
    seen.text.starts_with("DELETE ")
}

async fn two_instances() -> anyhow::Result<(Fixture, Fixture)> {
    Ok((Fixture::start("a").await?, Fixture::start("b").await?))
}

/// Opens sessions, leaves them alone, and sees each of their upstream sessions deleted, once.
async fn check_expiry(
    gateways: &[Gateway],
    instances: &(Fixture, Fixture),
    sessions: usize,
) -> anyhow::Result<()> {
    let opened = open_sessions(&endpoints_of(gateways), sessions).await?;
    let instances = [&instances.0, &instances.1];
    wait::until_true(
        "every session to be cleaned up",
        CLEANED_WITHIN,
        async || Ok(reaped(gateways, "cleaned").await? == sessions as u64),
    )
    .await?;
    let left = deletes_and_live(&instances).await?;
    assert_eq!(left, (sessions as u64, 0), "one DELETE each, none left");
    for outcome in ["put_off", "unconfigured", "stale"] {
        assert_eq!(reaped(gateways, outcome).await?, 0, "{outcome}");
    }
    drop(opened);
    Ok(())
}

#[tokio::test]
async fn three_gateways_that_reap_at_once_delete_every_upstream_session_once() -> anyhow::Result<()>
{
    let instances = two_instances().await?;
    let redis = Redis::start().await?;
    let urls = [instances.0.url(), instances.1.url()];
    let gateways = Gateway::fleet(3, &reaping(&redis.url(), &urls)).await?;
    check_expiry(&gateways, &instances, 30).await?;
    until_no_record(&redis).await?;
    // Whoever looks again finds nothing more to do.
    let looked = calls(&redis, "session.reap")?;
    wait::until_true("further looks", CLEANED_WITHIN, async || {
        Ok(calls(&redis, "session.reap")? >= looked + 6)
    })
    .await?;
    let deletes = deletes_and_live(&[&instances.0, &instances.1]).await?.0;
    assert_eq!(deletes, 30);
    Ok(())
}

#[tokio::test]
async fn processes_on_one_file_delete_every_upstream_session_once() -> anyhow::Result<()> {
    let instances = two_instances().await?;
    let state = TempDir::with_prefix("mooring-shared-")?;
    let urls = [instances.0.url(), instances.1.url()];
    let settings = reaping("embedded", &urls).state_home(state.path());
    let gateways = Gateway::fleet(3, &settings).await?;
    check_expiry(&gateways, &instances, 12).await
}

#[tokio::test]
async fn a_gateway_killed_between_claim_and_forget_is_followed_by_another() -> anyhow::Result<()> {
    let fixture = Fixture::start("one").await?;
    let (is_held, held) = (
        Arc::new(AtomicBool::new(true)),
        Arc::new(AtomicUsize::new(0)),
    );
    let (judge_holds, judge_counts) = (Arc::clone(&is_held), Arc::clone(&held));
    let proxy = FaultyProxy::start(fixture.port(), move |seen| {
        if is_delete(seen) && judge_holds.load(Ordering::SeqCst) {
            judge_counts.fetch_add(1, Ordering::SeqCst);
            return Fate::Hold;
        }
        Fate::Forward
    })
    .await?;
    let redis = Redis::start().await?;
    let settings = reaping(&redis.url(), &[proxy.url()]);
    let mut killed = Gateway::start("killed", settings.clone()).await?;
    let sessions = open_sessions(&endpoints_of(std::slice::from_ref(&killed)), 3).await?;
    wait::until_true("every DELETE to be under way", CLEANED_WITHIN, async || {
        Ok(held.load(Ordering::SeqCst) >= 3)
    })
    .await?;
    killed.process().kill_now()?;
    is_held.store(false, Ordering::SeqCst);
    for session in &sessions {
        let who = redis.cli(&["HGET", &key_of(session), "z"])?;
        assert!(who.contains(" killed:"), "it holds the cleaning: {who}");
    }
    assert_eq!(deletes_and_live(&[&fixture]).await?, (0, 3));

    let heir = Gateway::start("heir", settings).await?;
    until_no_record(&redis).await?;
    assert_eq!(deletes_and_live(&[&fixture]).await?, (3, 0));
    assert_eq!(reaped(&[heir], "cleaned").await?, 3);
    Ok(())
}

#[tokio::test]
async fn a_client_that_deletes_its_session_leaves_nothing_to_the_reaper() -> anyhow::Result<()> {
    let fixture = Fixture::start("one").await?;
    let redis = Redis::start().await?;
    let gateways = Gateway::fleet(2, &reaping(&redis.url(), &[fixture.url()])).await?;
    let endpoints = endpoints_of(&gateways);
    let mut session = open_sessions(&endpoints, 1).await?.remove(0);
    let mut again = session.fork(&HttpClient::default(), &endpoints[1..]);
    let (first, second) = tokio::try_join!(session.delete(), again.delete())?;
    let mut statuses = [first.status.as_u16(), second.status.as_u16()];
    statuses.sort_unstable();
    assert_eq!(statuses, [204, 404], "one of them ended it");
    assert_eq!(records(&redis)?, Vec::<String>::new(), "no tombstone stays");
    assert_eq!(deletes_and_live(&[&fixture]).await?, (1, 0));
    Ok(())
}

/// The client is answered, and what it cannot have deleted now is left to the reaper, after the half minute that whoever
/// ends a session has for it.
#[tokio::test]
async fn what_a_client_could_not_delete_is_deleted_later() -> anyhow::Result<()> {
    let fixture = Fixture::start("one").await?;
    let is_away = Arc::new(AtomicBool::new(false));
    let judge_knows = Arc::clone(&is_away);
    let proxy = FaultyProxy::start(fixture.port(), move |seen| {
        if is_delete(seen) && judge_knows.load(Ordering::SeqCst) {
            Fate::Reset
        } else {
            Fate::Forward
        }
    })
    .await?;
    let redis = Redis::start().await?;
    let gateways = Gateway::fleet(2, &reaping(&redis.url(), &[proxy.url()])).await?;
    let mut session = open_sessions(&endpoints_of(&gateways), 1).await?.remove(0);
    is_away.store(true, Ordering::SeqCst);
    assert_eq!(session.delete().await?.status, 204);
    is_away.store(false, Ordering::SeqCst);
    assert_eq!(records(&redis)?, [key_of(&session)], "its tombstone stays");
    assert_eq!(deletes_and_live(&[&fixture]).await?, (0, 1));
    until_no_record(&redis).await?;
    assert_eq!(deletes_and_live(&[&fixture]).await?, (1, 0));
    Ok(())
}

/// An instance that cannot be reached keeps nobody else waiting, and is asked again until it can.
#[tokio::test]
async fn what_an_unreachable_instance_holds_is_deleted_when_it_is_back() -> anyhow::Result<()> {
    let (away, other) = two_instances().await?;
    let is_away = Arc::new(AtomicBool::new(false));
    let judge_knows = Arc::clone(&is_away);
    let proxy = FaultyProxy::start(away.port(), move |_| {
        if judge_knows.load(Ordering::SeqCst) {
            Fate::Reset
        } else {
            Fate::Forward
        }
    })
    .await?;
    let redis = Redis::start().await?;
    let urls = [proxy.url(), other.url()];
    let gateways = Gateway::fleet(2, &reaping(&redis.url(), &urls)).await?;
    let sessions = open_sessions(&endpoints_of(&gateways), 10).await?;
    let at_away = away.stats().await?.sessions_live;
    assert!((1..10).contains(&at_away), "both instances have sessions");
    is_away.store(true, Ordering::SeqCst);

    wait::until_true(
        "the sessions of the other one",
        CLEANED_WITHIN,
        async || {
            let cleaned = reaped(&gateways, "cleaned").await?;
            let refused = reaped(&gateways, "put_off").await?;
            Ok(cleaned == (10 - at_away) as u64 && refused >= at_away as u64)
        },
    )
    .await?;
    assert_eq!(deletes_and_live(&[&away, &other]).await?.1, at_away);
    assert_eq!(records(&redis)?.len(), at_away, "their tombstones stay");

    is_away.store(false, Ordering::SeqCst);
    until_no_record(&redis).await?;
    assert_eq!(deletes_and_live(&[&away, &other]).await?, (10, 0));
    drop(sessions);
    Ok(())
}

#[tokio::test]
async fn a_server_that_is_not_configured_any_more_is_said_to_keep_its_sessions()
-> anyhow::Result<()> {
    let (removed, other) = two_instances().await?;
    let redis = Redis::start().await?;
    let before =
        reaping(&redis.url(), &[removed.url()]).env("MOORING_AFFINITY_REAP_INTERVAL_MS", "3600000");
    let mut gateway = Gateway::start("before", before).await?;
    let sessions = open_sessions(&endpoints_of(std::slice::from_ref(&gateway)), 2).await?;
    gateway.process().kill_now()?;

    let mut gateways = vec![Gateway::start("after", reaping(&redis.url(), &[other.url()])).await?];
    until_no_record(&redis).await?;
    assert_eq!(reaped(&gateways, "unconfigured").await?, 2);
    assert_eq!(deletes_and_live(&[&removed, &other]).await?, (0, 2));
    let said = "the instance is not configured any more";
    let log = wait::until_logged(said, 2, || gateways[0].process().log_text()).await?;
    assert_eq!(log.matches(said).count(), 2, "{log}");
    drop(sessions);
    Ok(())
}

/// The policy `fail` ends a session whose upstream is lost at one server; what it holds at the other goes too.
#[tokio::test]
async fn a_session_given_up_at_one_server_is_deleted_at_the_other() -> anyhow::Result<()> {
    let (mut lost, other) = two_instances().await?;
    let redis = Redis::start().await?;
    let toml = settings_toml(&redis.url(), &[lost.url()])
        + &format!(
            "on_upstream_loss = \"fail\"\n\n[[servers]]\nid = \"more\"\nkind = \"http\"\ninstances = [{:?}]\n\
             [[servers]]\nid = \"all\"\nkind = \"group\"\nmembers = [\"tools\", \"more\"]\n",
            other.url()
        );
    let gateway = Gateway::start("failing", Settings::toml(toml)).await?;
    let client = HttpClient::default();
    let mut session = McpSession::open(&client, &[gateway.mcp_url("all")]).await?;
    let counted = session.call("more__increment", json!({})).await?;
    assert_eq!(counted["structuredContent"]["count"], 1);
    assert_eq!(deletes_and_live(&[&other]).await?, (0, 1));

    lost.restart().await?;
    let params = json!({"name": "tools__increment", "arguments": {}});
    let message = session.request_body("tools/call", params);
    assert_eq!(
        session.post(&message).await?.status,
        404,
        "initialize again"
    );
    wait::until_true(
        "the other server's session to go",
        CLEANED_WITHIN,
        async || Ok(deletes_and_live(&[&other]).await? == (1, 0)),
    )
    .await?;
    until_no_record(&redis).await
}

/// From its first command to the last deletion, a gateway runs only commands that the guide's user may run. The one
/// exception is the CONFIG GET of `mooring.prefixes` at its start, whose refusal it takes for no answer.
#[tokio::test]
async fn a_gateway_serves_and_reaps_as_the_user_of_the_guide() -> anyhow::Result<()> {
    let redis = Redis::start().await?;
    let user = &advised_users()?[0];
    let line: Vec<&str> = user.line.split(' ').collect();
    assert_eq!(redis.cli(&line)?, "OK");
    let fixture = Fixture::start("one").await?;
    let (name, password) = (&user.name, &user.password);
    let url = format!("redis://{name}:{password}@127.0.0.1:{}", redis.port());
    let gateways = Gateway::fleet(2, &reaping(&url, &[fixture.url()])).await?;
    let endpoints = endpoints_of(&gateways);
    let mut deleted = open_sessions(&endpoints, 1).await?.remove(0);
    assert_eq!(deleted.increment().await?, 2);
    deleted.delete().await?;
    drop(open_sessions(&endpoints, 2).await?);
    until_no_record(&redis).await?;
    assert_eq!(deletes_and_live(&[&fixture]).await?, (3, 0));
    drop(gateways);
    // The name of each entry's field is on one line, its value on the next.
    let refused = redis.cli(&["ACL", "LOG"])?;
    let lines: Vec<&str> = refused.lines().collect();
    let objects = lines.windows(2).filter(|pair| pair[0] == "object");
    let objects: BTreeSet<&str> = objects.map(|pair| pair[1]).collect();
    assert_eq!(objects, BTreeSet::from(["config|get"]), "{refused}");
    Ok(())
}
