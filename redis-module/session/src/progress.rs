//! What a step of bounded work answers.

/// Whether there is more to do than a step was allowed to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StepProgress {
    /// Nothing is due.
    Done,
    /// The limit was reached.
    More,
}

impl StepProgress {
    /// Both together.
    #[must_use]
    pub const fn and(self, other: Self) -> Self {
        match (self, other) {
            (Self::Done, Self::Done) => Self::Done,
            _ => Self::More,
        }
    }
}
