//! The name of a run or of an event.

use std::fmt;
use std::io;

use crate::volume::Area;
use mooring_secrets::digest;
use mooring_store::unix_now_ms;

const MS_PER_DAY: u64 = 24 * 60 * 60 * 1_000;
/// Letters and digits of an id.
const LENGTH: usize = 26;

/// The name of a run or of a security event: sorted by time, and not to be guessed (a ULID).
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RunId(Box<str>);

impl RunId {
    /// A new one.
    pub(crate) fn new() -> Self {
        Self::at(unix_now_ms())
    }

    /// A new one of this moment, in milliseconds since 1970.
    pub(super) fn at(unix_ms: u64) -> Self {
        Self(
            ulid::Ulid::from_parts(unix_ms, rand::random())
                .to_string()
                .into(),
        )
    }

    /// Reads an id in the one way it is written; none for anything else.
    pub fn parse(text: &str) -> Option<Self> {
        let id = ulid::Ulid::from_string(text).ok()?;
        let is_canonical = text.len() == LENGTH && id.to_string() == text;
        is_canonical.then(|| Self(text.into()))
    }

    /// The id as text: 26 letters and digits.
    pub(crate) fn as_str(&self) -> &str {
        &self.0
    }

    /// When it was made, in milliseconds since 1970.
    pub(crate) fn made_at_ms(&self) -> u64 {
        ulid::Ulid::from_string(&self.0).map_or(0, |id| id.timestamp_ms())
    }

    /// The directory of its day: days since 1970, in as many digits as sort.
    pub(super) fn day(&self) -> String {
        day_directory(self.made_at_ms())
    }
}

impl fmt::Display for RunId {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.0)
    }
}

/// The directory of the day of this moment.
pub(super) fn day_directory(unix_ms: u64) -> String {
    format!("{:06}", unix_ms / MS_PER_DAY)
}

/// The mark of a principal or gateway in the names of files. Two may share one.
pub(super) fn name_mark(name: &str) -> String {
    let hash = digest::hex(name.as_bytes());
    hash.get(..16).unwrap_or(&hash).to_owned()
}

/// Whether a name is that of the directory of a day.
pub(super) fn is_day_directory(name: &str) -> bool {
    name.len() == 6 && name.bytes().all(|byte| byte.is_ascii_digit())
}

/// The days that have a directory in this one, newest first; `""` has those of runs.
pub(super) fn days(area: &Area, directory: &str) -> io::Result<Vec<String>> {
    let mut days = area.names(directory)?;
    days.retain(|name| is_day_directory(name));
    days.sort_unstable_by(|a, b| b.cmp(a));
    Ok(days)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests fail by panicking")]
    use super::*;

    #[test]
    fn ids_sort_by_time_and_are_read_in_one_way() {
        let (first, second) = (RunId::at(86_400_000), RunId::at(86_400_001));
        assert!(first < second);
        assert_eq!(first.day(), "000001");
        assert!(is_day_directory(&first.day()));
        assert_eq!(RunId::parse(first.as_str()).unwrap(), first);
        assert_eq!(first.made_at_ms(), 86_400_000);
        for text in [
            "",
            "..",
            "x",
            &first.as_str().to_lowercase(),
            &format!("{first}0"),
        ] {
            assert_eq!(RunId::parse(text), None, "{text}");
        }
    }
}
