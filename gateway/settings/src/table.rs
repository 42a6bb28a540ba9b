//! The one table of all settings, in the order in which people read it.

use super::access;
use super::affinity::AffinitySettings;
use super::auth::{self, TrustedHeaderSettings};
use super::code;
use super::hooks;
use super::listen::{self, ConnectionSettings, ListenSettings};
use super::log::LogSettings;
use super::peers::PeerSettings;
use super::servers;
use super::setting::Section;
use super::store::{self, StoreSettings};
use super::telemetry::TelemetrySettings;
use super::token::TokenSettings;
use super::ui::UiSettings;
use super::upstream::UpstreamSettings;
use super::vault::VaultSettings;
use super::worker::WorkerSettings;

/// Every section that the file, the environment and the flags can set.
pub(super) const SECTIONS: &[Section] = &[
    Section {
        name: "listen",
        meaning: "Where clients connect, and which of their requests are heard.",
        groups: &[(
            &[],
            &[
                ListenSettings::ROWS,
                listen::TLS_ROWS,
                ConnectionSettings::ROWS,
            ],
        )],
    },
    Section {
        name: "store",
        meaning: "Where session records live.",
        groups: &[(&[], &[store::LOCATION_ROWS, StoreSettings::ROWS])],
    },
    Section {
        name: "affinity",
        meaning: "Whether sessions keep their upstream instance, and for how long.",
        groups: &[(&[], &[AffinitySettings::ROWS])],
    },
    Section {
        name: "worker",
        meaning: "How this process is known to the fleet.",
        groups: &[(&[], &[WorkerSettings::ROWS, PeerSettings::ROWS])],
    },
    Section {
        name: "upstream",
        meaning: "How upstream servers are talked to, and when one of their instances counts as lost.",
        groups: &[(&[], &[UpstreamSettings::ROWS])],
    },
    Section {
        name: "code",
        meaning: "How servers of kind `code` run what agents write, and what they allow it.",
        groups: &[(&[], code::ROWS)],
    },
    Section {
        name: "auth",
        meaning: "Who a request is from, who may say so, and what rights callers have.",
        groups: &[(
            &[],
            &[
                auth::MODE_ROWS,
                access::ROWS,
                TrustedHeaderSettings::ROWS,
                TokenSettings::ROWS,
                auth::API_KEY_ROWS,
                auth::CERTIFICATE_ROWS,
            ],
        )],
    },
    Section {
        name: "vault",
        meaning: "The credentials that users store for servers with `servers.vault`.",
        groups: &[(&[], &[VaultSettings::ROWS])],
    },
    Section {
        name: "calls",
        meaning: "Who else is asked about tool calls.",
        groups: &[(&[], &[hooks::ROWS])],
    },
    Section {
        name: "default",
        meaning: "What `/mcp` means.",
        groups: &[(&[], &[servers::DEFAULT_ROWS])],
    },
    Section {
        name: "log",
        meaning: "What is written to standard error, and how.",
        groups: &[(&[], &[LogSettings::ROWS])],
    },
    Section {
        name: "ui",
        meaning: "The operators' page at `/ui`.",
        groups: &[(&[], &[UiSettings::ROWS])],
    },
    Section {
        name: "telemetry",
        meaning: "Where traces of requests are sent, and of how many.",
        groups: &[(&[], &[TelemetrySettings::ROWS])],
    },
];

/// The fields of one `[[servers]]` table; the file's alone, but for `--server`.
pub(super) const SERVER: Section = Section {
    name: "servers",
    meaning: "The MCP servers, one `[[servers]]` table each, at most 256. Where there is none and `code.enabled` is true, \
              there is one of kind `code`, named `sandbox`. A field is refused at a server whose kind does not have it.",
    groups: servers::FIELDS,
};

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::setting::{Row, Setting};

    #[test]
    fn every_name_is_used_once_and_every_setting_stands_in_its_section() {
        let mut names = BTreeSet::new();
        for section in SECTIONS.iter().chain([&SERVER]) {
            for setting in section.settings() {
                let about = setting.about();
                assert_eq!(about.section(), section.name, "{}", about.key);
                let others = [about.contextforge_name, about.flag].into_iter().flatten();
                let all = [about.key.to_owned(), about.environment_name()];
                for name in all.into_iter().chain(others.map(str::to_owned)) {
                    assert!(names.insert(name.clone()), "{name} is used twice");
                }
            }
        }
    }

    #[test]
    fn defaults_are_within_their_ranges() {
        for setting in SECTIONS.iter().flat_map(Section::settings) {
            if let Setting::Integer(integer) = setting {
                let is_in_range = integer.range.contains(&integer.default);
                assert!(is_in_range, "{}", integer.about.key);
            }
        }
    }

    #[test]
    fn meanings_are_sentences() {
        for setting in SECTIONS.iter().chain([&SERVER]).flat_map(Section::settings) {
            let about = setting.about();
            assert!(about.meaning.ends_with('.'), "{}", about.key);
            assert!(!about.meaning.contains("  "), "{}", about.key);
        }
    }
}
