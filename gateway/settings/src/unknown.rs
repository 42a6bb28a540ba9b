//! Names that are no settings: keys of the file, and variables `MOORING_*` and `CODE_EXECUTION_*`, that the table does
//! not know are refused, with the nearest known name. A misspelt setting that is silently ignored is a wrong setting.

use super::file::FileTables;
use super::problem::{Problem, SettingsError};
use super::setting::{Disclosure, Row, Section};
use super::source::Environment;
use super::value::{Table, Value};

/// Names the settings file; read by the command line, not from the table.
pub const CONFIG_VARIABLE: &str = "MOORING_CONFIG";

/// Servers as `--server` has them, one a line.
pub(super) const SERVERS_VARIABLE: &str = "MOORING_SERVERS";

const PREFIX: &str = "MOORING_";

/// ContextForge's variables for code execution: each is the older name of a setting, so that its environment file
/// works.
const CODE_EXECUTION_PREFIX: &str = "CODE_EXECUTION_";

/// The one of them that is no setting here: it chooses between a slow and a fast implementation.
const RUST_ACCELERATION: &str = "CODE_EXECUTION_RUST_ACCELERATION_ENABLED";

/// Fields of a server that only a later version serves; refused by that reason, not as misspelt.
const SERVER_LATER: [&str; 1] = ["sandbox_policy.runtime_requirements"];

/// Names that the settings of other MCP clients and gateways use, and what they are called here.
const FOREIGN_NAMES: [(&str, &str); 15] = [
    ("url", "instances"),
    ("urls", "instances"),
    ("uri", "instances"),
    ("endpoint", "instances"),
    ("serverUrl", "instances"),
    ("httpUrl", "instances"),
    ("transport", "kind"),
    ("name", "id"),
    ("arguments", "args"),
    ("environment", "env"),
    ("directory", "cwd"),
    ("workingDirectory", "cwd"),
    ("http_headers", "headers"),
    ("mcpServers", "servers"),
    ("mcp_servers", "servers"),
];

/// Least likeness (0 to 1, Jaro-Winkler) of a name that is worth suggesting.
const LIKENESS_LEAST: f64 = 0.8;

/// Refuses every unknown name of the file outside `[[servers]]`.
pub(super) fn refuse_unknown_keys(
    file: &FileTables,
    sections: &[Section],
    errors: &mut SettingsError,
) {
    let mut section_names: Vec<&str> = sections.iter().map(|section| section.name).collect();
    section_names.push("servers");
    for (name, entry) in file.root() {
        let place = file.place(entry.line);
        if name == "servers" {
            continue;
        }
        let Some(section) = sections.iter().find(|section| section.name == name) else {
            errors.push(key_problem(name.clone(), place, name, &section_names));
            continue;
        };
        match &entry.value {
            Value::Table(table) => {
                let known: Vec<&str> = section
                    .settings()
                    .map(|setting| setting.about().name())
                    .collect();
                refuse_unknown_fields(file, name, table, &known, errors);
            }
            other => errors.push(Problem {
                key: name.clone(),
                written_as: name.clone(),
                place,
                value: other.shown(Disclosure::Credentials),
                reason: format!("it is {}, not a table", other.kind()),
                allowed: format!("a table under a [{name}] line"),
            }),
        }
    }
}

fn refuse_unknown_fields(
    file: &FileTables,
    section: &str,
    table: &Table,
    known: &[&str],
    errors: &mut SettingsError,
) {
    for (name, entry) in table {
        if !known.contains(&name.as_str()) {
            let place = file.place(entry.line);
            errors.push(key_problem(format!("{section}.{name}"), place, name, known));
        }
    }
}

/// The problem of a key that is in no table; `name` is its last part, `known` what stands beside it. The value
/// is not shown: what an unknown key holds may be a secret.
pub(super) fn key_problem(key: String, place: String, name: &str, known: &[&str]) -> Problem {
    let is_later_field = key
        .strip_prefix("servers[")
        .and_then(|rest| rest.split_once("]."))
        .is_some_and(|(_, field)| SERVER_LATER.contains(&field));
    let reason = if is_later_field {
        "it is not served by this version of mooring".to_owned()
    } else {
        match suggestion(name, known) {
            Some(near) => format!("there is no such key; did you mean {near:?}?"),
            None => "there is no such key".to_owned(),
        }
    };
    Problem {
        written_as: key.clone(),
        key,
        place,
        value: String::new(),
        reason,
        allowed: known.join(", "),
    }
}

