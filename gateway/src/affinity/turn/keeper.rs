//! The task of a turn: it holds it, passes it on and asks for it again as its call wishes, and gives it back at the end.
//!
//! Nothing is asked of the store in the first second of a turn. Invariant: the call never waits for this task, and the
//! task ends with the call.

use std::time::Duration;

use tokio::sync::watch;
use tokio::time::sleep;

use super::place::{ASK_AGAIN_AFTER, LEASE, Place};
use super::{TurnError, number_of};
use crate::store::{AnsweredBy, StoreError};

/// How often a holder renews: an attempt may fail before the lease lapses.
pub(super) const RENEW_EVERY: Duration = Duration::from_secs(1);

const _: () = assert!(RENEW_EVERY.as_millis() * 3 <= LEASE.as_millis());

/// What the call wants of its turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Wish {
    /// To have it.
    Hold,
    /// That others have it meanwhile.
    PassOn,
}

/// Whether the turn is still what it was.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Standing {
    /// Nobody has it meanwhile but those to whom it was passed on.
    Held,
    /// Another may have it by now.
    Lost,
}

/// Where the task learns what the call wants.
type Wishes = watch::Receiver<Wish>;

/// The call is over, and nothing is wanted any more.
struct Over;

/// Keeps the turn that the ticket at `place` has under `number`, until the call is over.
pub(super) async fn keep(
    mut place: Place,
    number: Option<u64>,
    mut wishes: Wishes,
    standing: watch::Sender<Standing>,
) {
    let mut given = Given::Already(number);
    loop {
        let wished = tokio::select! {
            biased;
            wished = until(&mut wishes, Wish::PassOn) => wished,
            () = hold(&mut place, given) => {
                standing.send_replace(Standing::Lost);
                place.leave().await;
                until(&mut wishes, Wish::PassOn).await
            }
        };
        place.leave().await;
        if wished.is_err() || until(&mut wishes, Wish::Hold).await.is_err() {
            return;
        }
        let Ok(next) = place.again() else {
            return;
        };
        place = next;
        given = Given::NotYet;
    }
}

/// How the turn comes to the ticket.
#[derive(Clone, Copy)]
enum Given {
    /// It has it, under this number.
    Already(Option<u64>),
    /// It has to ask for it.
    NotYet,
}

/// Returns when the turn is lost, or cannot be had any more.
async fn hold(place: &mut Place, given: Given) {
    let number = match given {
        Given::Already(number) => number,
        Given::NotYet => match line_up(place).await {
            Ok(number) => number,
            Err(error) => {
                tracing::debug!(%error, "a call goes on without its turn");
                return;
            }
        },
    };
    renew(place, number).await;
}

/// Waits for the turn for as long as it takes, also where it cannot be asked for at present.
async fn line_up(place: &mut Place) -> Result<Option<u64>, TurnError> {
    loop {
        match place.wait(None).await {
            Ok(entered) => return Ok(number_of(&entered)),
            Err(
                TurnError::TooMany
                | TurnError::Store(StoreError::Away(_) | StoreError::NotReady(_)),
            ) => sleep(ASK_AGAIN_AFTER).await,
            Err(error) => return Err(error),
        }
    }
}

/// Renews the turn; returns when it is lost.
async fn renew(place: &mut Place, number: Option<u64>) {
    loop {
        sleep(RENEW_EVERY).await;
        let was_degraded = place.store().is_degraded();
        let answer = place.ask(number).await;
        // What memory says of the turns of this worker says nothing of a turn that the store gave.
        let is_of_memory = was_degraded || place.store().is_degraded();
        let is_taken = match answer {
            Ok(entered) => entered.answered_by == AnsweredBy::Store && entered.turn != number,
            Err(StoreError::Refused(_)) => true,
            Err(_) => false,
        };
        if is_taken && !is_of_memory && number.is_some() {
            return;
        }
    }
}

async fn until(wishes: &mut Wishes, wish: Wish) -> Result<(), Over> {
    let wished = wishes.wait_for(|wished| *wished == wish).await;
    wished.map(drop).map_err(|_| Over)
}
