//! Replies of Redis that arrive for another request: dropped, repeated or swapped on the way. No user ever gets into another
//! session, and the gateway says what it saw.

use std::collections::BTreeMap;
use std::time::Duration;

use mooring_tests::client::HttpClient;
use mooring_tests::code::USER;
use mooring_tests::fixture::Fixture;
use mooring_tests::fleet::settings_toml;
use mooring_tests::gateway::{Gateway, Settings};
use mooring_tests::redis::Redis;
use mooring_tests::redis_proxy::{Fault, RedisProxy};
use mooring_tests::session::{McpSession, Opening};
use mooring_tests::wait;

use crate::recovery::{Answered, attempt, whoami};

const USERS: [&str; 2] = ["ada@example.com", "bob@example.com"];
const SESSIONS_EACH: usize = 4;
/// Calls of each session while replies are spoiled. One connection has some hundred replies meanwhile.
const CALLS: usize = 60;
const RECOVERED_WITHIN: Duration = Duration::from_secs(20);

/// The upstream session that answered a call, if it was answered.
fn upstream_session(answered: &Answered) -> Option<String> {
    let exchange = answered.exchange.as_ref()?;
    let session = exchange
        .response
        .pointer("/result/structuredContent/session")?;
    session.as_str().map(str::to_owned)
}

/// Calls until it is done, and counts by the owner of the upstream session that answered.
async fn count_answers(
    session: &mut McpSession,
    owners: &BTreeMap<String, usize>,
    own: usize,
) -> anyhow::Result<(usize, usize)> {
    let (mut own_answers, mut foreign) = (0, 0);
    for _ in 0..CALLS {
        let answered = attempt(session, "whoami").await?;
        match upstream_session(&answered).map(|by| owners.get(&by).copied()) {
            Some(Some(owner)) if owner != own => foreign += 1,
            Some(_) => own_answers += 1,
            None => {}
        }
    }
    Ok((own_answers, foreign))
}

async fn check(fault: Fault) -> anyhow::Result<()> {
    let redis = Redis::start().await?;
    let proxy = RedisProxy::start(redis.port()).await?;
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
    let calls = sessions
        .iter_mut()
        .enumerate()
        .map(|(own, session)| count_answers(session, &owners, own));
    let counts = futures_util::future::try_join_all(calls).await?;
    let foreign: usize = counts.iter().map(|(_, foreign)| foreign).sum();
    let own: usize = counts.iter().map(|(own, _)| own).sum();
    let spoiled = proxy.spoiled();
    assert_eq!(
        foreign, 0,
        "{fault:?}: {counts:?}, {spoiled} replies spoiled"
    );
    assert!(spoiled > 3, "{fault:?}: {spoiled} replies were spoiled");
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
    check(Fault::Dropped).await
}

#[tokio::test]
async fn doubled_replies_lead_nobody_into_another_session() -> anyhow::Result<()> {
    check(Fault::Doubled).await
}

#[tokio::test]
async fn swapped_replies_lead_nobody_into_another_session() -> anyhow::Result<()> {
    check(Fault::Swapped).await
}
