//! Many sessions as gateways create them: their names, and the commands that create them.

use anyhow::Result;

use crate::talk::Talk;

/// The number of workers: a fleet of 72 gateway processes.
pub(crate) const WORKERS: usize = 72;
/// The number of principals of the sessions.
const PRINCIPALS: usize = 10_000;
/// Commands in one write.
const BATCH: usize = 500;

/// Which workers drive the bindings.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Driven {
    /// Any worker that gets the call.
    ByAnybody,
    /// Only the worker that bound it.
    ByOwner,
}

pub(crate) fn key(session: usize) -> String {
    // Real ids are random: neighbors in time are not neighbors in the keyspace.
    let bits = (session as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    format!("mcpgw:session_affinity:{bits:016x}{session:016x}")
}

fn id(session: usize) -> String {
    key(session)
        .rsplit(':')
        .next()
        .unwrap_or_default()
        .to_owned()
}

pub(crate) fn principal(session: usize) -> String {
    format!("user-{}@example.org", session % PRINCIPALS)
}

pub(crate) fn worker(session: usize) -> String {
    format!("gateway-{:02}:5f3a9c0d7e214b68", session % WORKERS)
}

pub(crate) fn create(session: usize, ttl_ms: u64) -> String {
    format!(
        "SESSION.CREATE {} {} {} TTL {ttl_ms} LABEL init 3f2a9c0d1b4e5f6a LABEL protocol_version 2025-11-25",
        key(session),
        id(session),
        principal(session)
    )
}

pub(crate) fn bind(session: usize, driven: Driven) -> String {
    let owned = match driven {
        Driven::ByAnybody => "",
        Driven::ByOwner => " OWNED",
    };
    format!(
        "SESSION.BIND {} {} tools {} 7c9e6679-7425-40de-944b-e07fc1f90ae7 LEASE 60000 INSTANCES 2 \
         http://10.0.0.1:9001/mcp http://10.0.0.2:9001/mcp UPSTREAM 0b1c2d3e4f50617283{session:014x}{owned}",
        key(session),
        principal(session),
        worker(session)
    )
}

/// Creates the sessions, each with one binding.
pub(crate) fn make(
    talk: &mut Talk,
    sessions: std::ops::Range<usize>,
    ttl_ms: u64,
    driven: Driven,
) -> Result<()> {
    let mut batch = Vec::with_capacity(BATCH);
    for session in sessions {
        batch.push(create(session, ttl_ms));
        batch.push(bind(session, driven));
        if batch.len() >= BATCH {
            talk.ask_many(&batch)?;
            batch.clear();
        }
    }
    talk.ask_many(&batch)?;
    Ok(())
}

/// All workers send a beat.
pub(crate) fn beat(talk: &mut Talk) -> Result<()> {
    for number in 0..WORKERS {
        talk.ask(&format!(
            "WORKER.BEAT {} 10.0.1.{number}:4444 TTL 600000",
            worker(number)
        ))?;
    }
    Ok(())
}
