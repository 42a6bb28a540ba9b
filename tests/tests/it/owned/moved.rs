//! Moves of connections that one gateway has, asked for at whichever gateway, also off one that drains.

use anyhow::{Context, ensure};
use bytes::Bytes;
use http::{Method, Request};
use mooring_tests::journal::Event;
use mooring_tests::session::McpSession;
use mooring_tests::wait;
use serde_json::{Value, json};

use super::rig::{GONE_WITHIN, OwnedFleet, assert_begun_anew, goes_on, slow};
use crate::recovery::call;

/// As long as the fixture lets a call take: what moves does not wait for it.
const SLOW_MS: u64 = 60_000;

impl OwnedFleet {
    /// Asks the admin API of a gateway; the answer, which has to be a good one.
    async fn admin(
        &self,
        gateway: usize,
        path: &str,
        body: Option<Value>,
    ) -> anyhow::Result<Value> {
        let method = match body {
            Some(_) => Method::POST,
            None => Method::GET,
        };
        let request = Request::builder()
            .method(method)
            .uri(self.gateways[gateway].url(&format!("/admin/{path}")))
            .header("content-type", "application/json")
            .body(Bytes::from(
                body.map_or_else(String::new, |body| body.to_string()),
            ))?;
        let reply = self.client.send(request).await?;
        let status = reply.status;
        let answer = reply.json().await?;
        ensure!(status == 200, "{path}: {status}: {answer}");
        Ok(answer)
    }

    /// The digest of the only session.
    async fn only_digest(&self) -> anyhow::Result<String> {
        let list = self.admin(0, "sessions", None).await?;
        let sessions = list["sessions"].as_array().context("sessions")?;
        ensure!(sessions.len() == 1, "{list}");
        let digest = sessions[0]["session"].as_str().context("a digest")?;
        Ok(digest.to_owned())
    }

    /// Drains the gateway with this number, and waits until another one knows.
    async fn drain(&self, gateway: usize) -> anyhow::Result<()> {
        let other = (gateway + 1) % self.gateways.len();
        let name = format!("gateway-{}", gateway + 1);
        self.admin(other, &format!("workers/{name}/drain"), Some(json!({})))
            .await?;
        wait::until_true("it drains", GONE_WITHIN, async || {
            let list = self.admin(other, "workers", None).await?;
            let workers = list["workers"].as_array().context("workers")?;
            Ok(workers.iter().any(|worker| worker["state"] == "draining"))
        })
        .await
    }
}

/// Moves the only session, as asked for at this gateway.
async fn move_at(fleet: &OwnedFleet, gateway: usize, force: bool) -> anyhow::Result<Value> {
    let path = format!("sessions/{}/move", fleet.only_digest().await?);
    fleet
        .admin(gateway, &path, Some(json!({"force": force})))
        .await
}

#[tokio::test]
async fn a_connection_of_one_gateway_is_moved_when_another_one_is_asked() -> anyhow::Result<()> {
    let fleet = OwnedFleet::start(2).await?;
    let mut session = fleet.open_at(0).await?;
    goes_on(&mut session, 1, 3).await?;
    let old = fleet.only_child()?;
    let moved = move_at(&fleet, 1, false).await?;
    assert_eq!(moved["progress"]["changed"], 1, "{moved}");
    assert_begun_anew(&call(&mut session, "increment").await?);
    goes_on(&mut session, 2, 3).await?;
    assert_eq!(fleet.owner_of(&session)?, 0, "its owner has moved it");
    let left = fleet.until_children(1).await?;
    ensure!(!left.contains(&old), "its process has ended: {left:?}");
    Ok(())
}

/// A call runs, so that the draining gateway does not hand the connection over by itself.
async fn moves_off(draining: usize, asked: usize) -> anyhow::Result<()> {
    let fleet = OwnedFleet::start(2).await?;
    let mut session: McpSession = fleet.open_at(draining).await?;
    goes_on(&mut session, 1, 2).await?;
    let mut at_owner = fleet.through(&session, &[draining]);
    let held = at_owner.request_body("tools/call", slow(SLOW_MS, "held"));
    let _reply = at_owner.post(&held).await?;
    fleet.journal.wait_for(Event::Begin, 1, GONE_WITHIN).await?;
    fleet.drain(draining).await?;
    let moved = move_at(&fleet, asked, true).await?;
    assert_eq!(moved["progress"]["changed"], 1, "{moved}");
    let other = 1 - draining;
    let mut at_other = fleet.through(&session, &[other]);
    assert_begun_anew(&call(&mut at_other, "increment").await?);
    goes_on(&mut at_other, 2, 2).await?;
    assert_eq!(fleet.owner_of(&session)?, other);
    Ok(())
}

#[tokio::test]
async fn a_connection_moves_off_a_draining_gateway_when_another_one_is_asked() -> anyhow::Result<()>
{
    moves_off(0, 1).await
}

#[tokio::test]
async fn a_connection_moves_off_a_draining_gateway_that_is_asked_itself() -> anyhow::Result<()> {
    moves_off(0, 0).await
}
