//! The variables of ContextForge's environment file. Those that are settings here are in the table of settings under
//! their name; all others are in `variables.txt`, by topics that say what to do instead.
//!
//! Invariant: in an environment that was written for ContextForge no variable is ignored silently, and one that asks for
//! authentication is refused where there is none.

mod page;

use super::auth::{self, AuthSettings};
use super::reader::Reader;
use super::source::Environment;

pub use page::contextforge_page;

/// Blocks apart by empty lines. In the first line of a block what a person can do (`set`, or `none` for nothing) and its
/// title, in the second an explanation, in the others the names.
const VARIABLES: &str = include_str!("variables.txt");

/// The variable that asks for authentication.
const AUTH_REQUIRED: &str = "AUTH_REQUIRED";

/// Names that say that an environment was written for ContextForge: others of its names are usual elsewhere too.
const TELLING_NAMES: [&str; 5] = [
    AUTH_REQUIRED,
    "AUTH_ENCRYPTION_SECRET",
    "JWT_SECRET_KEY",
    "PLATFORM_ADMIN_EMAIL",
    "USE_STATEFUL_SESSIONS",
];
/// Beginnings of such names.
const TELLING_PREFIXES: [&str; 2] = ["MCPGATEWAY_", "CODE_EXECUTION_"];

/// Most names that one remark lists.
const NAMES_SHOWN_MAX: usize = 8;

/// Variables that mean one thing and are no settings here.
struct Topic {
    title: &'static str,
    /// Whether something here takes their place, which `explanation` names.
    has_counterpart: bool,
    explanation: &'static str,
    names: Vec<&'static str>,
}

fn topics() -> impl Iterator<Item = Topic> {
    VARIABLES.split("\n\n").filter_map(|block| {
        let (head, rest) = block.split_once('\n')?;
        let (counterpart, title) = head.split_once(": ")?;
        let (explanation, names) = rest.split_once('\n')?;
        Some(Topic {
            title,
            has_counterpart: counterpart == "set",
            explanation,
            names: names.split_whitespace().collect(),
        })
    })
}

/// What a person should know who starts this with an environment of ContextForge: for each topic with a counterpart its
/// variables and what to set instead, and the number of those that have none.
pub(super) fn remarks(environment: &Environment) -> Vec<String> {
    let is_set = |name: &&str| environment.get(name).is_some();
    let is_telling = |name: &str| {
        let has_prefix = TELLING_PREFIXES
            .iter()
            .any(|prefix| name.starts_with(prefix));
        (has_prefix || TELLING_NAMES.contains(&name)) && is_set(&name)
    };
    if !environment.names().any(is_telling) {
        return Vec::new();
    }
    let mut remarks = Vec::new();
    let mut without_counterpart = Vec::new();
    for topic in topics() {
        let names = topic.names.into_iter().filter(is_set);
        if topic.has_counterpart {
            let names: Vec<&str> = names.collect();
            if !names.is_empty() {
                let (names, explanation) = (some_of(&names), topic.explanation);
                remarks.push(format!("not read: {names}. {explanation}"));
            }
        } else {
            without_counterpart.extend(names);
        }
    }
    if !without_counterpart.is_empty() {
        remarks.push(format!(
            "without a counterpart here: {}; `mooring config contextforge` explains each",
            some_of(&without_counterpart)
        ));
    }
    remarks
}

/// The first of these names, and how many others there are.
fn some_of(names: &[&str]) -> String {
    let shown: Vec<&str> = names.iter().copied().take(NAMES_SHOWN_MAX).collect();
    match names.len() - shown.len() {
        0 => shown.join(", "),
        others => format!("{} and {others} more", shown.join(", ")),
    }
}

/// Refuses `AUTH_REQUIRED=true` together with `auth.mode = "none"`.
pub(super) fn refuse_missing_authentication(
    reader: &mut Reader<'_>,
    environment: &Environment,
    auth: &AuthSettings,
) {
    let asks = environment
        .get(AUTH_REQUIRED)
        .and_then(|value| value.as_switch())
        == Some(true);
    if asks && matches!(auth, AuthSettings::None) && !reader.was_refused(&auth::MODE) {
        reader.refuse(
            &auth::MODE,
            "\"none\"",
            format!("{AUTH_REQUIRED} is true in the environment, and auth.mode is \"none\""),
            "\"jwt\", \"api-key\", \"mtls\" or \"trusted-header\"; or AUTH_REQUIRED=false where only this machine connects",
        );
    }
}

#[cfg(test)]
mod tests {
    #![allow(
        clippy::unwrap_used,
        clippy::indexing_slicing,
        reason = "a test fails by panicking"
    )]

    use std::collections::BTreeSet;

    use super::super::setting::{Row, Section};
    use super::super::table::{SECTIONS, SERVER};
    use super::*;

    fn remarks_on(variables: &[(&str, &str)]) -> Vec<String> {
        remarks(&variables.iter().copied().collect())
    }

    #[test]
    fn every_variable_stands_in_one_place() {
        let mut seen = BTreeSet::new();
        let settings = SECTIONS.iter().flat_map(Section::settings);
        let read = settings.filter_map(|setting| setting.about().contextforge_name);
        for name in topics().flat_map(|topic| topic.names).chain(read) {
            assert!(seen.insert(name), "{name} is twice");
        }
        // As many as its file of 2026-08 names, and those for the execution of code.
        assert!(seen.len() > 950, "{}", seen.len());
    }

    #[test]
    fn what_an_explanation_names_is_a_setting() {
        let sections = || SECTIONS.iter().chain([&SERVER]).flat_map(Section::settings);
        let known: BTreeSet<String> = sections()
            .flat_map(|setting| {
                let about = setting.about();
                let key = about.key.to_owned();
                // A table of settings is named without its fields.
                let table = key.rsplit_once('.').map(|(table, _)| table.to_owned());
                [Some(key), table, Some(about.environment_name())]
            })
            .flatten()
            .collect();
        for topic in topics() {
            for quoted in topic.explanation.split('`').skip(1).step_by(2) {
                let word = quoted.split('=').next().unwrap();
                let is_key = word.starts_with("MOORING_") || word.starts_with("servers.");
                let is_known = known.contains(word) || word == super::super::TOKEN_VARIABLE;
                assert!(!is_key || is_known, "{}: {word}", topic.title);
            }
        }
    }

    #[test]
    fn what_is_not_read_is_named_with_what_to_set() {
        let remarks = remarks_on(&[
            ("MCPGATEWAY_SESSION_AFFINITY_ENABLED", "true"),
            ("HOST", "0.0.0.0"),
            ("PORT", "4444"),
            ("SMTP_HOST", "mail"),
            ("SMTP_USER", ""),
            ("PATH", "/bin"),
        ]);
        assert_eq!(remarks.len(), 2, "{remarks:?}");
        assert!(remarks[0].starts_with("not read: HOST, PORT. Set `MOORING_LISTEN_ADDRESS`"));
        assert!(remarks[1].starts_with("without a counterpart here: SMTP_HOST;"));
    }

    #[test]
    fn names_that_are_usual_elsewhere_say_nothing_by_themselves() {
        assert!(remarks_on(&[("HOST", "box"), ("AWS_ACCESS_KEY_ID", "x")]).is_empty());
    }
}
