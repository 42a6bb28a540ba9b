//! How a fault meets a gateway at a chosen moment: it asks for the moment, and a user that reaches it says so.

use std::time::Duration;

use std::sync::atomic::{AtomicU8, Ordering};
use tokio::sync::Notify;
use tokio::time::timeout;

/// After this time a fault comes without its moment: no user may be at the gateway.
const REACHED_WITHIN: Duration = Duration::from_secs(1);

/// A moment of a gateway.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum Moment {
    /// A call is sent to it.
    Call = 1,
    /// A session begins a pause at it.
    Idle = 2,
}

/// The moments that are waited for, by gateway.
#[derive(Debug)]
pub(super) struct Aim(Vec<(AtomicU8, Notify)>);

const NONE: u8 = 0;

impl Aim {
    pub(super) fn new(gateways: usize) -> Self {
        Self((0..gateways).map(|_| Default::default()).collect())
    }

    /// A user is at this moment.
    pub(super) fn is_at(&self, gateway: usize, moment: Moment) {
        let (wanted, reached) = &self.0[gateway];
        let moment = moment as u8;
        let order = Ordering::SeqCst;
        if wanted.compare_exchange(moment, NONE, order, order).is_ok() {
            reached.notify_one();
        }
    }

    /// Returns at the next such moment, or after a while.
    pub(super) async fn wait_for(&self, gateway: usize, moment: Moment) {
        let (wanted, reached) = &self.0[gateway];
        wanted.store(moment as u8, Ordering::SeqCst);
        let _ = timeout(REACHED_WITHIN, reached.notified()).await;
        wanted.store(NONE, Ordering::SeqCst);
    }
}
