//! The busiest users, in bounded memory: the Space-Saving algorithm (Metwally, Agrawal, El Abbadi: Efficient
//! Computation of Frequent and Top-k Elements in Data Streams, 2005), for the last one to two minutes.
//!
//! Invariant: at most [`ENTRIES_MAX`] entries in each of two periods. A user with more than a thousandth of a period's
//! calls is among them, and a count is too high by at most `overcount`, never too low.

use std::collections::HashMap;
use std::hash::Hash;
use std::time::{Duration, Instant};

/// Most entries of a period.
const ENTRIES_MAX: usize = 1000;
/// How long a period is. The figures are those of the running one and the one before.
const PERIOD: Duration = Duration::from_secs(60);

/// The usage of one user or session.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CallFigures {
    /// Requests, at least these less `overcount`.
    pub calls: u64,
    /// Of those, refused or failed: status 4xx or 5xx.
    pub refused: u64,
    /// Bytes of their messages and replies.
    pub bytes: u64,
    /// How many calls may be those of others, in whose place this entry came.
    pub overcount: u64,
    /// The last of them.
    pub last_at: Option<Instant>,
}

impl CallFigures {
    fn add(&mut self, other: &Self) {
        self.calls = self.calls.saturating_add(other.calls);
        self.refused = self.refused.saturating_add(other.refused);
        self.bytes = self.bytes.saturating_add(other.bytes);
        self.overcount = self.overcount.saturating_add(other.overcount);
        self.last_at = self.last_at.max(other.last_at);
    }
}

/// The busiest of all keys.
#[derive(Debug)]
pub struct Busiest<K> {
    running: Period<K>,
    before: Period<K>,
    began: Instant,
    /// When the period before began.
    began_before: Instant,
}

#[derive(Debug)]
struct Period<K> {
    entries: Vec<(K, CallFigures)>,
    places: HashMap<K, usize>,
}

impl<K> Default for Period<K> {
    fn default() -> Self {
        Self {
            entries: Vec::new(),
            places: HashMap::new(),
        }
    }
}

impl<K: Clone + Eq + Hash> Busiest<K> {
    /// Without entries.
    #[must_use]
    pub fn new(now: Instant) -> Self {
        Self {
            running: Period::default(),
            before: Period::default(),
            began: now,
            began_before: now,
        }
    }

    /// Counts a request of this key.
    pub fn add(&mut self, key: &K, bytes: u64, is_refused: bool, now: Instant) {
        self.turn_over(now);
        let request = CallFigures {
            calls: 1,
            refused: u64::from(is_refused),
            bytes,
            overcount: 0,
            last_at: Some(now),
        };
        self.running.add(key, &request);
    }

    /// The figures of both periods, those with most calls first, and the time that they are of.
    pub fn figures(&mut self, now: Instant) -> (Vec<(K, CallFigures)>, Duration) {
        self.turn_over(now);
        let mut all: HashMap<&K, CallFigures> = HashMap::new();
        for (key, figures) in self.running.entries.iter().chain(&self.before.entries) {
            all.entry(key).or_default().add(figures);
        }
        let mut all: Vec<_> = all
            .into_iter()
            .map(|(key, figures)| (key.clone(), figures))
            .collect();
        all.sort_by_key(|(_, figures)| std::cmp::Reverse(figures.calls));
        (all, now.saturating_duration_since(self.began_before))
    }

    fn turn_over(&mut self, now: Instant) {
        let age = now.saturating_duration_since(self.began);
        if age < PERIOD {
            return;
        }
        self.before = std::mem::take(&mut self.running);
        self.began_before = self.began;
        if age >= PERIOD * 2 {
            self.before = Period::default();
            self.began_before = now;
        }
        self.began = now;
    }
}

impl<K: Clone + Eq + Hash> Period<K> {
    fn add(&mut self, key: &K, request: &CallFigures) {
        if let Some((_, figures)) = self
            .places
            .get(key)
            .and_then(|at| self.entries.get_mut(*at))
        {
            return figures.add(request);
        }
        if self.entries.len() < ENTRIES_MAX {
            self.places.insert(key.clone(), self.entries.len());
            self.entries.push((key.clone(), *request));
            return;
        }
        // The one with fewest calls makes room, and its calls may have been the new one's.
        let entries = self.entries.iter_mut().enumerate();
        if let Some((at, entry)) = entries.min_by_key(|(_, (_, figures))| figures.calls) {
            self.places.remove(&entry.0);
            self.places.insert(key.clone(), at);
            let overcount = entry.1.calls;
            let calls = overcount.saturating_add(request.calls);
            *entry = (
                key.clone(),
                CallFigures {
                    calls,
                    overcount,
                    ..*request
                },
            );
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests fail by panicking")]
    use super::*;

    #[test]
    fn a_flood_is_first_among_a_hundred_thousand_others() {
        let start = Instant::now();
        let mut busiest = Busiest::new(start);
        for other in 1..=100_000_u32 {
            busiest.add(&other, 10, false, start);
            if other % 100 == 0 {
                busiest.add(&0, 5, other % 200 == 0, start);
            }
        }
        let (figures, _) = busiest.figures(start);
        assert_eq!(figures.len(), ENTRIES_MAX);
        let (first, of_first) = figures.first().unwrap();
        assert_eq!(*first, 0);
        assert!(of_first.calls >= 1000, "{of_first:?}");
        assert!(of_first.calls - of_first.overcount <= 1000, "{of_first:?}");
    }

    #[test]
    fn figures_are_exact_while_there_is_room_and_forgotten_after_two_minutes() {
        let start = Instant::now();
        let at = |seconds| start + Duration::from_secs(seconds);
        let mut busiest = Busiest::new(start);
        busiest.add(&"ada", 7, false, at(1));
        busiest.add(&"ada", 3, true, at(61));
        busiest.add(&"bob", 1, false, at(62));
        let (figures, covered) = busiest.figures(at(70));
        let ada = CallFigures {
            calls: 2,
            refused: 1,
            bytes: 10,
            overcount: 0,
            last_at: Some(at(61)),
        };
        assert_eq!(figures.first().unwrap(), &("ada", ada));
        assert_eq!(covered, Duration::from_secs(70));
        let (figures, covered) = busiest.figures(at(125));
        assert_eq!(figures.len(), 2);
        assert_eq!(covered, Duration::from_secs(64));
        assert!(busiest.figures(at(300)).0.is_empty());
    }
}
