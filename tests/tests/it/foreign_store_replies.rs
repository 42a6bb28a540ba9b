//! Replies of Redis that arrive for another request: dropped, repeated or swapped on the way. No user ever gets into another
//! session, and the gateway says what it saw.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use mooring_tests::client::HttpClient;
use mooring_tests::code::USER;
use mooring_tests::fixture::Fixture;
use mooring_tests::fleet::settings_toml;
use mooring_tests::gateway::{Gateway, Settings};
use mooring_tests::redis::Redis;
use mooring_tests::reply_proxy::{Fault, ReplyProxy};
use mooring_tests::session::{McpSession, Opening};
use mooring_tests::wait;

use crate::recovery::{Answered, attempt, whoami};

const USERS: [&str; 2] = ["ada@example.com", "bob@example.com"];
const SESSIONS_EACH: usize = 4;
/// How long replies are spoiled in the suite, and as a soak test ...
const SHORT: Duration = Duration::from_secs(3);
const LONG: Duration = Duration::from_secs(60);
/// ... and until so many were, or for so much longer.
const SPOILED_MIN: usize = 4;
const LONGER_MAX: Duration = Duration::from_secs(60);
const RECOVERED_WITHIN: Duration = Duration::from_secs(20);

/// The upstream session that answered a call, if it was answered.
fn upstream_session(answered: &Answered) -> Option<String> {
    let exchange = answered.exchange.as_ref()?;
    let session = exchange
        .response
        .pointer("/result/structuredContent/session")?;
    session.as_str().map(str::to_owned)
}

/// Calls until it is over, and counts by the owner of the upstream session that answered.
async fn count_answers(
    session: &mut McpSession,
    owners: &BTreeMap<String, usize>,
    own: usize,
    is_over: impl Fn() -> bool,
) -> anyhow::Result<(usize, usize)> {
    let (mut own_answers, mut foreign) = (0, 0);
    while !is_over() {
        let answered = attempt(session, "whoami").await?;
        match upstream_session(&answered).map(|by| owners.get(&by).copied()) {
            Some(Some(owner)) if owner != own => foreign += 1,
            Some(_) => own_answers += 1,
            None => {}
        }
    }
    Ok((own_answers, foreign))
}

#[expect(
    clippy::print_stderr,
    reason = "how many replies were spoiled is a figure, and no assertion"
)]
async fn check(fault: Fault, lasts: Duration) -> anyhow::Result<()> {
    let redis = Redis::start().await?;
    let proxy = ReplyProxy::before_redis(redis.port()).await?;
    let fixture = Fixture::start("a").await?;
    let toml = settings_toml(&proxy.url(), &[fixture.url()]);
    let gateway = Gateway::start("g1", Settings::toml(toml).users_by_header()).await?;

    let client = HttpClient::default();
    let endpoints = [gateway.mcp_url("tools")];
    let mut sessions = Vec::new();
    let mut owners = BTreeMap::new();
    for number in 0..USERS.len() * SESSIONS_EACH {
        let user = USERS[number % USERS.len()];
        let opening = Opening::default().header(USER, user)?;
        let mut session = McpSession::open_with(&client, &endpoints, opening).await?;
        owners.insert(whoami(&mut session).await?.upstream_session, number);
        sessions.push(session);
    }
    assert_eq!(owners.len(), sessions.len(), "every session has its own");

    proxy.spoil(Some(fault));
    let began = Instant::now();
    let is_over = || {
        let elapsed = began.elapsed();
        let is_enough = proxy.spoiled() >= SPOILED_MIN || elapsed >= lasts + LONGER_MAX;
        elapsed >= lasts && is_enough
    };
    let calls = sessions
        .iter_mut()
        .enumerate()
        .map(|(own, session)| count_answers(session, &owners, own, is_over));
    let counts = futures_util::future::try_join_all(calls).await?;
    let foreign: usize = counts.iter().map(|(_, foreign)| foreign).sum();
    let own: usize = counts.iter().map(|(own, _)| own).sum();
    let spoiled = proxy.spoiled();
    eprintln!("{fault:?} at Redis: {own} answers, {spoiled} spoiled");
    assert_eq!(
        foreign, 0,
        "{fault:?}: {counts:?}, {spoiled} replies spoiled"
    );
    assert!(
        spoiled >= SPOILED_MIN,
        "{fault:?}: {spoiled} replies were spoiled"
    );
    assert!(own > 0, "{fault:?}: calls are answered in between");
    let refused = gateway
        .metric("mooring_store_replies_refused_total", &[])
        .await?;
    assert!(
        refused > 0.0,
        "{fault:?}: the gateway counts what it refused"
    );

    proxy.spoil(None);
    for (number, session) in sessions.iter_mut().enumerate() {
        wait::until_true(
            "a session to be served again",
            RECOVERED_WITHIN,
            async || {
                let answered = attempt(session, "whoami").await?;
                let by = upstream_session(&answered).and_then(|by| owners.get(&by));
                Ok(by == Some(&number))
            },
        )
        .await?;
    }
    Ok(())
}

#[tokio::test]
async fn dropped_replies_lead_nobody_into_another_session() -> anyhow::Result<()> {
    check(Fault::Dropped, SHORT).await
}

#[tokio::test]
async fn doubled_replies_lead_nobody_into_another_session() -> anyhow::Result<()> {
    check(Fault::Doubled, SHORT).await
}

#[tokio::test]
async fn swapped_replies_lead_nobody_into_another_session() -> anyhow::Result<()> {
    check(Fault::Swapped, SHORT).await
}

#[tokio::test]
#[ignore = "soak"]
async fn soak_no_spoiled_reply_leads_anybody_into_another_session() -> anyhow::Result<()> {
    for fault in [Fault::Dropped, Fault::Doubled, Fault::Swapped] {
        check(fault, LONG).await?;
    }
    Ok(())
}
