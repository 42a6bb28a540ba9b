//! The result of a step of bounded work.

/// Whether work is left after a bounded step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StepProgress {
    /// Nothing is due.
    Done,
    /// The limit was reached.
    More,
}

impl StepProgress {
    /// The progress of two steps together.
    #[must_use]
    pub const fn and(self, other: Self) -> Self {
        match (self, other) {
            (Self::Done, Self::Done) => Self::Done,
            _ => Self::More,
        }
    }
}
