//! One random command, as words for the server and as a request for the rules. Epochs, tokens and generations are mostly
//! those that the record under the key has.

use std::collections::BTreeMap;

use fastrand::Rng;
use mooring_session::limits::END_CLEANING_LEASE;
use mooring_session::names::{
    Address, ContentHash, LabelName, LabelValue, Principal, ServerName, SessionId, WorkerId,
};
use mooring_session::record::Binding;
use mooring_session::rules::{
    BindRequest, ClaimRequest, ConfirmRequest, CreateRequest, EndCondition, EndRequest,
    ForgetRequest, RebindRequest, ReportedLoss, Revival, RouteRequest, TouchRequest, UnbindRequest,
};
use mooring_session::time::Millis;
use mooring_session::workers::{Beat, Drain};

use super::model::Model;

/// What is asked of the rules.
pub(super) enum Request {
    Create(CreateRequest),
    Touch(TouchRequest),
    Get,
    End(EndRequest),
    Route(RouteRequest),
    Bind(BindRequest),
    Confirm(ConfirmRequest),
    Rebind(RebindRequest),
    Unbind(UnbindRequest),
    Claim(ClaimRequest),
    Forget(ForgetRequest),
    Beat(Beat),
    Gone(WorkerId),
    Delete,
}

/// A command for both.
pub(super) struct Drawn {
    pub(super) key: String,
    pub(super) words: Vec<String>,
    pub(super) request: Request,
}

/// What a command is to be about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Topic {
    Anything,
    /// Of tombstones only.
    Cleaning,
}

macro_rules! parsed {
    ($type:ident, $text:expr) => {
        $type::parse($text.as_bytes()).expect("a valid name")
    };
}

mod bindings;

/// The dice, and what the command is about.
struct Draw<'a> {
    rng: &'a mut Rng,
    model: &'a Model,
    key: String,
    number: usize,
    principal: String,
    server: String,
    worker: String,
    words: Vec<String>,
}

impl Drawn {
    /// Any command about any of few sessions.
    pub(super) fn draw(rng: &mut Rng, model: &Model, topic: Topic) -> Self {
        let number = rng.usize(..6);
        let principal = match rng.u32(..20) {
            0 => "mallory".to_owned(),
            _ => format!("user{}", number % 2),
        };
        let mut draw = Draw {
            key: format!("mcpgw:session_affinity:{number}"),
            principal,
            server: format!("server{}", rng.usize(..3)),
            worker: format!("w{}:1", rng.usize(..4)),
            words: Vec::new(),
            number,
            rng,
            model,
        };
        let request = match topic {
            Topic::Anything => draw.request(),
            Topic::Cleaning if draw.rng.bool() => draw.claim(),
            Topic::Cleaning => draw.forget(),
        };
        Self {
            key: draw.key,
            words: draw.words,
            request,
        }
    }

    /// Whether it is of a worker and no session.
    pub(super) fn is_of_worker(&self) -> bool {
        matches!(self.request, Request::Beat(_) | Request::Gone(_))
    }

    /// The command's name.
    pub(super) fn name(&self) -> String {
        self.words[0].clone()
    }
}

