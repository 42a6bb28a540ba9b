//! Clients: what each was told, and whether that is true.
//!
//! Invariant: a client whose state is lost is told so by the first result of a tool after that, and by no later one once
//! the record has noted it.

use std::collections::{BTreeMap, BTreeSet};

use mooring_delivery::{DeliveryOutcome, Failure, OnLoss, Repetition, StateLoss};

use crate::gateway::Sim;
use crate::upstreams::{Message, Place, Upstreams};

/// What the client of a session at a server knows.
#[derive(Default)]
pub(crate) struct Known {
    /// The upstream session of its latest result.
    session: Option<String>,
    /// Whether an error has told of a loss since.
    is_told: bool,
    /// The epochs whose losses results have told of.
    told: BTreeSet<u64>,
    /// Those of which the record has noted it.
    noted: BTreeSet<u64>,
}

/// A message and what its client allows.
#[derive(Clone, Debug)]
pub(crate) struct Call {
    pub(crate) message: Message,
    pub(crate) on_loss: OnLoss,
    pub(crate) repetition: Repetition,
}

#[derive(Default)]
pub(crate) struct Clients {
    known: BTreeMap<Place, Known>,
    /// Grows with each new record under a key.
    generations: BTreeMap<String, u64>,
}

impl Clients {
    pub(crate) fn generation(&self, key: &str) -> u64 {
        self.generations.get(key).copied().unwrap_or(0)
    }

    /// A new record begins under the key, or its session has ended: its clients initialize again and expect no state.
    pub(crate) fn begin_again(&mut self, key: &str) {
        *self.generations.entry(key.to_owned()).or_default() += 1;
        self.known.retain(|place, _| place.0 != key);
    }

    /// The store has lost writes: what it has told and noted may be told again, or never.
    pub(crate) fn forget_all(&mut self) {
        self.known.clear();
        for generation in self.generations.values_mut() {
            *generation += 1;
        }
    }

    /// A reply has arrived. Answers the epoch whose loss the record has to note as told.
    pub(crate) fn answered(
        &mut self,
        call: &Call,
        delivered: &DeliveryOutcome,
        upstreams: &Upstreams,
    ) -> Option<u64> {
        let id = call.message.call;
        assert!(
            upstreams.has_run(id),
            "call {id} was answered and has not run"
        );
        if !delivered.reports_loss
            || call.message.generation != self.generation(&call.message.place.0)
        {
            return None;
        }
        let binding = &delivered.resolved.binding;
        let session = binding.upstream_session.as_ref().unwrap().to_string();
        let known = self.known.entry(call.message.place.clone()).or_default();
        let is_other = (known.session.as_ref()).is_some_and(|earlier| *earlier != session);
        let loss = delivered.resolved.state_loss.as_ref();
        assert!(
            !is_other || known.is_told || loss.is_some(),
            "call {id}: the state of {:?} is lost, and the result does not say so",
            known.session
        );
        if let Some(StateLoss { epoch, .. }) = loss {
            assert!(
                !known.noted.contains(epoch),
                "call {id}: the loss with epoch {epoch} is told twice"
            );
            let is_new = known.told.insert(*epoch);
            let is_same = known.session.as_ref() == Some(&session);
            assert!(
                !is_new || !is_same,
                "call {id}: {session} is told to be lost, and is not"
            );
        }
        known.session = Some(session);
        known.is_told = false;
        loss.map(|loss| loss.epoch)
    }

    pub(crate) fn noted(&mut self, place: &Place, generation: u64, epoch: u64) {
        if generation == self.generation(&place.0) {
            (self.known.entry(place.clone()).or_default().noted).insert(epoch);
        }
    }

    /// A call has failed: the error says what is known.
    pub(crate) fn failed(
        &mut self,
        call: &Call,
        failure: &Failure<Sim>,
        upstreams: &mut Upstreams,
    ) {
        let told = match failure {
            Failure::OutcomeUnknown { state_loss, .. } => state_loss,
            Failure::LostAgain { state_loss } => {
                upstreams.told_not_run(call.message.call);
                state_loss
            }
            // Only of the upstream session that the message belonged to.
            Failure::Lost => &None,
            Failure::Resolve(_) | Failure::Unreachable(_) | Failure::Answer(_) => {
                if call.repetition != Repetition::Harmless {
                    upstreams.told_not_run(call.message.call);
                }
                &None
            }
        };
        let is_told = told.is_some() && call.on_loss == OnLoss::RecoverAndReport;
        if is_told && call.message.generation == self.generation(&call.message.place.0) {
            self.known
                .entry(call.message.place.clone())
                .or_default()
                .is_told = true;
        }
    }
}
