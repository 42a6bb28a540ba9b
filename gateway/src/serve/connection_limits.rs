//! Limits of client connections, in total and per peer address.
//!
//! Beyond the total limit, a few connections are admitted for health probes and scrapers only, so that operators can
//! tell an overloaded gateway from a dead one. Invariant: every admitted connection has a permit, and returns it on
//! drop.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use ipnet::IpNet;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::client_network::network_of;
use mooring_metrics::ConnectionRefusal;

/// Connections beyond the total limit, for health probes and metrics only.
const PROBE_CONNECTIONS_MAX: usize = 64;

/// The limits, and the connections that count towards them.
#[derive(Debug)]
pub(super) struct ConnectionLimits {
    all: Arc<Semaphore>,
    probes: Arc<Semaphore>,
    per_peer_max: usize,
    /// Load balancers, whose addresses have the connections of many clients.
    trusted_peers: Vec<IpNet>,
    by_peer: Mutex<HashMap<IpAddr, usize>>,
}

/// A permit for one open connection.
#[derive(Debug)]
pub(super) struct ConnectionPermit {
    _all: OwnedSemaphorePermit,
    _peer: Option<PeerPermit>,
    /// Whether the connection is for health probes and metrics only.
    pub(super) is_for_probes: bool,
}

/// One connection of a peer with a limit.
#[derive(Debug)]
struct PeerPermit {
    peer: IpAddr,
    limits: Arc<ConnectionLimits>,
}

impl ConnectionLimits {
    /// At most `max` connections in all, and `per_peer_max` from an address that is neither this machine's loopback nor
    /// one of `trusted_peers`.
    pub(super) fn new(max: usize, per_peer_max: usize, trusted_peers: &[IpNet]) -> Arc<Self> {
        Arc::new(Self {
            all: Arc::new(Semaphore::new(max)),
            probes: Arc::new(Semaphore::new(PROBE_CONNECTIONS_MAX)),
            per_peer_max,
            trusted_peers: trusted_peers.to_vec(),
            by_peer: Mutex::default(),
        })
    }

    /// Admits a connection of this peer.
    ///
    /// # Errors
    /// The limit that is reached.
    pub(super) fn admit(
        self: &Arc<Self>,
        peer: IpAddr,
    ) -> Result<ConnectionPermit, ConnectionRefusal> {
        let peer = peer.to_canonical();
        let is_limited =
            !peer.is_loopback() && !self.trusted_peers.iter().any(|net| net.contains(&peer));
        let of_peer = match is_limited {
            true => Some(
                self.admit_peer(network_of(peer))
                    .ok_or(ConnectionRefusal::Peer)?,
            ),
            false => None,
        };
        let (all, is_for_probes) = match Arc::clone(&self.all).try_acquire_owned() {
            Ok(permit) => (permit, false),
            Err(_) => match Arc::clone(&self.probes).try_acquire_owned() {
                Ok(permit) => (permit, true),
                Err(_) => return Err(ConnectionRefusal::All),
            },
        };
        Ok(ConnectionPermit {
            _all: all,
            _peer: of_peer,
            is_for_probes,
        })
    }

    fn admit_peer(self: &Arc<Self>, peer: IpAddr) -> Option<PeerPermit> {
        let mut by_peer = self.by_peer();
        let open = by_peer.entry(peer).or_default();
        if *open >= self.per_peer_max {
            return None;
        }
        *open += 1;
        Some(PeerPermit {
            peer,
            limits: Arc::clone(self),
        })
    }

    fn by_peer(&self) -> MutexGuard<'_, HashMap<IpAddr, usize>> {
        self.by_peer.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for PeerPermit {
    fn drop(&mut self) {
        if let Entry::Occupied(mut open) = self.limits.by_peer().entry(self.peer) {
            match open.get() {
                0 | 1 => drop(open.remove()),
                more => *open.get_mut() = more - 1,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

    use super::*;

    fn address(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    #[test]
    fn a_peer_has_no_more_connections_than_its_limit_and_others_still_have_theirs() {
        let trusted = ["10.0.0.0/8".parse().unwrap()];
        let limits = ConnectionLimits::new(100, 2, &trusted);
        for (one, same, other) in [
            ("192.0.2.1", "::ffff:192.0.2.1", "192.0.2.2"),
            ("2001:db8::1", "2001:db8::ffff:2", "2001:db8:0:1::1"),
        ] {
            let first = limits.admit(address(one)).unwrap();
            let _second = limits.admit(address(same)).unwrap();
            let refused = limits.admit(address(one)).unwrap_err();
            assert_eq!(refused, ConnectionRefusal::Peer, "{one}");
            let _other = limits.admit(address(other)).unwrap();
            drop(first);
            let _again = limits.admit(address(same)).unwrap();
        }
        let unlimited = ["127.0.0.1", "::1", "10.1.2.3", "::ffff:10.1.2.3"];
        let held: Vec<_> = (0..3)
            .flat_map(|_| unlimited)
            .map(|peer| limits.admit(address(peer)).unwrap())
            .collect();
        drop(held);
        assert_eq!(
            limits.by_peer().len(),
            0,
            "peers without connections are forgotten"
        );
    }

    #[test]
    fn connections_beyond_the_limit_are_for_probes_and_even_these_end() {
        let limits = ConnectionLimits::new(3, 1, &[]);
        let admit = || limits.admit(address("127.0.0.1"));
        let served: Vec<_> = (0..3).map(|_| admit().unwrap()).collect();
        assert!(served.iter().all(|permit| !permit.is_for_probes));
        let probes: Vec<_> = (0..PROBE_CONNECTIONS_MAX)
            .map(|_| admit().unwrap())
            .collect();
        assert!(probes.iter().all(|permit| permit.is_for_probes));
        assert_eq!(admit().unwrap_err(), ConnectionRefusal::All);
        drop(served);
        assert!(!admit().unwrap().is_for_probes);
    }
}
