//! The commands of one binding.

use mooring_session::names::{
    InstanceName, Principal, Reason, ServerName, Token, UpstreamSession, WorkerId,
};
use mooring_session::rules::{
    BindRequest, ConfirmRequest, LossReport, Ownership, RebindRequest, RouteRequest, UnbindRequest,
};

use super::{Draw, Request};

impl Draw<'_> {
    pub(super) fn epoch(&mut self) -> u64 {
        let present = self.binding().map_or(1, |binding| binding.epoch);
        match self.rng.u32(..6) {
            0 => present - 1,
            _ => present,
        }
    }

    fn token(&mut self) -> String {
        let present = self
            .binding()
            .map(|binding| binding.token.as_str().to_owned());
        match (present, self.rng.u32(..4)) {
            (Some(token), 1..) => token,
            _ => format!("token{}", self.rng.usize(..3)),
        }
    }

    fn upstream(&mut self, one_in: u32) -> Option<UpstreamSession> {
        (self.rng.u32(..one_in) == 0).then(|| {
            let session = format!("upstream{}", self.rng.usize(..3));
            self.say(&["UPSTREAM", &session]);
            parsed!(UpstreamSession, session)
        })
    }

    fn ownership(&mut self) -> Ownership {
        if self.rng.u32(..4) == 0 {
            self.say(&["OWNED"]);
            return Ownership::Owned;
        }
        Ownership::Shared
    }

    /// The command's name, its key, the principal and the server.
    fn say_to_server(&mut self, name: &str) {
        self.say_as_principal(name);
        let server = self.server.clone();
        self.say(&[&server]);
    }

    pub(super) fn route(&mut self) -> Request {
        self.say_to_server("SESSION.ROUTE");
        let worker = self.worker.clone();
        self.say(&[&worker]);
        // No worker waits for events, so it makes no difference.
        if self.rng.u32(..3) == 0 {
            self.say(&["DELEGATE", "1000"]);
        }
        Request::Route(RouteRequest {
            principal: parsed!(Principal, self.principal),
            server: parsed!(ServerName, self.server),
            worker: parsed!(WorkerId, worker),
        })
    }

    pub(super) fn bind(&mut self) -> Request {
        self.say_to_server("SESSION.BIND");
        let (worker, token) = (self.worker.clone(), self.token());
        self.say(&[&worker, &token]);
        let lease = self.say_number("LEASE", &[10, 100, 60_000]);
        // One candidate: where a session goes depends on the load of the whole node, which is not a rule's business.
        let instance = format!("instance{}", self.rng.usize(..3));
        self.say(&["INSTANCES", "1", &instance]);
        Request::Bind(BindRequest {
            principal: parsed!(Principal, self.principal),
            server: parsed!(ServerName, self.server),
            worker: parsed!(WorkerId, worker),
            token: parsed!(Token, token),
            lease,
            instances: vec![parsed!(InstanceName, instance)],
            upstream_session: self.upstream(3),
            ownership: self.ownership(),
        })
    }

    pub(super) fn confirm(&mut self) -> Request {
        self.say_to_server("SESSION.CONFIRM");
        let (epoch, token) = (self.epoch(), self.token());
        self.say(&[&epoch.to_string(), &token]);
        Request::Confirm(ConfirmRequest {
            principal: parsed!(Principal, self.principal),
            server: parsed!(ServerName, self.server),
            epoch,
            token: parsed!(Token, token),
            upstream_session: self.upstream(2),
        })
    }

    pub(super) fn rebind(&mut self) -> Request {
        self.say_to_server("SESSION.REBIND");
        let (epoch, worker, token) = (self.epoch(), self.worker.clone(), self.token());
        self.say(&[&epoch.to_string(), &worker, &token]);
        let lease = self.say_number("LEASE", &[10, 100, 60_000]);
        // The present instance and one more, so that there is never a choice of two.
        let present = self
            .binding()
            .map_or("instance0", |binding| binding.instance.as_str());
        let (present, other) = (present.to_owned(), "instance9".to_owned());
        self.say(&["INSTANCES", "2", &present, &other]);
        let avoid = (self.rng.bool() && present != other).then(|| {
            self.say(&["AVOID", &present]);
            parsed!(InstanceName, present)
        });
        let reason = self.rng.bool().then(|| {
            self.say(&["REASON", "upstream-lost"]);
            parsed!(Reason, "upstream-lost")
        });
        let upstream_session = self.upstream(3);
        let ownership = self.ownership();
        let report = if self.rng.bool() {
            self.say(&["UNREPORTED"]);
            LossReport::ByNextCall
        } else {
            LossReport::ByCaller
        };
        Request::Rebind(RebindRequest {
            principal: parsed!(Principal, self.principal),
            server: parsed!(ServerName, self.server),
            epoch,
            worker: parsed!(WorkerId, worker),
            token: parsed!(Token, token),
            lease,
            instances: vec![parsed!(InstanceName, present), parsed!(InstanceName, other)],
            avoid,
            reason,
            upstream_session,
            ownership,
            report,
        })
    }

    pub(super) fn unbind(&mut self) -> Request {
        self.say_to_server("SESSION.UNBIND");
        let epoch = self.epoch();
        self.say(&[&epoch.to_string()]);
        let token = self.rng.bool().then(|| {
            let token = self.token();
            self.say(&[&token]);
            parsed!(Token, token)
        });
        Request::Unbind(UnbindRequest {
            principal: parsed!(Principal, self.principal),
            server: parsed!(ServerName, self.server),
            epoch,
            token,
        })
    }
}
