//! Operations as requests: what each kind asks for, from the small numbers of its names and flags.
#![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

use std::collections::BTreeMap;
use std::num::NonZeroU64;

use mooring_session::names::{
    ContentHash, InstanceName, LabelName, LabelValue, Reason, ServerName,
};
use mooring_session::record::SessionState;
use mooring_session::rules::{
    BindRequest, ClaimRequest, ConfirmRequest, CreateRequest, EndCondition, EndRequest, LossReport,
    Ownership, RebindRequest, ReportedLoss, Revival, RouteRequest, TouchRequest, UnbindRequest,
};
use mooring_session::time::Millis;

use super::operations::Operation;
use super::side::Side;
use crate::test_support::requests as make;
use crate::{EnterRequest, LeaveRequest, LeaveTarget, Line, Order, SessionQuery, TurnScope};

impl Side<'_> {
    pub(super) fn create(&self, op: &Operation) -> CreateRequest {
        CreateRequest {
            principal: self.principal(op),
            ttl: Millis::new(3_600_000),
            content_hash: hash(op),
            labels: labels(op),
            revival: match op.flags & 8 {
                0 => Revival::Allowed,
                _ => Revival::Refused,
            },
            // Two sessions of one principal at most have one between them that was not used for longest.
            cap: (op.flags & 64 == 0).then_some(NonZeroU64::MIN),
            ..make::create(&self.session(op.session))
        }
    }

    pub(super) fn touch(&self, op: &Operation) -> TouchRequest {
        TouchRequest {
            principal: self.principal(op),
            ttl: (op.flags & 4 == 0).then(|| Millis::new(7_200_000)),
            content_hash: hash(op),
            labels: labels(op),
            reported: (op.flags & 2 == 0).then(|| ReportedLoss {
                server: server(op),
                epoch: self.epoch(op),
            }),
        }
    }

    pub(super) fn end(&self, op: &Operation) -> EndRequest {
        EndRequest {
            principal: (op.flags & 1 == 0).then(|| self.principal(op)),
            // KILL has no IFIDLE.
            when: match op.flags & 3 {
                2 => EndCondition::Idle,
                _ => EndCondition::Always,
            },
        }
    }

    pub(super) fn route(&self, op: &Operation) -> RouteRequest {
        RouteRequest {
            principal: self.principal(op),
            server: server(op),
            worker: make::worker(&self.worker(op)),
        }
    }

    pub(super) fn bind(&self, op: &Operation) -> BindRequest {
        BindRequest {
            principal: self.principal(op),
            server: server(op),
            worker: make::worker(&self.worker(op)),
            lease: Millis::new(600_000),
            instances: instances(op),
            upstream_session: (op.flags & 1 == 0).then(|| make::upstream("u-bind")),
            ownership: ownership(op),
            ..make::bind(&token(op), "i0", "u")
        }
    }

    pub(super) fn confirm(&self, op: &Operation) -> ConfirmRequest {
        ConfirmRequest {
            principal: self.principal(op),
            server: server(op),
            upstream_session: (op.flags & 1 == 0).then(|| make::upstream("u-confirm")),
            ..make::confirm(self.epoch(op), &token(op), "u")
        }
    }

    pub(super) fn rebind(&self, op: &Operation) -> RebindRequest {
        RebindRequest {
            principal: self.principal(op),
            server: server(op),
            worker: make::worker(&self.worker(op)),
            lease: Millis::new(600_000),
            instances: instances(op),
            avoid: (op.flags & 2 == 0).then(|| make::instance("i0")),
            reason: (op.flags & 1 == 0).then(|| Reason::parse("it broke %s".as_bytes()).unwrap()),
            upstream_session: (op.flags & 4 == 0).then(|| make::upstream("u-rebind")),
            ownership: ownership(op),
            report: match op.flags & 8 {
                0 => LossReport::ByNextCall,
                _ => LossReport::ByCaller,
            },
            ..make::rebind(self.epoch(op), &token(op), "i0")
        }
    }

    pub(super) fn unbind(&self, op: &Operation) -> UnbindRequest {
        UnbindRequest {
            principal: self.principal(op),
            server: server(op),
            epoch: self.epoch(op),
            token: (op.flags & 1 == 0).then(|| make::token(&token(op))),
        }
    }

    pub(super) fn clean(&self, op: &Operation) -> ClaimRequest {
        ClaimRequest {
            worker: make::worker(&self.worker(op)),
            lease: Millis::new(20_000),
        }
    }

    pub(crate) fn enter(&self, op: &Operation) -> EnterRequest {
        EnterRequest {
            principal: self.principal(op),
            server: server(op),
            worker: make::worker(&self.worker(op)),
            ticket: make::token(&token(op)),
            lease: Millis::new(2_000),
            line: match op.flags & 3 {
                0 => Line::First,
                _ => Line::Last,
            },
            scope: TurnScope::Call,
            held: self.held(op),
        }
    }

    pub(crate) fn leave(&self, op: &Operation) -> LeaveRequest {
        LeaveRequest {
            principal: self.principal(op),
            server: server(op),
            who: LeaveTarget::Ticket(make::token(&token(op))),
        }
    }

    pub(super) fn withdraw(&self, op: &Operation) -> LeaveRequest {
        // Now and then by what all tickets begin with.
        let beginning = match op.flags & 7 {
            0 => token(op).chars().take(1).collect(),
            _ => token(op),
        };
        LeaveRequest {
            principal: self.principal(op),
            server: server(op),
            who: LeaveTarget::WaitingUnder(make::token(&beginning)),
        }
    }

    /// The principal is given always: a store may hold sessions of other runs.
    pub(super) fn query(&self, op: &Operation) -> SessionQuery {
        SessionQuery {
            principal: Some(self.principal(op)),
            server: (op.flags & 1 == 0).then(|| server(op)),
            instance: (op.flags & 6 == 0).then(|| make::instance("i0")),
            owner: (op.flags & 12 == 0).then(|| make::worker(&self.worker(op))),
            state: match op.flags >> 5 {
                0 => Some(SessionState::Active),
                1 => Some(SessionState::Expired),
                2 => Some(SessionState::Ended),
                _ => None,
            },
            id_pattern: (op.flags & 16 == 0).then(|| "r*-[0-1]".into()),
            text: (op.flags & 3 == 2).then(|| "I0".into()),
            order: match op.token {
                0 => Order::Oldest,
                _ => Order::Newest,
            },
            ..SessionQuery::default()
        }
    }
}

fn server(op: &Operation) -> ServerName {
    make::server(match op.server {
        0 => "tools",
        _ => "@get",
    })
}

fn token(op: &Operation) -> String {
    format!("t{}", op.token)
}

/// One, or all, of which placement picks one.
fn instances(op: &Operation) -> Vec<InstanceName> {
    match op.flags & 128 {
        0 => vec![make::instance(&format!("i{}", op.instance))],
        _ => vec![
            make::instance("i0"),
            make::instance("i1"),
            make::instance("i2"),
        ],
    }
}

fn ownership(op: &Operation) -> Ownership {
    match op.flags & 12 {
        0 => Ownership::Owned,
        _ => Ownership::Shared,
    }
}

fn hash(op: &Operation) -> Option<ContentHash> {
    (op.flags & 16 == 0).then(|| ContentHash::parse(token(op).as_bytes()).unwrap())
}

fn labels(op: &Operation) -> BTreeMap<LabelName, LabelValue> {
    (0..op.flags & 3)
        .map(|n| {
            let name = LabelName::parse(format!("l{n}").as_bytes()).unwrap();
            (name, LabelValue::parse("v \"w\" \\ ü".as_bytes()).unwrap())
        })
        .collect()
}
