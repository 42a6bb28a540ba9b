//! The one table of all settings, in the order in which people read it.

use super::knob::Knob;
use super::{
    affinity, auth, code, connections, listen, log, peers, servers, store, upstream, worker,
};

/// A table of the file.
#[derive(Debug, Clone, Copy)]
pub struct Section {
    /// Its name in the file.
    pub name: &'static str,
    /// What it is about.
    pub meaning: &'static str,
    /// Its rows, by what they are about.
    pub groups: &'static [&'static [Knob]],
}

impl Section {
    /// Its rows.
    pub fn knobs(&self) -> impl Iterator<Item = &'static Knob> {
        self.groups.iter().copied().flatten()
    }
}

/// Every section that the file, the environment and the flags can set.
pub const SECTIONS: &[Section] = &[
    Section {
        name: "listen",
        meaning: "Where clients connect, and which of their requests are heard.",
        groups: &[listen::KNOBS, connections::KNOBS],
    },
    Section {
        name: "store",
        meaning: "Where session records live.",
        groups: &[store::KNOBS],
    },
    Section {
        name: "affinity",
        meaning: "Whether sessions keep their upstream instance, and for how long.",
        groups: &[affinity::KNOBS],
    },
    Section {
        name: "worker",
        meaning: "How this process is known to the fleet.",
        groups: &[worker::KNOBS, peers::KNOBS],
    },
    Section {
        name: "upstream",
        meaning: "How upstream servers are talked to, and when one of their instances counts as lost.",
        groups: &[upstream::KNOBS],
    },
    Section {
        name: "code",
        meaning: "How servers of kind `code` run what agents write, and what they allow it.",
        groups: code::KNOBS,
    },
    Section {
        name: "auth",
        meaning: "Who a request is from, and who may say so.",
        groups: &[auth::KNOBS],
    },
    Section {
        name: "default",
        meaning: "What `/mcp` means.",
        groups: &[servers::DEFAULT_KNOBS],
    },
    Section {
        name: "log",
        meaning: "What is written to standard error, and how.",
        groups: &[log::KNOBS],
    },
];

/// The fields of one `[[servers]]` table; the file's alone, but for `--server`.
pub const SERVER: Section = Section {
    name: "servers",
    meaning: "The MCP servers, one `[[servers]]` table each, at most 256. Where there is none and `code.enabled` is true, \
              there is one of kind `code`, named `sandbox`. A field is refused at a server whose kind does not have it.",
    groups: servers::KNOBS,
};

/// Every knob of [`SECTIONS`].
pub(super) fn knobs() -> impl Iterator<Item = &'static Knob> {
    SECTIONS.iter().flat_map(Section::knobs)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn every_name_is_used_once_and_every_knob_stands_in_its_section() {
        let mut names = BTreeSet::new();
        for section in SECTIONS.iter().chain([&SERVER]) {
            for knob in section.knobs() {
                let about = knob.about();
                assert_eq!(about.section(), section.name, "{}", about.key);
                let others = [about.seed, about.flag].into_iter().flatten();
                let all = [about.key.to_owned(), about.environment_name()];
                for name in all.into_iter().chain(others.map(str::to_owned)) {
                    assert!(names.insert(name.clone()), "{name} is used twice");
                }
            }
        }
    }

    #[test]
    fn defaults_are_within_their_ranges() {
        for knob in knobs() {
            if let Knob::Integer(integer) = knob {
                let range = integer.least..=integer.most;
                assert!(range.contains(&integer.default), "{}", integer.about.key);
            }
        }
    }

    #[test]
    fn meanings_are_sentences() {
        for knob in SECTIONS.iter().chain([&SERVER]).flat_map(Section::knobs) {
            let about = knob.about();
            assert!(about.meaning.ends_with('.'), "{}", about.key);
            assert!(!about.meaning.contains("  "), "{}", about.key);
        }
    }
}
