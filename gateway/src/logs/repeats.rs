//! Which lines are written and which only counted: at first [`BURST`] lines of one kind, then [`LINES_PER_SECOND`]. Lines
//! are of one kind if the same place in the code wrote them about the same server and the same user.
//!
//! Invariant: a line is written, or is in a count that is written within seconds. A kind takes nothing from another.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use tracing::Level;
use tracing::callsite::Identifier;

use super::line::LineFields;

/// Lines of one kind after a quiet time: more than a start, or an error with its trace, takes.
const BURST: u32 = 50;
/// Lines of one kind per second after those.
const LINES_PER_SECOND: u32 = 10;
/// Time in which one line is earned.
const INTERVAL: Duration = Duration::from_millis(1000 / LINES_PER_SECOND as u64);
/// How far ahead of its rate a kind may be.
const AHEAD_MAX: Duration =
    Duration::from_millis(1000 / LINES_PER_SECOND as u64 * (BURST as u64 - 1));
/// Maximum kinds that are distinguished by server and user. All further ones of one place share a kind.
const KINDS_MAX: usize = 4096;

/// Lines that count as the same.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct LineKind {
    /// The place in the code, which also has the level.
    pub(super) callsite: Identifier,
    /// The server that the line is about.
    pub(super) server: Option<String>,
    /// The digest of the user that it is about.
    pub(super) user: Option<String>,
}

/// The lines of one kind that were counted instead of written.
#[derive(Debug)]
pub(super) struct RepeatedLine {
    /// The level of each.
    pub(super) level: Level,
    /// The target of each.
    pub(super) target: &'static str,
    /// The fields of one of them.
    pub(super) fields: LineFields,
    /// How many.
    pub(super) count: u64,
}

/// Counts lines by their kind.
#[derive(Debug, Default)]
pub(super) struct Repeats(HashMap<LineKind, LineRate>);

#[derive(Debug)]
struct LineRate {
    /// When all lines so far are earned.
    earned_at: Instant,
    /// Lines that were counted since the last report.
    counted: u64,
    /// One of those.
    example: Option<RepeatedLine>,
}

/// The decision about a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Admission {
    /// It is written.
    Written,
    /// It is counted, and represents those that follow: [`Repeats::describe`] takes it.
    Described,
    /// It is counted, and need not even be formatted.
    Counted,
}

impl Repeats {
    /// Decides on a line of this kind. Where there are too many kinds, it takes server and user out of
    /// this one.
    pub(super) fn admit(&mut self, kind: &mut LineKind, now: Instant) -> Admission {
        if self.0.len() >= KINDS_MAX && !self.0.contains_key(kind) {
            (kind.server, kind.user) = (None, None);
        }
        let rate = self.0.entry(kind.clone()).or_insert(LineRate {
            earned_at: now,
            counted: 0,
            example: None,
        });
        let earned_at = rate.earned_at.max(now);
        if earned_at.saturating_duration_since(now) <= AHEAD_MAX {
            rate.earned_at = earned_at + INTERVAL;
            return Admission::Written;
        }
        rate.counted = rate.counted.saturating_add(1);
        match rate.example {
            None => Admission::Described,
            Some(_) => Admission::Counted,
        }
    }

    /// Takes the line that represents the counted ones of its kind.
    pub(super) fn describe(&mut self, kind: &LineKind, line: RepeatedLine) {
        if let Some(rate) = self.0.get_mut(kind) {
            rate.example = Some(line);
        }
    }

    /// The lines counted since the last time, one for each kind. Forgets kinds without lines.
    pub(super) fn take_counted(&mut self, now: Instant) -> Vec<RepeatedLine> {
        let mut counted = Vec::new();
        self.0.retain(|_, rate| {
            if let Some(example) = rate.example.take() {
                let count = std::mem::take(&mut rate.counted);
                counted.push(RepeatedLine { count, ..example });
            }
            rate.earned_at > now || rate.counted > 0
        });
        counted
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

    use tracing::Callsite as _;

    use super::super::line::LineFormat;
    use super::*;

    fn kind(server: Option<&str>) -> LineKind {
        let callsite =
            tracing::callsite!(name: "test", kind: tracing::metadata::Kind::EVENT, fields: message);
        LineKind {
            callsite: callsite.metadata().callsite(),
            server: server.map(str::to_owned),
            user: None,
        }
    }

    fn line() -> RepeatedLine {
        RepeatedLine {
            level: Level::INFO,
            target: "mooring_gateway",
            fields: LineFields::new(LineFormat::Text),
            count: 0,
        }
    }

    fn admit(repeats: &mut Repeats, server: Option<&str>, now: Instant) -> Admission {
        let mut kind = kind(server);
        let admission = repeats.admit(&mut kind, now);
        if admission == Admission::Described {
            repeats.describe(&kind, line());
        }
        admission
    }

    fn written(repeats: &mut Repeats, server: Option<&str>, now: Instant) -> usize {
        (0..5000)
            .filter(|_| admit(repeats, server, now) == Admission::Written)
            .count()
    }

    #[test]
    fn a_flood_is_written_in_part_and_counted_whole() {
        let (mut repeats, start) = (Repeats::default(), Instant::now());
        assert_eq!(written(&mut repeats, None, start), 50);
        let counted = repeats.take_counted(start);
        assert_eq!(counted.len(), 1);
        assert_eq!(counted.first().unwrap().count, 4950);
        assert!(repeats.take_counted(start).is_empty());
        let later = start + Duration::from_secs(1);
        assert_eq!(written(&mut repeats, None, later), 10);
        let quiet = later + Duration::from_secs(60);
        assert_eq!(repeats.take_counted(quiet).first().unwrap().count, 4990);
        assert!(repeats.0.is_empty());
        assert_eq!(written(&mut repeats, None, quiet), 50);
    }

    #[test]
    fn the_flood_of_one_server_hides_no_line_of_another() {
        let (mut repeats, now) = (Repeats::default(), Instant::now());
        assert_eq!(written(&mut repeats, Some("loud"), now), 50);
        assert_eq!(written(&mut repeats, Some("other"), now), 50);
        assert_eq!(written(&mut repeats, None, now), 50);
    }

    #[test]
    fn the_flood_of_one_user_hides_no_line_of_another() {
        let (mut repeats, now) = (Repeats::default(), Instant::now());
        let mut count = |user: &str| {
            let user = Some(user.to_owned());
            (0..100)
                .filter(|_| {
                    let mut kind = LineKind {
                        user: user.clone(),
                        ..kind(Some("tools"))
                    };
                    repeats.admit(&mut kind, now) == Admission::Written
                })
                .count()
        };
        assert_eq!((count("loud"), count("other")), (50, 50));
    }

    #[test]
    fn the_number_of_kinds_is_bounded() {
        let (mut repeats, now) = (Repeats::default(), Instant::now());
        for number in 0..10_000 {
            admit(&mut repeats, Some(&number.to_string()), now);
        }
        assert_eq!(repeats.0.len(), KINDS_MAX + 1);
    }
}
