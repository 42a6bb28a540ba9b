//! A budget of bytes, the shares of its users, and what they hold.
//!
//! Invariants: what is held never exceeds the share of its user nor the budget, and is given back on drop. A part of
//! each share and of the budget is for short messages alone. What long messages of one user may take is a part of what is
//! free, so users who hold as much as they can leave room for one more: the dynamic threshold of switches with shared
//! memory (Choudhury and Hahne, 1998). A waiter holds nothing of the budget while it waits, so waiters cannot deadlock.

use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, ready};

use crate::SHORT_BYTES_MAX;
use crate::memory_limit::MemoryLimit;

/// The largest share is the budget divided by this.
const SHARES: usize = 4;
/// Long messages of a user take at most what is free, divided by this: so a user alone takes a share, and each of `n`
/// users takes the budget divided by `n + FREE_PARTS`.
const FREE_PARTS: usize = SHARES - 1;

/// The time for which to wait for room: a future that ends with it. The crate knows no clock.
pub type Patience = fn() -> Pin<Box<dyn Future<Output = ()> + Send>>;

/// Bytes that several users share.
pub struct MemoryBudget {
    limit: MemoryLimit,
    /// The longest message.
    longest: usize,
    part: SharePart,
    setting: &'static str,
    patience: Patience,
}

/// The part of a budget that is the share of one user.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SharePart {
    /// A quarter at most, or what the longest message takes, if that is more.
    Quarter,
    /// All of it, because there is only one user.
    Whole,
}

/// One user's share of a budget.
#[derive(Debug)]
pub struct MemoryShare {
    limit: MemoryLimit,
    budget: Arc<MemoryBudget>,
    /// How many replies or messages wait for room.
    waiting: AtomicUsize,
}

/// Bytes that are taken from a share, and given back on drop.
#[derive(Debug)]
pub struct HeldMemory {
    share: Arc<MemoryShare>,
    bytes: usize,
}

/// A budget does not have as many bytes left.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NoRoom {
    /// The user holds too much.
    #[error(
        "what is held for this user takes its share of {setting}, which is {bytes_max} bytes now"
    )]
    OfUser {
        /// The setting of the budget.
        setting: &'static str,
        /// The share, as much as it is while others hold what they do.
        bytes_max: usize,
    },
    /// All users together hold too much.
    #[error("what is held for all users takes all of {setting} ({bytes_max} bytes)")]
    OfAll {
        /// The setting of the budget.
        setting: &'static str,
        /// The budget.
        bytes_max: usize,
    },
}

/// A wait for room that has begun, and ends with the budget's patience.
#[derive(Default)]
pub struct RoomWait(Option<BegunRoomWait>);

struct BegunRoomWait {
    patience: Pin<Box<dyn Future<Output = ()> + Send>>,
    share: Arc<MemoryShare>,
}

impl BegunRoomWait {
    fn of(share: &Arc<MemoryShare>) -> Self {
        share.waiting.fetch_add(1, Ordering::Relaxed);
        Self {
            patience: (share.budget.patience)(),
            share: Arc::clone(share),
        }
    }
}

impl Drop for BegunRoomWait {
    fn drop(&mut self) {
        self.share.waiting.fetch_sub(1, Ordering::Relaxed);
    }
}

impl fmt::Debug for RoomWait {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_tuple("RoomWait")
            .field(&self.0.is_some())
            .finish()
    }
}

impl fmt::Debug for MemoryBudget {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("MemoryBudget")
            .field("setting", &self.setting)
            .field("used", &self.used())
            .finish_non_exhaustive()
    }
}

impl MemoryBudget {
    /// A budget of `bytes_max` bytes for messages of up to `longest` bytes. Errors name `setting`.
    #[must_use]
    pub fn new(
        bytes_max: usize,
        longest: usize,
        part: SharePart,
        setting: &'static str,
        patience: Patience,
    ) -> Arc<Self> {
        Arc::new(Self {
            limit: MemoryLimit::new(bytes_max, longest),
            longest,
            part,
            setting,
            patience,
        })
    }

