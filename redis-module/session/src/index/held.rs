//! The sessions that a principal holds, for caps: the number of active ones, and the least recently used one.

use super::orders::ByUse;
use super::{Index, PrefixId};
use crate::context::PrincipalSessions;
use crate::limits::{HELD_EXAMINED_MAX, SETTLED_WITH_A_QUESTION_MAX};
use crate::names::Principal;
use crate::record::SessionState;
use crate::time::Timestamp;

impl Index {
    /// The principal's active sessions under a prefix, except the one under `except`. From now on its uses are tracked,
    /// see [`follows_uses`](Self::follows_uses).
    pub fn held(
        &mut self,
        principal: &Principal,
        prefix: PrefixId,
        except: &[u8],
        now: Timestamp,
    ) -> PrincipalSessions {
        self.settle(now, SETTLED_WITH_A_QUESTION_MAX);
        let Some(principal) = self.directory.principal(prefix, principal) else {
            return PrincipalSessions {
                active: 0,
                least_recently_used: None,
            };
        };
        self.directory.cap(principal);
        let except = self.find(except);
        let is_counted = except
            .and_then(|slot| self.entries.get(slot))
            .is_some_and(|entry| {
                entry.principal == principal && entry.state == SessionState::Active
            });
        let holding = self.directory.principals.counts(principal);
        let counted = holding.map_or(0, |holding| u64::from(holding.active));
        // If many sessions of others have just expired, the frontier has not reached those of this principal.
        let (mut expired, mut least_recently_used) = (0, None);
        let places = self.orders.used.range(ByUse::active(principal));
        let others = places.filter(|by_use| Some(by_use.slot) != except);
        for by_use in others.take(HELD_EXAMINED_MAX) {
            let Some(entry) = self.entries.get(by_use.slot) else {
                continue;
            };
            if entry.state_at(now) != SessionState::Active {
                expired += 1;
            } else if least_recently_used.is_none() {
                least_recently_used = Some(entry.key.clone());
            }
        }
        PrincipalSessions {
            active: counted
                .saturating_sub(u64::from(is_counted))
                .saturating_sub(expired),
            least_recently_used,
        }
    }
}
