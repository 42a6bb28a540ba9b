//! What the counts of one session may be, given what its client was told. Pure: it is tested by itself.
//!
//! Invariant: a count that is lower than one that was answered before is accepted only where a reply said that state was
//! lost, or where the reply that would have said so was itself lost.

/// What a client saw of one call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Observation {
    /// An answer with this count.
    Counted(u64),
    /// An answer with this count that says that state was lost before it.
    CountedAfterLoss(u64),
    /// An error, or an answer of another call, that says that state was lost.
    StateLost,
    /// An error that says nothing of state. The call may have run.
    ErrorReply,
    /// The connection ended before the reply. The call may have run, and the reply may have told of a loss.
    NoReply,
}

/// The counts of one session so far.
#[derive(Clone, Debug, Default)]
pub(super) struct CounterHistory {
    answered: u64,
    /// Calls since then that may have run.
    unanswered: u64,
    has_unread_reply: bool,
    unread_losses: u64,
}

impl CounterHistory {
    /// Takes in what was seen; an error says what it contradicts.
    pub(super) fn note(&mut self, observation: Observation) -> Result<(), String> {
        match observation {
            Observation::Counted(count) => return self.note_count(count),
            Observation::CountedAfterLoss(count) => {
                let most = self.unanswered + 1;
                self.answer(count);
                if count == 0 || count > most {
                    return Err(format!("{count} after a loss, with {most} calls since"));
                }
            }
            Observation::StateLost => {
                self.answered = 0;
                self.unanswered += 1;
            }
            Observation::ErrorReply => self.unanswered += 1,
            Observation::NoReply => {
                self.unanswered += 1;
                self.has_unread_reply = true;
            }
        }
        Ok(())
    }

    /// Losses that no reply told of that was read.
    pub(super) fn unread_losses(&self) -> u64 {
        self.unread_losses
    }

    fn note_count(&mut self, count: u64) -> Result<(), String> {
        let (answered, unanswered) = (self.answered, self.unanswered);
        let had_unread_reply = self.has_unread_reply;
        self.answer(count);
        if (answered + 1..=answered + 1 + unanswered).contains(&count) {
            return Ok(());
        }
        if had_unread_reply && (1..=1 + unanswered).contains(&count) {
            self.unread_losses += 1;
            return Ok(());
        }
        Err(format!(
            "{count} after {answered} and {unanswered} calls that may have run; nothing said that state was lost"
        ))
    }

    fn answer(&mut self, count: u64) {
        self.answered = count;
        self.unanswered = 0;
        self.has_unread_reply = false;
    }
}

#[cfg(test)]
mod tests {
    use super::Observation::{Counted, CountedAfterLoss, ErrorReply, NoReply, StateLost};
    use super::{CounterHistory, Observation};

    fn is_consistent(observations: &[Observation]) -> bool {
        let mut history = CounterHistory::default();
        observations.iter().all(|seen| history.note(*seen).is_ok())
    }

    #[test]
    fn counts_grow_by_what_may_have_run_unless_a_loss_was_told() {
        for consistent in [
            &[Counted(1), Counted(2), Counted(3)][..],
            &[Counted(1), ErrorReply, Counted(2)],
            &[Counted(1), ErrorReply, Counted(3)],
            &[Counted(1), Counted(2), CountedAfterLoss(1), Counted(2)],
            &[Counted(1), Counted(2), StateLost, Counted(1)],
            &[Counted(1), Counted(2), StateLost, Counted(2)],
            &[Counted(1), Counted(2), NoReply, Counted(1)],
        ] {
            assert!(is_consistent(consistent), "{consistent:?}");
        }
        for contradictory in [
            &[Counted(1), Counted(1)][..],
            &[Counted(1), Counted(3)],
            &[Counted(1), Counted(2), Counted(1)],
            &[Counted(1), Counted(2), ErrorReply, Counted(1)],
            &[Counted(1), ErrorReply, Counted(4)],
            &[Counted(2)],
            &[Counted(1), CountedAfterLoss(2)],
            &[Counted(1), Counted(2), NoReply, Counted(5)],
        ] {
            assert!(!is_consistent(contradictory), "{contradictory:?}");
        }
    }
}
