//! The fields of a server of kind `http`: where it runs, and how its sessions are kept.

use super::super::affinity::Affinity;
use super::super::knob::{About, Choice, Disclosure, Knob, List, Named};
use super::super::reader::Reader;
use super::super::source::Environment;
use super::headers::{self, UpstreamHeaders};
use super::instance::{self, Instance};

pub(super) const INSTANCES: List = List {
    about: About::new(
        "servers.instances",
        "Where the server runs: one URL for each of its equal instances. Required for the kind `http`. The URLs are stored with \
         sessions and written to the log, so they hold no secrets; write them alike at every gateway.",
    ),
    shape: "http or https URLs of at most 128 bytes, without credentials and without a fragment, such as \
            http://127.0.0.1:9001/mcp",
    items_max: 1024,
    item_bytes_max: 512,
    disclosure: Disclosure::Credentials,
};

pub(super) const AFFINITY: Choice<ServerAffinity> = Choice {
    about: About::new(
        "servers.affinity",
        "Whether this server's sessions keep their instance.",
    ),
    default: Named {
        name: "inherit",
        value: ServerAffinity::Inherit,
        meaning: "as `affinity.enabled` says",
    },
    others: &[
        Named {
            name: "on",
            value: ServerAffinity::On,
            meaning: "yes",
        },
        Named {
            name: "off",
            value: ServerAffinity::Off,
            meaning: "no: any call may go to any instance",
        },
    ],
    later: &[],
};

pub(super) const CONCURRENCY: Choice<Concurrency> = Choice {
    about: About::new(
        "servers.concurrency",
        "Whether tool calls of one session may run at the same time. Checked and without effect in this \
         version, which lets them run.",
    ),
    default: Named {
        name: "serial",
        value: Concurrency::Serial,
        meaning: "one after another, in the order of arrival",
    },
    others: &[Named {
        name: "parallel",
        value: Concurrency::Parallel,
        meaning: "side by side",
    }],
    later: &[],
};

pub(super) const ON_UPSTREAM_LOSS: Choice<OnUpstreamLoss> = Choice {
    about: About::new(
        "servers.on_upstream_loss",
        "What happens to a session whose instance was lost.",
    ),
    default: Named {
        name: "reinitialize",
        value: OnUpstreamLoss::Reinitialize,
        meaning: "a new upstream session on another instance, and the client is told that state was lost",
    },
    others: &[Named {
        name: "fail",
        value: OnUpstreamLoss::Fail,
        meaning: "404, so that the client initializes again",
    }],
    later: &[],
};

/// The fields that a server of kind `http` has for itself.
pub(super) const KNOBS: &[Knob] = &[
    Knob::List(&INSTANCES),
    Knob::Choice(&AFFINITY),
    Knob::Choice(&CONCURRENCY),
    Knob::Choice(&ON_UPSTREAM_LOSS),
    Knob::Map(&headers::HEADERS),
];

/// The words of `servers.affinity`, before the global switch is applied.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ServerAffinity {
    Inherit,
    On,
    Off,
}

/// Whether tool calls of one session may run at the same time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Concurrency {
    /// One after another.
    Serial,
    /// Side by side.
    Parallel,
}

/// What happens to a session whose instance was lost.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OnUpstreamLoss {
    /// A new upstream session elsewhere, visibly.
    Reinitialize,
    /// 404 to the client.
    Fail,
}

/// One server of kind `http`.
#[derive(Debug, Clone)]
pub struct HttpServerSettings {
    /// Where it runs: 1 to 1024 distinct instances, in the order written.
    pub instances: Vec<Instance>,
    /// Whether its sessions keep their instance; the global switch is already applied.
    pub affinity: Affinity,
    /// Whether tool calls of one session may run at the same time.
    pub concurrency: Concurrency,
    /// What happens to a session whose instance was lost.
    pub on_upstream_loss: OnUpstreamLoss,
    /// Headers that every request to it carries.
    pub headers: UpstreamHeaders,
}

/// A server whose kind is refused is not also blamed for having no instances.
pub(super) fn parse(
    reader: &mut Reader<'_>,
    environment: &Environment,
    standard: Affinity,
    kind_is_refused: bool,
) -> HttpServerSettings {
    HttpServerSettings {
        instances: instance::parse_all(reader, kind_is_refused),
        affinity: match reader.choice(&AFFINITY) {
            ServerAffinity::Inherit => standard,
            ServerAffinity::On => Affinity::Kept,
            ServerAffinity::Off => Affinity::Off,
        },
        concurrency: reader.choice(&CONCURRENCY),
        on_upstream_loss: reader.choice(&ON_UPSTREAM_LOSS),
        headers: headers::parse(reader, environment),
    }
}
