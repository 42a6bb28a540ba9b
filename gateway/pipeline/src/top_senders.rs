//! Who sends most, at one gateway or added up over several. Users and sessions are named by their digests in logs.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Who sends most to this gateway. Users and sessions are named by their digests in logs.
#[derive(Clone, Debug, Deserialize, Serialize, JsonSchema)]
pub struct TopSenders {
    /// The time that the figures cover.
    pub seconds: u64,
    /// Users, those with most calls first; at most 100.
    pub users: Vec<TopUser>,
    /// Sessions, those with most calls first; at most 100.
    pub sessions: Vec<TopSession>,
}

/// A user that sends requests.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
pub struct TopUser {
    /// The user's digest.
    pub user: String,
    /// What the user has sent.
    pub figures: SenderFigures,
}

/// A session that sends requests.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
pub struct TopSession {
    /// The session's digest.
    pub session: String,
    /// Its user's digest.
    pub user: String,
    /// The server.
    pub server: String,
    /// What it has sent.
    pub figures: SenderFigures,
}

/// What a user or session has sent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
pub struct SenderFigures {
    /// Requests.
    pub calls: u64,
    /// Those among them that were answered with an error status.
    pub refused: u64,
    /// Bytes of requests and replies.
    pub bytes: u64,
    /// By how many `calls` may be too high.
    pub overcount: u64,
    /// Milliseconds since the last request.
    pub idle_ms: Option<u64>,
}

impl TopSenders {
    /// The figures of several gateways as those of one, with at most so many users and so many sessions.
    #[must_use]
    pub fn add_up(gateways: impl IntoIterator<Item = Self>, most: usize) -> Self {
        let mut seconds = 0;
        let mut users: BTreeMap<_, SenderFigures> = BTreeMap::new();
        let mut sessions: BTreeMap<_, SenderFigures> = BTreeMap::new();
        for gateway in gateways {
            seconds = gateway.seconds.max(seconds);
            for TopUser { user, figures } in gateway.users {
                users.entry(user).or_default().add(&figures);
            }
            for of in gateway.sessions {
                let name = (of.session, of.server, of.user);
                sessions.entry(name).or_default().add(&of.figures);
            }
        }
        let users = users.into_iter();
        let mut users: Vec<_> = users
            .map(|(user, figures)| TopUser { user, figures })
            .collect();
        users.sort_by_key(|of| Reverse(of.figures.calls));
        users.truncate(most);
        let sessions = sessions.into_iter();
        let mut sessions: Vec<_> = sessions
            .map(|((session, server, user), figures)| TopSession {
                session,
                user,
                server,
                figures,
            })
            .collect();
        sessions.sort_by_key(|of| Reverse(of.figures.calls));
        sessions.truncate(most);
        Self {
            seconds,
            users,
            sessions,
        }
    }
}

impl SenderFigures {
    fn add(&mut self, other: &Self) {
        self.calls = self.calls.saturating_add(other.calls);
        self.refused = self.refused.saturating_add(other.refused);
        self.bytes = self.bytes.saturating_add(other.bytes);
        self.overcount = self.overcount.saturating_add(other.overcount);
        // Since the last request, wherever that was.
        let idle = [self.idle_ms, other.idle_ms];
        self.idle_ms = idle.into_iter().flatten().min();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_users_figures_at_several_gateways_are_added_up() {
        let figures = |calls: u64, idle_ms: u64| SenderFigures {
            calls,
            refused: 1,
            bytes: 10,
            overcount: 0,
            idle_ms: Some(idle_ms),
        };
        let gateway = |seconds: u64, user: &str, calls: u64, idle_ms: u64| TopSenders {
            seconds,
            users: vec![TopUser {
                user: user.to_owned(),
                figures: figures(calls, idle_ms),
            }],
            sessions: Vec::new(),
        };
        let gateways = [
            gateway(60, "aa", 2, 5000),
            gateway(90, "bb", 4, 10),
            gateway(70, "aa", 3, 40),
        ];
        let all = TopSenders::add_up(gateways, 1);
        let expected = TopUser {
            user: "aa".to_owned(),
            figures: SenderFigures {
                refused: 2,
                bytes: 20,
                ..figures(5, 40)
            },
        };
        assert_eq!((all.seconds, all.users), (90, vec![expected]));
    }
}