    /// The share of one more user.
    #[must_use]
    pub fn share(self: &Arc<Self>) -> Arc<MemoryShare> {
        let bytes_max = self.limit.bytes_max();
        let bytes_max = match self.part {
            SharePart::Quarter => (bytes_max / SHARES).max(self.longest).min(bytes_max),
            SharePart::Whole => bytes_max,
        };
        Arc::new(MemoryShare {
            limit: MemoryLimit::new(bytes_max, self.longest),
            budget: Arc::clone(self),
            waiting: AtomicUsize::new(0),
        })
    }

    /// The bytes that are held for all users.
    #[must_use]
    pub fn used(&self) -> usize {
        self.limit.used()
    }
}

impl MemoryShare {
    /// An empty hold, charged to this share.
    #[must_use]
    pub const fn hold(self: Arc<Self>) -> HeldMemory {
        HeldMemory {
            share: self,
            bytes: 0,
        }
    }

    /// The bytes that are held for this user.
    #[must_use]
    pub fn used(&self) -> usize {
        self.limit.used()
    }

    /// What occupies the room for which a message of this share waits; none if nothing waits.
    #[must_use]
    pub fn awaited(&self) -> Option<NoRoom> {
        if self.waiting.load(Ordering::Relaxed) == 0 {
            return None;
        }
        let setting = self.budget.setting;
        let of_user = self.long_bytes_max();
        Some(match self.used().saturating_add(self.longest()) > of_user {
            true => NoRoom::OfUser {
                setting,
                bytes_max: of_user,
            },
            false => NoRoom::OfAll {
                setting,
                bytes_max: self.budget.limit.bytes_max(),
            },
        })
    }

    /// The longest message that the budget is for, in bytes.
    #[must_use]
    pub fn longest(&self) -> usize {
        self.budget.longest
    }

    fn try_take(&self, bytes: usize, is_short: bool) -> Result<(), NoRoom> {
        let setting = self.budget.setting;
        let bytes_max = match is_short {
            true => self.limit.bytes_max(),
            false => self.long_bytes_max(),
        };
        if !self.limit.try_take(bytes, bytes_max) {
            return Err(NoRoom::OfUser { setting, bytes_max });
        }
        let bytes_max = match is_short {
            true => self.budget.limit.bytes_max(),
            false => self.budget.limit.long_bytes_max(),
        };
        if !self.budget.limit.try_take(bytes, bytes_max) {
            self.limit.give_back(bytes);
            return Err(NoRoom::OfAll { setting, bytes_max });
        }
        Ok(())
    }

    /// How many bytes of long messages this user may hold now. A user that holds nothing may hold the longest one.
    fn long_bytes_max(&self) -> usize {
        let most = self.limit.long_bytes_max();
        match self.budget.part {
            SharePart::Whole => most,
            SharePart::Quarter => {
                let free = (self.budget.limit.long_bytes_max()).saturating_sub(self.budget.used());
                most.min((free / FREE_PARTS).max(self.budget.longest))
            }
        }
    }
}

impl HeldMemory {
    /// The bytes that are held.
    #[must_use]
    pub const fn bytes(&self) -> usize {
        self.bytes
    }

    /// Takes more bytes.
    ///
    /// # Errors
    /// [`NoRoom`]: nothing more was taken.
    pub fn try_grow(&mut self, bytes: usize) -> Result<(), NoRoom> {
        let sum = self.bytes.saturating_add(bytes);
        self.share.try_take(bytes, sum <= SHORT_BYTES_MAX)?;
        self.bytes = sum;
        Ok(())
    }

