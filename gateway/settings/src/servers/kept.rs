//! The fields about a session's place at servers that are somewhere else: whether it keeps one, whether its calls wait
//! for each other, and what happens when the place is lost.

use super::super::affinity::Affinity;
use super::super::reader::Reader;
use super::super::setting::{Choice, ChoiceOption, Setting, SettingInfo};

pub(super) const AFFINITY: Choice<ServerAffinity> = Choice {
    about: SettingInfo::new(
        "servers.affinity",
        "Whether this server's sessions keep their instance. Sessions of the kinds `stdio` and `sse` live in one \
         connection and are always kept: there `off` is refused.",
    ),
    default: ChoiceOption {
        name: "inherit",
        value: ServerAffinity::Inherit,
        meaning: "as `affinity.enabled` says; where that is unset, as the server itself decides",
    },
    others: &[
        ChoiceOption {
            name: "on",
            value: ServerAffinity::On,
            meaning: "yes",
        },
        ChoiceOption {
            name: "off",
            value: ServerAffinity::Off,
            meaning: "no: any call may go to any instance, over upstream sessions that the clients of one user share",
        },
    ],
    later: &[],
};

pub(super) const CONCURRENCY: Choice<Concurrency> = Choice {
    about: SettingInfo::new(
        "servers.concurrency",
        "Whether tool calls (`tools/call`) of one kept session may run at the same time, over the whole fleet. \
         Nothing else waits for a turn: answers, cancellations, progress and lists pass at once.",
    ),
    default: ChoiceOption {
        name: "serial",
        value: Concurrency::Serial,
        meaning: "one after another, in the order of arrival; a call that waits for its client lets the next one run. \
                  `affinity.turn_wait_max_ms` limits the wait",
    },
    others: &[ChoiceOption {
        name: "parallel",
        value: Concurrency::Parallel,
        meaning: "side by side",
    }],
    later: &[],
};

pub(super) const ON_UPSTREAM_LOSS: Choice<OnUpstreamLoss> = Choice {
    about: SettingInfo::new(
        "servers.on_upstream_loss",
        "What happens to a session whose instance, process or connection was lost.",
    ),
    default: ChoiceOption {
        name: "reinitialize",
        value: OnUpstreamLoss::Reinitialize,
        meaning: "a new upstream session on another instance, in a new process or over a new connection, and the \
                  client is told that state was lost",
    },
    others: &[ChoiceOption {
        name: "fail",
        value: OnUpstreamLoss::Fail,
        meaning: "404, so that the client initializes again",
    }],
    later: &[],
};

/// The fields of every server that is somewhere else.
pub(super) const SETTINGS: &[Setting] = &[
    Setting::Choice(&AFFINITY),
    Setting::Choice(&CONCURRENCY),
    Setting::Choice(&ON_UPSTREAM_LOSS),
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
    /// One after another, over the whole fleet.
    Serial,
    /// Side by side.
    Parallel,
}

/// What happens to a session whose instance, process or connection was lost.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OnUpstreamLoss {
    /// A new upstream session elsewhere, visibly.
    Reinitialize,
    /// 404 to the client.
    Fail,
}

/// Whether the sessions of a server that can do both are kept.
pub(super) fn parse_affinity(reader: &mut Reader<'_>, standard: Affinity) -> Affinity {
    match reader.choice(&AFFINITY) {
        ServerAffinity::Inherit => standard,
        ServerAffinity::On => Affinity::Kept,
        ServerAffinity::Off => Affinity::Off,
    }
}

/// Refuses `off` at a server of this kind, whose sessions cannot move from call to call.
pub(super) fn refuse_affinity_off(reader: &mut Reader<'_>, kind: &str) {
    if reader.choice(&AFFINITY) == ServerAffinity::Off {
        reader.refuse(
            &AFFINITY.about,
            "\"off\"".to_owned(),
            format!("a session of kind \"{kind}\" lives in one connection, so it is always kept"),
            "\"inherit\" or \"on\", which mean the same here".to_owned(),
        );
    }
}
