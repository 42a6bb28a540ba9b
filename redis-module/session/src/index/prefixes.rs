//! The prefixes of session keys.
//!
//! Invariant: a key belongs to the longest prefix that it starts with, regardless of their order.

use crate::limits::{KEY_BYTES_MAX, PREFIXES_MAX};

/// The number of a prefix within its [`Prefixes`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PrefixId(u8);

impl PrefixId {
    /// The tag of names that belong under this prefix.
    pub(super) fn tag(self) -> u32 {
        self.0.into()
    }

    /// Every number that a prefix can have.
    pub(super) fn all() -> impl Iterator<Item = Self> {
        (0..=u8::MAX).take(PREFIXES_MAX).map(Self)
    }
}

/// One to sixteen prefixes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Prefixes {
    /// The longest first.
    longest_first: Vec<Box<[u8]>>,
}

/// Why a list of prefixes was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PrefixError {
    /// None, or too many.
    #[error("1 to {PREFIXES_MAX} prefixes are needed")]
    Number,
    /// A prefix that no key can start with, or that every key starts with.
    #[error("a prefix has 1 to {KEY_BYTES_MAX} bytes")]
    Length,
    /// A prefix that is listed twice.
    #[error("a prefix is given twice")]
    Repeated,
}

impl Prefixes {
    /// Creates the list.
    ///
    /// # Errors
    /// None or more than sixteen, an empty or overlong one, or one twice.
    pub fn new<'a>(prefixes: impl IntoIterator<Item = &'a [u8]>) -> Result<Self, PrefixError> {
        let mut longest_first: Vec<Box<[u8]>> = Vec::new();
        for prefix in prefixes {
            if prefix.is_empty() || prefix.len() > KEY_BYTES_MAX {
                return Err(PrefixError::Length);
            }
            if longest_first.len() == PREFIXES_MAX {
                return Err(PrefixError::Number);
            }
            longest_first.push(Box::from(prefix));
        }
        if longest_first.is_empty() {
            return Err(PrefixError::Number);
        }
        longest_first.sort_unstable_by(|a, b| {
            let by_length = b.len().cmp(&a.len());
            by_length.then_with(|| a.cmp(b))
        });
        let given = longest_first.len();
        longest_first.dedup();
        if longest_first.len() < given {
            return Err(PrefixError::Repeated);
        }
        Ok(Self { longest_first })
    }

    /// The prefix that the key belongs to.
    #[must_use]
    pub fn of(&self, key: &[u8]) -> Option<PrefixId> {
        let mut prefixes = self.longest_first.iter();
        let number = prefixes.position(|prefix| key.starts_with(prefix))?;
        u8::try_from(number).ok().map(PrefixId)
    }

    /// The prefixes, the longest first.
    pub fn iter(&self) -> impl Iterator<Item = &[u8]> {
        self.longest_first.iter().map(AsRef::as_ref)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn prefixes(list: &[&str]) -> Result<Prefixes, PrefixError> {
        Prefixes::new(list.iter().map(|prefix| prefix.as_bytes()))
    }

    #[test]
    fn the_longest_prefix_of_a_key_is_its_own() {
        for list in [["a:", "a:b:", "c"], ["a:b:", "c", "a:"]] {
            let prefixes = prefixes(&list).map_err(|error| error.to_string());
            let of = |key: &str| prefixes.as_ref().map(|p| p.of(key.as_bytes()));
            assert_eq!(of("a:b:1"), Ok(Some(PrefixId(0))));
            assert_eq!(of("a:1"), Ok(Some(PrefixId(1))));
            assert_eq!(of("c"), Ok(Some(PrefixId(2))));
            assert_eq!(of("a"), Ok(None));
            assert_eq!(of(""), Ok(None));
        }
    }

    #[test]
    fn bad_lists_are_refused() {
        assert_eq!(prefixes(&[]), Err(PrefixError::Number));
        assert_eq!(prefixes(&["a", ""]), Err(PrefixError::Length));
        assert_eq!(prefixes(&["a", "b", "a"]), Err(PrefixError::Repeated));
        let many: Vec<String> = (0..17).map(|n| n.to_string()).collect();
        let many: Vec<&str> = many.iter().map(String::as_str).collect();
        assert_eq!(prefixes(&many), Err(PrefixError::Number));
        let sixteen = prefixes(many.get(..16).unwrap_or_default());
        assert_eq!(sixteen.map(|p| p.iter().count()), Ok(16));
        assert_eq!(
            prefixes(&["x".repeat(1025).as_str()]),
            Err(PrefixError::Length)
        );
    }
}