    /// Takes more bytes when there is room for them. What is held should be nothing: others may be waiting for it.
    ///
    /// # Errors
    /// [`NoRoom`]: there was none for as long as the budget's patience lasts.
    pub fn poll_grow(
        &mut self,
        bytes: usize,
        wait: &mut RoomWait,
        context: &mut Context<'_>,
    ) -> Poll<Result<(), NoRoom>> {
        if self.try_grow(bytes).is_ok() {
            wait.0 = None;
            return Poll::Ready(Ok(()));
        }
        // Memory that others release makes room too, and all memory is released to the budget.
        self.share.budget.limit.register(context.waker());
        let Err(error) = self.try_grow(bytes) else {
            wait.0 = None;
            return Poll::Ready(Ok(()));
        };
        let begun = (wait.0).get_or_insert_with(|| BegunRoomWait::of(&self.share));
        ready!(begun.patience.as_mut().poll(context));
        wait.0 = None;
        Poll::Ready(Err(error))
    }

    /// The same as a future.
    ///
    /// # Errors
    /// [`NoRoom`].
    pub async fn grow(&mut self, bytes: usize) -> Result<(), NoRoom> {
        let mut wait = RoomWait::default();
        std::future::poll_fn(|context| self.poll_grow(bytes, &mut wait, context)).await
    }

    /// Takes all of it out, and leaves nothing.
    #[must_use]
    pub fn take(&mut self) -> Self {
        Self {
            share: Arc::clone(&self.share),
            bytes: std::mem::take(&mut self.bytes),
        }
    }

    /// Keeps `bytes` of what is held, and gives the rest back.
    pub fn shrink_to(&mut self, bytes: usize) {
        let rest = self.bytes.saturating_sub(bytes);
        if rest > 0 {
            self.bytes -= rest;
            self.give_back(rest);
        }
    }

    fn give_back(&self, bytes: usize) {
        self.share.limit.give_back(bytes);
        self.share.budget.limit.give_back(bytes);
    }
}

impl Drop for HeldMemory {
    fn drop(&mut self) {
        if self.bytes > 0 {
            self.give_back(self.bytes);
        }
    }
}

/// Two that hold as much.
impl PartialEq for HeldMemory {
    fn eq(&self, other: &Self) -> bool {
        self.bytes == other.bytes
    }
}

impl Eq for HeldMemory {}