/// Refuses every variable that looks like a setting and is none; returns a remark on those that are accepted and have
/// no effect.
pub(super) fn refuse_unknown_variables(
    environment: &Environment,
    sections: &[Section],
    errors: &mut SettingsError,
) -> Option<String> {
    let settings = || sections.iter().flat_map(Section::settings);
    let mut known: Vec<String> = settings()
        .map(|setting| setting.about().environment_name())
        .collect();
    known.push(CONFIG_VARIABLE.to_owned());
    known.push(SERVERS_VARIABLE.to_owned());
    known.push(RUST_ACCELERATION.to_owned());
    known.extend(settings().filter_map(|setting| setting.about().seed.map(str::to_owned)));
    let mut remark = None;
    for name in environment.names() {
        let is_ours = name.starts_with(PREFIX) && !is_service_link(name);
        let is_seed = name.starts_with(CODE_EXECUTION_PREFIX);
        if name == RUST_ACCELERATION {
            remark = Some(format!(
                "{name} has no effect: there is nothing but native code"
            ));
        }
        if (is_ours || is_seed) && !known.iter().any(|known| known == name) {
            let near = nearest(name, known.iter().map(String::as_str));
            errors.push(Problem {
                key: name.to_owned(),
                written_as: name.to_owned(),
                place: "environment".to_owned(),
                value: String::new(),
                reason: match near {
                    Some(near) => format!("there is no such setting; did you mean {near}?"),
                    None => "there is no such setting".to_owned(),
                },
                allowed: "the names that `mooring config reference` lists".to_owned(),
            });
        }
    }
    remark
}

/// Kubernetes gives every pod variables such as `MOORING_SERVICE_HOST` and `MOORING_PORT_4444_TCP_ADDR`
/// for a service named `mooring`; they are nobody's settings.
fn is_service_link(name: &str) -> bool {
    let words: Vec<&str> = name.split('_').collect();
    let is_protocol = |word: &&str| ["TCP", "UDP", "SCTP"].contains(word);
    match words.as_slice() {
        [.., "SERVICE", "HOST" | "PORT"] | ["MOORING", "PORT"] => true,
        [.., "PORT", number, protocol]
        | [.., "PORT", number, protocol, "PROTO" | "PORT" | "ADDR"] => {
            number.parse::<u16>().is_ok() && is_protocol(protocol)
        }
        [_, rest @ ..] => rest
            .windows(2)
            .any(|pair| matches!(pair, ["SERVICE", "PORT"])),
        [] => false,
    }
}

/// What is meant by an unknown key: a known name that is like it, or what another program's name for it is called here.
fn suggestion<'a>(name: &str, known: &[&'a str]) -> Option<&'a str> {
    let here = FOREIGN_NAMES
        .iter()
        .filter(|(_, here)| known.contains(here));
    let foreign = here.map(|(foreign, _)| *foreign);
    let near = nearest(name, known.iter().copied().chain(foreign))?;
    let translated = FOREIGN_NAMES
        .iter()
        .find(|(foreign, _)| *foreign == near)
        .map(|(_, here)| *here);
    let meant = match known.contains(&near) {
        true => near,
        false => translated?,
    };
    known.iter().copied().find(|known| *known == meant)
}

/// The known name most like `name`, if one is like it at all.
fn nearest<'a>(name: &str, known: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    let likeness = |other: &str| match strsim::osa_distance(name, other) {
        // One letter too many, too few or swapped, which the other measure misses in short names.
        0 | 1 if name.len() > 2 => 1.0,
        _ => strsim::jaro_winkler(name, other),
    };
    known
        .map(|other| (likeness(other), other))
        .filter(|(likeness, _)| *likeness >= LIKENESS_LEAST)
        .max_by(|one, other| one.0.total_cmp(&other.0))
        .map(|(_, other)| other)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn service_links_are_told_from_settings() {
        #[track_caller]
        fn check(name: &str, expected: bool) {
            assert_eq!(is_service_link(name), expected, "{name}");
        }
        check("MOORING_SERVICE_HOST", true);
        check("MOORING_SERVICE_PORT", true);
        check("MOORING_SERVICE_PORT_HTTP", true);
        check("MOORING_REDIS_SERVICE_HOST", true);
        check("MOORING_PORT", true);
        check("MOORING_PORT_4444_TCP", true);
        check("MOORING_PORT_4444_TCP_ADDR", true);
        check("MOORING_LISTEN_PORT", false);
        check("MOORING_LISTEN_ADDRESS", false);
        check("MOORING_STORE_URL", false);
    }
}