impl Draw<'_> {
    fn request(&mut self) -> Request {
        match self.rng.u32(..60) {
            0..10 => self.create(),
            10..15 => self.touch(),
            15..18 => self.get(),
            18..21 => self.end(),
            21..30 => self.route(),
            30..37 => self.bind(),
            37..43 => self.confirm(),
            43..49 => self.rebind(),
            49..52 => self.unbind(),
            52..55 => self.claim(),
            55..57 => self.forget(),
            57 => self.beat(),
            58 => self.gone(),
            _ => self.delete(),
        }
    }

    fn say(&mut self, words: &[&str]) {
        self.words.extend(words.iter().map(|&word| word.to_owned()));
    }

    /// The command's name, its key, and the principal.
    fn say_as_principal(&mut self, name: &str) {
        let (key, principal) = (self.key.clone(), self.principal.clone());
        self.say(&[name, &key, &principal]);
    }

    fn say_number(&mut self, option: &str, choices: &[u64]) -> Millis {
        let number = choices[self.rng.usize(..choices.len())];
        self.say(&[option, &number.to_string()]);
        Millis::new(number)
    }

    fn binding(&self) -> Option<&Binding> {
        let server = parsed!(ServerName, self.server);
        self.model.record(&self.key)?.bindings.get(&server)
    }

    fn hash(&mut self) -> Option<ContentHash> {
        (self.rng.u32(..3) == 0).then(|| {
            let hash = format!("hash{}", self.rng.usize(..2));
            self.say(&["HASH", &hash]);
            parsed!(ContentHash, hash)
        })
    }

    fn labels(&mut self) -> BTreeMap<LabelName, LabelValue> {
        let mut labels = BTreeMap::new();
        for n in 0..self.rng.usize(..3) {
            let (name, value) = (format!("label{n}"), format!("{}", self.rng.u32(..3)));
            self.say(&["LABEL", &name, &value]);
            labels.insert(parsed!(LabelName, name), parsed!(LabelValue, value));
        }
        labels
    }

    fn create(&mut self) -> Request {
        let (key, principal) = (self.key.clone(), self.principal.clone());
        let id = match self.rng.u32(..30) {
            0 => "other".to_owned(),
            _ => format!("s{}", self.number),
        };
        self.say(&["SESSION.CREATE", &key, &id, &principal]);
        let ttl = self.say_number("TTL", &[1_000, 1_500, 60_000]);
        let (content_hash, labels) = (self.hash(), self.labels());
        let revival = match self.rng.u32(..4) {
            0 => {
                self.say(&["NOREVIVE"]);
                Revival::Refused
            }
            _ => Revival::Allowed,
        };
        Request::Create(CreateRequest {
            id: parsed!(SessionId, id),
            principal: parsed!(Principal, principal),
            ttl,
            content_hash,
            labels,
            revival,
            cap: None,
        })
    }

    fn touch(&mut self) -> Request {
        self.say_as_principal("SESSION.TOUCH");
        let ttl = (self.rng.u32(..3) == 0).then(|| self.say_number("TTL", &[1_000, 60_000]));
        let (content_hash, labels) = (self.hash(), self.labels());
        let reported = self.rng.bool().then(|| {
            let epoch = self.epoch();
            let server = self.server.clone();
            self.say(&["REPORTED", &server, &epoch.to_string()]);
            ReportedLoss {
                server: parsed!(ServerName, server),
                epoch,
            }
        });
        Request::Touch(TouchRequest {
            principal: parsed!(Principal, self.principal),
            ttl,
            content_hash,
            labels,
            reported,
        })
    }

    fn get(&mut self) -> Request {
        let key = self.key.clone();
        self.say(&["SESSION.GET", &key]);
        Request::Get
    }

    fn end(&mut self) -> Request {
        if self.rng.u32(..3) == 0 {
            let key = self.key.clone();
            self.say(&["SESSION.KILL", &key]);
            return Request::End(EndRequest {
                principal: None,
                when: EndCondition::Always,
            });
        }
        self.say_as_principal("SESSION.END");
        let when = match self.rng.bool() {
            true => {
                self.say(&["IFIDLE"]);
                EndCondition::Idle
            }
            false => EndCondition::Always,
        };
        Request::End(EndRequest {
            principal: Some(parsed!(Principal, self.principal)),
            when,
        })
    }

    fn claim(&mut self) -> Request {
        let (key, worker) = (self.key.clone(), self.worker.clone());
        self.say(&["SESSION.CLAIM", &key, &worker]);
        let lease = self.say_number("LEASE", &[10, END_CLEANING_LEASE.get()]);
        Request::Claim(ClaimRequest {
            worker: parsed!(WorkerId, worker),
            lease,
        })
    }

    fn forget(&mut self) -> Request {
        let record = self.model.record(&self.key);
        let generation = record.map_or(1, |record| record.generation);
        let cleaner = record.and_then(|record| record.cleaning.as_ref()?.worker.clone());
        let generation = generation - u64::from(self.rng.u32(..5) == 0);
        let worker = match (cleaner, self.rng.u32(..4)) {
            (Some(worker), 1..) => worker.as_str().to_owned(),
            _ => self.worker.clone(),
        };
        let key = self.key.clone();
        self.say(&["SESSION.FORGET", &key, &generation.to_string(), &worker]);
        Request::Forget(ForgetRequest {
            generation,
            worker: parsed!(WorkerId, worker),
        })
    }

    fn beat(&mut self) -> Request {
        let worker = self.worker.clone();
        self.say(&["WORKER.BEAT", &worker, "127.0.0.1:1"]);
        let ttl = self.say_number("TTL", &[600_000]);
        let drain = match self.rng.u32(..4) {
            0 => {
                self.say(&["DRAINING"]);
                Drain::Draining
            }
            _ => Drain::Serving,
        };
        Request::Beat(Beat {
            worker: parsed!(WorkerId, worker),
            address: parsed!(Address, "127.0.0.1:1"),
            ttl,
            drain,
        })
    }

    fn gone(&mut self) -> Request {
        let worker = self.worker.clone();
        self.say(&["WORKER.GONE", &worker]);
        Request::Gone(parsed!(WorkerId, worker))
    }

    fn delete(&mut self) -> Request {
        let key = self.key.clone();
        self.say(&["DEL", &key]);
        Request::Delete
    }
}
