//! Limits the rate of replies to unauthenticated senders, by address: replies beyond it are delayed, so that a sender
//! that waits for them sends less.
//!
//! [`super::caller::RequestSender`] says which senders these are. Each address has a token bucket of one
//! second. The moments at which they are full again are in a table of fixed size, in which each address has [`ROWS`]
//! slots, chosen by secret hashes; the earliest of its slots counts.
//!
//! Invariant: memory does not grow, and no address can evict its own or another's bucket. Addresses that share all
//! their slots share a bucket, so a flood from many addresses can at worst delay replies to other unauthenticated
//! senders.

use std::hash::{BuildHasher, RandomState};
use std::net::IpAddr;
use std::num::NonZeroU32;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use axum::response::Response;
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;

use crate::client_network::network_of;
use mooring_metrics::{self as metrics, StrangerReply};
use mooring_usage::TokenBucket;

/// How long an empty bucket takes to fill.
const FILLED_AFTER: Duration = Duration::from_secs(1);
/// The longest delay of a refusal.
const REFUSAL_DELAY_MAX: Duration = Duration::from_secs(2);
/// How many times as many public replies as refusals are sent without delay: the health probes of a load balancer and
/// the browsers behind it have one address.
const PUBLIC_PER_REFUSAL: u32 = 10;
/// The longest delay of a public reply. Health probes usually wait for a second or more.
const PUBLIC_DELAY_MAX: Duration = Duration::from_millis(500);
/// The slots of one address, each in a row of its own.
const ROWS: usize = 2;
/// The slots of a row, which take 256 KiB. With a thousand addresses beyond their rate, one in a thousand others has no
/// slot to itself.
const SLOTS: usize = 32 * 1024;

/// Marks a response as public: it is the same for everybody.
#[derive(Clone, Copy, Debug)]
struct PublicMark;

/// The same response, marked as public.
pub(super) fn public(mut response: Response) -> Response {
    response.extensions_mut().insert(PublicMark);
    response
}

/// The buckets of all addresses, in this process.
#[derive(Debug)]
pub struct StrangerRates {
    refusals_per_second: NonZeroU32,
    begun: Instant,
    rows: [RandomState; ROWS],
    /// When each bucket is full again, in nanoseconds since `begun`: row after row.
    full_at: Mutex<Vec<u64>>,
}

impl StrangerRates {
    /// At most so many refusals within a second are sent to an address without delay.
    #[must_use]
    pub fn new(refusals_per_second: NonZeroU32) -> Self {
        Self {
            refusals_per_second,
            begun: Instant::now(),
            rows: Default::default(),
            full_at: Mutex::new(vec![0; ROWS * SLOTS]),
        }
    }

    /// Returns the response to an unauthenticated sender at this address once it may be sent: at the latest when
    /// `stopping` is cancelled.
    pub(super) async fn delay(
        &self,
        peer: IpAddr,
        response: Response,
        stopping: &CancellationToken,
    ) -> Response {
        let reply = match response.extensions().get() {
            Some(PublicMark) => StrangerReply::Public,
            None => StrangerReply::Refusal,
        };
        let wait = self.take(peer, reply, Instant::now());
        if !wait.is_zero() {
            metrics::reply_delayed(reply);
            tokio::select! {
                () = stopping.cancelled() => {}
                () = sleep(wait) => {}
            }
        }
        response
    }

    /// Takes one reply from the bucket of this address. Returns how long it has to wait.
    fn take(&self, peer: IpAddr, reply: StrangerReply, now: Instant) -> Duration {
        let refusals = self.refusals_per_second.get();
        let (per_second, delay_max) = match reply {
            StrangerReply::Refusal => (refusals, REFUSAL_DELAY_MAX),
            StrangerReply::Public => (
                refusals.saturating_mul(PUBLIC_PER_REFUSAL),
                PUBLIC_DELAY_MAX,
            ),
        };
        let now = now.saturating_duration_since(self.begun);
        let slots = self.slots(peer, reply);

        let mut full_at = self.full_at.lock().unwrap_or_else(PoisonError::into_inner);
        let least = slots.iter().filter_map(|slot| full_at.get(*slot)).min();
        let before = Duration::from_nanos(least.copied().unwrap_or_default());
        let (after, wait) = TokenBucket::new(per_second, FILLED_AFTER).take(before, now, 1);
        let after = after.min(now + FILLED_AFTER + delay_max);
        let nanoseconds = u64::try_from(after.as_nanos()).unwrap_or(u64::MAX);
        for slot in slots {
            if let Some(known) = full_at.get_mut(slot) {
                *known = nanoseconds.max(*known);
            }
        }
        wait.min(delay_max)
    }

