//! Names that are no settings: keys of the file, and variables `MOORING_*` and `CODE_EXECUTION_*`, that the table does
//! not know are refused, with the nearest known name. A misspelt setting that is silently ignored is a wrong setting.

use super::file::FileTables;
use super::problem::SettingsError;
use super::setting::{Disclosure, Row, Section, Setting};
use super::source::Environment;
use super::value::{Table, Value};

/// Names the settings file; read by the command line, not from the table.
pub const CONFIG_VARIABLE: &str = "MOORING_CONFIG";

/// The caller's access token, for the operators' commands; no setting.
pub const TOKEN_VARIABLE: &str = "MOORING_TOKEN";

/// Servers as `--server` has them, one a line.
pub(super) const SERVERS_VARIABLE: &str = "MOORING_SERVERS";

/// Servers as `[[servers]]` has them, in JSON.
pub(super) const SERVERS_JSON_VARIABLE: &str = "MOORING_SERVERS_JSON";

const PREFIX: &str = "MOORING_";

/// ContextForge's variables for code execution: each is the older name of a setting, so that its environment file
/// works.
const CODE_EXECUTION_PREFIX: &str = "CODE_EXECUTION_";

/// The one of them that is no setting here: it chooses between a slow and a fast implementation.
const RUST_ACCELERATION: &str = "CODE_EXECUTION_RUST_ACCELERATION_ENABLED";

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
    for (name, entry) in file.root().iter().filter(|(name, _)| *name != "servers") {
        let place = file.place(entry.line);
        let section = sections.iter().find(|section| section.name == name);
        match (section, &entry.value) {
            (Some(section), Value::Table(table)) => {
                let settings: Vec<&Setting> = section.settings().collect();
                UnknownFields { file, settings }.refuse(name, "", table, errors);
            }
            (Some(_), other) => errors.refuse(
                name,
                place,
                other.shown(Disclosure::Credentials),
                format!("it is {}, not a table", other.kind()),
                format!("a table under a [{name}] line"),
            ),
            (None, _) => refuse_key(name, place, name, &section_names, errors),
        }
    }
}

/// Finds names that no field of a table of the file has.
pub(super) struct UnknownFields<'a> {
    pub(super) file: &'a FileTables,
    /// The fields that the table may have.
    pub(super) settings: Vec<&'static Setting>,
}

impl UnknownFields<'_> {
    /// Looks at one table, and at the tables in it; `path` leads to it from the table `name` and ends with a dot,
    /// unless it is empty.
    pub(super) fn refuse(&self, name: &str, path: &str, table: &Table, errors: &mut SettingsError) {
        let known = self.names_below(path);
        for (field, entry) in table {
            let place = self.file.place(entry.line);
            let written_as = format!("{name}.{path}{field}");
            let mut fields = self
                .settings
                .iter()
                .flat_map(|setting| setting.about().names());
            let is_field = fields.any(|known| known.strip_prefix(path) == Some(field));
            match &entry.value {
                _ if is_field => {}
                Value::Table(inner) if known.contains(&field.as_str()) => {
                    self.refuse(name, &format!("{path}{field}."), inner, errors);
                }
                other if known.contains(&field.as_str()) => errors.refuse(
                    written_as,
                    place,
                    other.shown(Disclosure::Open),
                    format!("it is {}, not a table", other.kind()),
                    "a table",
                ),
                _ => refuse_key(&written_as, place, field, &known, errors),
            }
        }
    }

    /// What may stand in the table that `path` leads to, each once.
    fn names_below(&self, path: &str) -> Vec<&'static str> {
        let mut known = Vec::new();
        for name in self
            .settings
            .iter()
            .flat_map(|setting| setting.about().names())
        {
            let rest = name.strip_prefix(path);
            let first = rest.map(|rest| rest.split_once('.').map_or(rest, |(first, _)| first));
            known.extend(first.filter(|first| !known.contains(first)));
        }
        known
    }
}

/// Refuses a key that is in no table; `name` is its last part, `known` what stands beside it. The value is not shown: what
/// an unknown key holds may be a secret.
pub(super) fn refuse_key(
    key: &str,
    place: String,
    name: &str,
    known: &[&str],
    errors: &mut SettingsError,
) {
    let reason = match suggestion(name, known) {
        Some(near) => format!("there is no such key; did you mean {near:?}?"),
        None => "there is no such key".to_owned(),
    };
    errors.refuse(key, place, "", reason, known.join(", "));
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
    known.push(SERVERS_JSON_VARIABLE.to_owned());
    known.push(TOKEN_VARIABLE.to_owned());
    known.push(RUST_ACCELERATION.to_owned());
    known.extend(
        settings().filter_map(|setting| setting.about().contextforge_name.map(str::to_owned)),
    );
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
            let reason = match near {
                Some(near) => format!("there is no such setting; did you mean {near}?"),
                None => "there is no such setting".to_owned(),
            };
            let allowed = "the names that `mooring config reference` lists";
            errors.refuse(name, "environment", "", reason, allowed);
        }
    }
    remark
}

/// Kubernetes gives every pod variables such as `MOORING_SERVICE_HOST` and `MOORING_PORT_4444_TCP_ADDR`
/// for a service named `mooring`; they are not settings.
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
