//! Where a new binding goes.
//!
//! The instance with the fewest live bindings wins. Ties, and every choice while the load is unknown, are decided by
//! rendezvous hashing of the key (Thaler and Ravishankar, 1998): every node and every retry picks the same instance,
//! and removing an instance moves only its own sessions.

use crate::context::Node;
use crate::names::{InstanceName, ServerName};

/// Picks an instance for `key` among `candidates`, without `avoid` unless it is the only one. `None` without
/// candidates.
#[must_use]
pub fn place<'a>(
    key: &[u8],
    server: &ServerName,
    candidates: &'a [InstanceName],
    avoid: Option<&InstanceName>,
    node: &dyn Node,
) -> Option<&'a InstanceName> {
    let rank = |instance: &&InstanceName| {
        let bindings = node.fullness(server, instance);
        (bindings, u64::MAX - score(key, instance))
    };
    candidates
        .iter()
        .filter(|instance| Some(*instance) != avoid)
        .min_by_key(rank)
        .or_else(|| candidates.iter().min_by_key(rank))
}

/// The rendezvous weight of an instance for a key: FNV-1a over both, finished by the mixer of SplitMix64, because FNV
/// alone leaves the high bits of short inputs alike.
fn score(key: &[u8], instance: &InstanceName) -> u64 {
    let mut hash: u64 = 0xcbf2_9ce4_8422_2325;
    for byte in key
        .iter()
        .chain(std::iter::once(&0))
        .chain(instance.as_str().as_bytes())
    {
        hash = (hash ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3);
    }
    hash = (hash ^ (hash >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    hash = (hash ^ (hash >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    hash ^ (hash >> 31)
}

#[cfg(test)]
mod tests {
    #![allow(
        clippy::unwrap_used,
        clippy::indexing_slicing,
        reason = "tests fail by panicking"
    )]
    use std::collections::BTreeMap;

    use super::*;
    use crate::context::{NoIndex, PrincipalSessions};
    use crate::names::Principal;

    fn instances(count: usize) -> Vec<InstanceName> {
        (0..count)
            .map(|n| InstanceName::parse(format!("http://127.0.0.1:{n}/mcp").as_bytes()).unwrap())
            .collect()
    }

    fn server() -> ServerName {
        ServerName::parse(b"tools").unwrap()
    }

    struct Counts(BTreeMap<InstanceName, u64>);

    impl Node for Counts {
        fn fullness(&self, _: &ServerName, instance: &InstanceName) -> u64 {
            self.0.get(instance).copied().unwrap_or(0)
        }

        fn held_by(&self, _: &Principal) -> Option<PrincipalSessions> {
            None
        }

        fn holds_turn(&self, _: Option<&ServerName>) -> bool {
            false
        }
    }

    #[test]
    fn without_load_keys_spread_evenly_and_stay_where_they_are() {
        let four = instances(4);
        let mut counts = [0_u32; 4];
        for n in 0..4000 {
            let key = format!("mcpgw:session_affinity:{n}");
            let placed = place(key.as_bytes(), &server(), &four, None, &NoIndex).unwrap();
            counts[four.iter().position(|i| i == placed).unwrap()] += 1;
            // Taking away another instance moves nothing.
            let others: Vec<_> = four
                .iter()
                .filter(|i| *i == placed || **i == four[0])
                .cloned()
                .collect();
            assert_eq!(
                place(key.as_bytes(), &server(), &others, None, &NoIndex),
                Some(placed)
            );
        }
        assert!(
            counts.iter().all(|count| (850..1150).contains(count)),
            "{counts:?}"
        );
    }

    #[test]
    fn the_emptiest_instance_wins_and_the_avoided_one_only_when_alone() {
        let two = instances(2);
        let counts = Counts(BTreeMap::from([(two[0].clone(), 3), (two[1].clone(), 2)]));
        assert_eq!(place(b"k", &server(), &two, None, &counts), Some(&two[1]));
        assert_eq!(
            place(b"k", &server(), &two, Some(&two[1]), &counts),
            Some(&two[0])
        );
        assert_eq!(
            place(b"k", &server(), &two[..1], Some(&two[0]), &counts),
            Some(&two[0])
        );
        assert_eq!(place(b"k", &server(), &[], None, &counts), None);
    }
}
