//! A keep-alive connection that the upstream closes or resets says nothing about the session on it.

use std::time::Duration;

use mooring_tests::client::HttpClient;
use mooring_tests::fixture::Fixture;
use mooring_tests::fleet::Fleet;
use mooring_tests::session::McpSession;
use mooring_tests::wait;

use crate::faulty::{Fate, FaultyProxy};
use crate::recovery::{OUTCOME_UNKNOWN, binding, call, count_of, mark_of, rebinds, whoami};

const CLOSED_WITHIN: Duration = Duration::from_secs(30);

/// The session lives on where it was, and nothing was made anew.
async fn assert_untouched(
    fleet: &Fleet,
    fixture: &Fixture,
    session: &McpSession,
) -> anyhow::Result<()> {
    let bound = binding(&fleet.redis, session)?;
    assert_eq!(
        (&bound["state"], &bound["rebinds"]),
        (&"bound".into(), &0.into())
    );
    assert_eq!(rebinds(&fleet.gateways, "upstream").await?, 0);
    assert_eq!(fixture.stats().await?.initializes, 1);
    Ok(())
}

#[tokio::test]
async fn a_connection_closed_while_idle_loses_nothing() -> anyhow::Result<()> {
    let fixture = Fixture::start("one").await?;
    let proxy = FaultyProxy::start(fixture.port(), |_| Fate::Forward).await?;
    let fleet = Fleet::start(3, &[proxy.url()]).await?;
    let mut session = McpSession::open(&HttpClient::default(), &fleet.endpoints()).await?;
    for expected in 1..=9 {
        let exchange = call(&mut session, "increment").await?;
        assert_eq!(count_of(&exchange), Some(expected), "{exchange:?}");
        assert_eq!(mark_of(&exchange), None);
        assert!(proxy.open() > 0, "the gateway keeps its connection");
        proxy.close_all();
        wait::until_true("the connections to be closed", CLOSED_WITHIN, async || {
            Ok(proxy.open() == 0)
        })
        .await?;
    }
    assert_eq!(fixture.stats().await?.calls_of("increment"), 9);
    assert_untouched(&fleet, &fixture, &session).await
}

#[tokio::test]
async fn a_connection_reset_when_it_is_used_again_loses_nothing() -> anyhow::Result<()> {
    let fixture = Fixture::start("one").await?;
    // Every request on a connection that carried one before is reset, unread.
    let proxy = FaultyProxy::start(fixture.port(), |request| match request.number {
        1 => Fate::Forward,
        _ => Fate::Reset,
    })
    .await?;
    let fleet = Fleet::start(3, &[proxy.url()]).await?;
    let mut session = McpSession::open(&HttpClient::default(), &fleet.endpoints()).await?;
    let home = whoami(&mut session).await?;
    let mut count = 0;
    for _ in 0..9 {
        // Of a call that changes something nobody can tell whether it ran; that is said, and no more than that.
        let exchange = call(&mut session, "increment").await?;
        assert_eq!(mark_of(&exchange), None);
        match count_of(&exchange) {
            Some(counted) => {
                count += 1;
                assert_eq!(counted, count, "{exchange:?}");
            }
            None => assert_eq!(exchange.response["error"]["code"], OUTCOME_UNKNOWN),
        }
        // One that reads is answered whatever the connections do.
        assert_eq!(whoami(&mut session).await?, home);
    }
    assert_eq!(fixture.stats().await?.calls_of("increment"), count);
    assert_untouched(&fleet, &fixture, &session).await
}
