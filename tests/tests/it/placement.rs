//! New sessions go where the fewest are: over a whole fleet, and again after an instance died and came back.

use std::time::Duration;

use mooring_tests::client::HttpClient;
use mooring_tests::fixture::Fixture;
use mooring_tests::fleet::Fleet;
use mooring_tests::session::McpSession;
use mooring_tests::wait;

use crate::reaping::{CLEANED_WITHIN, open_sessions};
use crate::recovery::{Pair, whoami};

/// For half a minute an instance that sessions were just moved away from gets no new ones while there are others.
const TRUSTED_WITHIN: Duration = Duration::from_secs(60);

async fn live(instances: &[Fixture]) -> anyhow::Result<Vec<usize>> {
    let mut live = Vec::new();
    for instance in instances {
        live.push(instance.stats().await?.sessions_live);
    }
    Ok(live)
}

#[tokio::test]
async fn sessions_spread_evenly_over_the_instances() -> anyhow::Result<()> {
    let mut instances = Vec::new();
    for name in ["a", "b", "c"] {
        instances.push(Fixture::start(name).await?);
    }
    let urls: Vec<String> = instances.iter().map(Fixture::url).collect();
    let fleet = Fleet::start(3, &urls).await?;
    let mut sessions = open_sessions(&fleet.endpoints(), 24).await?;
    assert_eq!(live(&instances).await?, [8, 8, 8]);

    // Room that is made anywhere is what the next ones take.
    let mut left = Vec::new();
    for mut session in sessions.split_off(12) {
        if whoami(&mut session).await?.instance == "b" {
            assert_eq!(session.delete().await?.status, 204);
        } else {
            left.push(session);
        }
    }
    sessions.append(&mut left);
    let at_b = instances[1].stats().await?.sessions_live;
    assert!(at_b < 8, "some were there");
    sessions.append(&mut open_sessions(&fleet.endpoints(), 8 - at_b).await?);
    assert_eq!(live(&instances).await?, [8, 8, 8]);
    Ok(())
}

#[tokio::test]
async fn an_instance_that_died_and_came_back_is_filled_up_again() -> anyhow::Result<()> {
    let mut pair = Pair::start().await?;
    let fleet = Fleet::start(3, &pair.urls()).await?;
    let mut sessions = open_sessions(&fleet.endpoints(), 12).await?;
    assert_eq!(live(pair.both()).await?, [6, 6]);
    let [a, _] = pair.both();
    a.process().kill_now()?;
    for session in &mut sessions {
        assert_eq!(
            whoami(session).await?.instance,
            "b",
            "moved, or there before"
        );
    }
    a.restart().await?;
    assert_eq!(live(pair.both()).await?, [0, 12]);

    let client = HttpClient::default();
    let trusted = wait::until("a session at it", TRUSTED_WITHIN, async || {
        let mut session = McpSession::open(&client, &fleet.endpoints()).await?;
        if whoami(&mut session).await?.instance == "a" {
            return Ok(Some(session));
        }
        assert_eq!(session.delete().await?.status, 204);
        Ok(None)
    });
    sessions.push(trusted.await?);
    sessions.append(&mut open_sessions(&fleet.endpoints(), 11).await?);
    wait::until_true("what was deleted to be gone", CLEANED_WITHIN, async || {
        Ok(live(pair.both()).await? == [12, 12])
    })
    .await
}
