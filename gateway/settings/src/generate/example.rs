//! `.env.example`: every variable, commented out, with its meaning and its default.

use std::fmt::Write as _;

use super::super::setting::{Row, Section, Setting};
use super::super::table::SECTIONS;
use super::wrapped;

const WIDTH: usize = 98;

/// The text of `.env.example`.
pub fn environment_example() -> String {
    let mut text = String::from(
        "# Settings of mooring as environment variables. Made by `mooring config example`; do not edit.\n\
         # A flag wins over a MOORING_* variable, that over the ContextForge name, that over the settings file, that\n\
         # over the default. An empty variable counts as unset; an unknown one is refused.\n\
         # Servers stand in the settings file ([[servers]]), in files of default.servers_dir, in the flag --server, in\n\
         # MOORING_SERVERS, one a line, or in MOORING_SERVERS_JSON; see docs/settings.md.\n\
         \n\
         # The settings file; the same as the flag --config. Unset: $XDG_CONFIG_HOME/mooring/mooring.toml or\n\
         # ~/.config/mooring/mooring.toml, if it is there.\n\
         #MOORING_CONFIG=/etc/mooring/mooring.toml\n\
         \n\
         # Servers, one a line, each as the flag --server has it.\n\
         #MOORING_SERVERS=tools=http://127.0.0.1:9001/mcp\n\
         \n\
         # Servers as a JSON list, each with the fields of [[servers]].\n\
         #MOORING_SERVERS_JSON=[{\"id\":\"tools\",\"instances\":[\"http://127.0.0.1:9001/mcp\"]}]\n",
    );
    for section in SECTIONS {
        push_section(&mut text, section);
    }
    text
}

fn push_section(text: &mut String, section: &Section) {
    let _ = write!(text, "\n# {}: {}\n", section.name, section.meaning);
    for setting in section.settings() {
        text.push('\n');
        for line in wrapped(&description(setting), WIDTH) {
            let _ = writeln!(text, "# {line}");
        }
        let about = setting.about();
        let default = setting.default_text().unwrap_or_default();
        let _ = writeln!(text, "#{}={default}", about.environment_name());
        if let Some(name) = about.contextforge_name {
            let _ = writeln!(text, "# ContextForge name: {name}");
        }
    }
}

fn description(setting: &Setting) -> String {
    let about = setting.about();
    let separator = match setting {
        Setting::List(_) => ", separated by commas or as a JSON array",
        Setting::Tables(_) => ", as a JSON array of objects",
        _ => "",
    };
    let mut text = format!(
        "{} Allowed: {}{separator}.",
        about.meaning,
        setting.allowed()
    );
    if let Some(unset) = about.unset {
        let _ = write!(text, " Unset: {unset}.");
    }
    text
}
