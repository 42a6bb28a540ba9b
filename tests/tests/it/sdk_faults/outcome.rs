//! What a user knows after a fault: the right count, a mark or an error. Anything else is a silent loss.

use std::collections::BTreeSet;
use std::fmt;

use super::client::Outcome;

/// What a user sees beside right counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Sign {
    /// An error of the gateway, which says what is known of the call.
    Error,
    /// An error of the client's own, which says that the connection broke.
    Broken,
    /// A result whose mark says that the session's state is new.
    Marked,
    /// The client failed until its user opened it again.
    Reopened,
    /// The client waits, though its call was answered.
    Waits,
}

impl Sign {
    const ALL: [Self; 5] = [
        Self::Error,
        Self::Broken,
        Self::Marked,
        Self::Reopened,
        Self::Waits,
    ];

    /// As it is called in `docs/compatibility.md`.
    pub(super) const fn word(self) -> &'static str {
        match self {
            Self::Error => "error",
            Self::Broken => "broken",
            Self::Marked => "marked",
            Self::Reopened => "reopened",
            Self::Waits => "waits",
        }
    }
}

/// The signs in a cell of the table. None: it counts on.
pub(super) fn signs_in(cell: &str) -> BTreeSet<Sign> {
    let words: Vec<&str> = cell.split(", ").collect();
    let is_there = |sign: &Sign| words.contains(&sign.word());
    Sign::ALL.into_iter().filter(is_there).collect()
}

/// A cell of the table.
pub(super) struct Cell<'a>(pub(super) &'a BTreeSet<Sign>);

impl fmt::Display for Cell<'_> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0.is_empty() {
            return formatter.write_str("counts on");
        }
        let words: Vec<&str> = self.0.iter().map(|sign| sign.word()).collect();
        formatter.write_str(&words.join(", "))
    }
}

/// Words of the gateway's errors about a call whose outcome is not known, or that did not run, and of clients that show the
/// status of such an error alone.
const ERROR_PARTS: [&str; 3] = ["may have run", "not available", "503 Service Unavailable"];

/// The signs that a session's user has seen; an error if a count came that they do not explain.
pub(super) fn signs_of(outcomes: &[Outcome]) -> Result<BTreeSet<Sign>, String> {
    let mut signs = BTreeSet::new();
    let (mut last, mut errors) = (0, 0);
    for outcome in outcomes {
        if outcome.is_reopened {
            signs.insert(Sign::Reopened);
            (last, errors) = (0, 0);
        } else if let Some(error) = &outcome.error {
            let is_known = ERROR_PARTS.iter().any(|words| error.contains(words));
            signs.insert(if is_known { Sign::Error } else { Sign::Broken });
            errors += 1;
        } else if let Some(count) = outcome.count {
            // A call that failed may have run, and counted.
            let is_marked = !outcome.mark.is_null();
            let first = if is_marked { 1 } else { last + 1 };
            if count < first || count > first + errors {
                return Err(format!("{count} after {last}: {outcomes:#?}"));
            }
            if is_marked {
                signs.insert(Sign::Marked);
            }
            (last, errors) = (count, 0);
        }
    }
    Ok(signs)
}
