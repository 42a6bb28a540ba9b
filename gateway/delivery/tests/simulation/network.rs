//! What carries commands and answers in the simulation, and the faults of a network.

use crate::chance::Chance;

/// How one command fares on its way: when it arrives, how often, and whether its answer comes back.
pub(crate) struct Passage {
    pub(crate) arrives_after: Vec<u64>,
    pub(crate) is_answer_lost: bool,
    pub(crate) answer_takes: u64,
}

impl Passage {
    /// In a storm commands are lost, doubled and held up for seconds; in a calm they just take their time.
    pub(crate) fn of(chance: &mut Chance, is_storm: bool) -> Self {
        let mut arrives_after = Vec::new();
        if !is_storm || !chance.percent(4) {
            arrives_after.push(chance.between(0, 8));
        }
        if is_storm && chance.percent(6) {
            arrives_after.push(chance.between(5, 200));
        }
        if is_storm && chance.percent(4) {
            arrives_after.push(chance.between(1_000, 9_000));
        }
        Self {
            arrives_after,
            is_answer_lost: is_storm && chance.percent(6),
            answer_takes: chance.between(0, 8),
        }
    }
}
