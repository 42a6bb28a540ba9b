//! How a run is repeated, as requests ask for it and records say it.

/// How a run is repeated.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ReplayMode {
    /// The record answers the calls.
    #[default]
    Recorded,
    /// The tools do, again.
    Live,
}

impl ReplayMode {
    /// Every mode.
    pub const ALL: [Self; 2] = [Self::Recorded, Self::Live];

    /// The word in requests and records.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Recorded => "recorded",
            Self::Live => "live",
        }
    }

    /// Reads a word.
    pub fn parse(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|mode| mode.as_str() == word)
    }
}