    /// The slots of this address for such replies.
    fn slots(&self, peer: IpAddr, reply: StrangerReply) -> [usize; ROWS] {
        let bucket = (network_of(peer), reply);
        std::array::from_fn(|row| {
            let hash = self.rows.get(row).map_or(0, |row| row.hash_one(bucket));
            row * SLOTS + usize::try_from(hash % SLOTS as u64).unwrap_or_default()
        })
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]
    use std::net::{Ipv4Addr, Ipv6Addr};

    use super::*;

    const ATTACKER: IpAddr = IpAddr::V4(Ipv4Addr::new(192, 0, 2, 1));

    fn rates() -> StrangerRates {
        StrangerRates::new(NonZeroU32::new(10).unwrap())
    }

    fn waits(rates: &StrangerRates, peer: IpAddr, count: usize, now: Instant) -> Vec<u128> {
        let take = |_| rates.take(peer, StrangerReply::Refusal, now).as_millis();
        (0..count).map(take).collect()
    }

    #[test]
    fn refusals_beyond_the_rate_wait_for_their_turn_up_to_a_limit() {
        let (rates, start) = (rates(), Instant::now());
        let at = |ms| start + Duration::from_millis(ms);
        assert_eq!(waits(&rates, ATTACKER, 10, start), [0; 10]);
        assert_eq!(waits(&rates, ATTACKER, 3, start), [100, 200, 300]);
        assert_eq!(waits(&rates, ATTACKER, 100, start).pop(), Some(2_000));
        assert_eq!(waits(&rates, ATTACKER, 1, at(1_000)), [1_100]);
        assert_eq!(waits(&rates, ATTACKER, 11, at(60_000)).pop(), Some(100));
    }

    #[test]
    fn each_address_and_each_kind_of_reply_has_a_bucket() {
        let (rates, start) = (rates(), Instant::now());
        let public = || {
            rates
                .take(ATTACKER, StrangerReply::Public, start)
                .as_millis()
        };
        waits(&rates, ATTACKER, 1_000, start);
        assert_eq!((0..100).map(|_| public()).max(), Some(0));
        assert_eq!((0..1_000).map(|_| public()).max(), Some(500));
        for (one, same, other) in [
            ("192.0.2.7", "::ffff:192.0.2.7", "192.0.2.8"),
            ("2001:db8::1", "2001:db8::ffff:2", "2001:db8:0:1::1"),
        ] {
            let [one, same, other] = [one, same, other].map(|text| text.parse().unwrap());
            waits(&rates, one, 10, start);
            assert_eq!(waits(&rates, same, 1, start), [100], "{same}");
            assert_eq!(waits(&rates, other, 1, start), [0], "{other}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_gateway_that_stops_delays_nothing() {
        let (rates, stopping) = (rates(), CancellationToken::new());
        waits(&rates, ATTACKER, 1_000, Instant::now());
        let delayed = async || {
            let begun = tokio::time::Instant::now();
            rates.delay(ATTACKER, Response::default(), &stopping).await;
            begun.elapsed()
        };
        // How long depends on the time since the bucket was emptied.
        assert_ne!(delayed().await, Duration::ZERO);
        stopping.cancel();
        assert_eq!(delayed().await, Duration::ZERO);
    }

    /// The hashes are random, so a few addresses may share their slots.
    #[test]
    fn many_addresses_hide_no_address_and_delay_few_others() {
        let (rates, start) = (rates(), Instant::now());
        let network = |number: u128| IpAddr::V6(Ipv6Addr::from_bits(number << 64));
        waits(&rates, ATTACKER, 1_000, start);
        for number in 0..1_000 {
            waits(&rates, network(number), 1_000, start);
        }
        let others = 1_000..2_000;
        let is_delayed = |number: &u128| waits(&rates, network(*number), 1, start) != [0];
        let delayed = others.filter(is_delayed).count();
        assert!(delayed < 20, "{delayed}");
        for number in 2_000..100_000 {
            waits(&rates, network(number), 1, start);
        }
        assert_eq!(waits(&rates, ATTACKER, 1, start), [2_000]);
    }
}