#[cfg(test)]
mod tests {
    #![allow(
        clippy::unwrap_used,
        clippy::indexing_slicing,
        reason = "tests fail by panicking"
    )]
    use std::time::Duration;

    use super::*;

    const LONG: usize = SHORT_BYTES_MAX + 1;
    const BUDGET: usize = 4 * 1024 * 1024;
    const PATIENCE: Duration = Duration::from_secs(30);

    fn patience() -> Pin<Box<dyn Future<Output = ()> + Send>> {
        Box::pin(tokio::time::sleep(PATIENCE))
    }

    fn budget() -> Arc<MemoryBudget> {
        MemoryBudget::new(BUDGET, LONG, SharePart::Quarter, "test.budget", patience)
    }

    /// As many messages of this length as there is room for.
    fn fill(share: &Arc<MemoryShare>, bytes: usize) -> Vec<HeldMemory> {
        let held = || {
            let mut held = Arc::clone(share).hold();
            held.try_grow(bytes).ok().map(|()| held)
        };
        std::iter::from_fn(held).collect()
    }

    #[test]
    fn one_user_takes_a_quarter_and_the_others_still_get_theirs() {
        let budget = budget();
        let shares: Vec<_> = (0..4).map(|_| budget.share()).collect();
        let all: Vec<_> = shares.iter().map(|share| fill(share, LONG)).collect();
        assert!(shares[0].used() <= BUDGET / 4 && shares[0].used() > BUDGET / 5);
        for share in &shares {
            assert!(share.used() > BUDGET / 16, "{}", share.used());
        }
        let mut more = Arc::clone(&shares[0]).hold();
        let refused = more.try_grow(LONG).unwrap_err();
        assert!(matches!(refused, NoRoom::OfUser { .. }), "{refused}");
        assert!(refused.to_string().contains("test.budget"));
        drop(all);
        assert_eq!(budget.used(), 0);
    }

    #[test]
    fn users_who_hold_all_they_can_leave_room_for_one_more() {
        let budget = budget();
        let mut shares: Vec<_> = (0..4).map(|_| budget.share()).collect();
        let all: Vec<_> = shares.iter().map(|share| fill(share, LONG)).collect();
        let late = budget.share();
        let of_late = fill(&late, LONG);
        assert!(of_late.len() >= 4, "{}", of_late.len());
        // With room for everybody, each takes the same.
        drop((all, of_late));
        shares.push(late);
        let mut all = Vec::new();
        for _ in 0..BUDGET / LONG {
            for share in &shares {
                let mut held = Arc::clone(share).hold();
                all.extend(held.try_grow(LONG).ok().map(|()| held));
            }
        }
        let used = shares.iter().map(|share| share.used());
        let (least, most) = (used.clone().min().unwrap(), used.max().unwrap());
        assert!(
            least > BUDGET / 10 && most - least <= LONG,
            "{least} {most}"
        );
    }

    #[test]
    fn long_messages_leave_a_reserve_for_short_ones() {
        let budget = budget();
        let shares: Vec<_> = (0..64).map(|_| budget.share()).collect();
        let long: Vec<_> = shares.iter().map(|share| fill(share, LONG)).collect();
        let late = budget.share();
        let mut held = Arc::clone(&late).hold();
        let refused = held.try_grow(LONG).unwrap_err();
        assert!(matches!(refused, NoRoom::OfAll { .. }), "{refused}");
        held.try_grow(SHORT_BYTES_MAX).unwrap();
        assert!(held.try_grow(1).is_err(), "it is short no longer");
        let mut own = Arc::clone(&shares[0]).hold();
        own.try_grow(1024).unwrap();
        drop((long, held, own));
        assert_eq!(budget.used(), 0);
    }

    #[test]
    fn the_longest_message_fits_whatever_the_budget_is() {
        for bytes_max in [LONG, 2 * LONG, 9 * LONG] {
            let budget = MemoryBudget::new(bytes_max, LONG, SharePart::Quarter, "test", patience);
            budget.share().hold().try_grow(LONG).unwrap();
        }
    }

    #[tokio::test(start_paused = true)]
    async fn room_is_waited_for_as_long_as_the_patience_lasts() {
        let budget = budget();
        let share = budget.share();
        let mut all = fill(&share, LONG);
        let waiting = tokio::spawn({
            let mut held = Arc::clone(&share).hold();
            async move { held.grow(LONG).await.map(|()| held) }
        });
        tokio::time::sleep(PATIENCE / 2).await;
        assert!(matches!(share.awaited(), Some(NoRoom::OfUser { .. })));
        drop(all.pop());
        let held = waiting.await.unwrap().unwrap();
        assert_eq!(share.awaited(), None);
        let begun = tokio::time::Instant::now();
        let refused = Arc::clone(&share).hold().grow(LONG).await.unwrap_err();
        assert!(matches!(refused, NoRoom::OfUser { .. }), "{refused}");
        assert_eq!(begun.elapsed(), PATIENCE);
        assert_eq!(share.awaited(), None);
        drop((held, all));
        assert_eq!((share.used(), budget.used()), (0, 0));
    }

    #[tokio::test(start_paused = true)]
    async fn what_shrinks_makes_room() {
        let share = budget().share();
        let mut all = fill(&share, LONG);
        let waiting = tokio::spawn({
            let mut held = Arc::clone(&share).hold();
            async move { held.grow(LONG).await }
        });
        tokio::task::yield_now().await;
        all.first_mut().unwrap().shrink_to(0);
        waiting.await.unwrap().unwrap();
    }
}
