//! The index page: what applies to all commands, and the list of commands and settings.

use std::fmt::Write as _;

use super::{BLESS, text};
use crate::command_spec::KeyAccess;
use crate::commands::TABLE;
use crate::settings::{QUIESCE, SETTINGS, prefixes};

/// What is in no table.
const PREAMBLE: &str = include_str!("preamble.md");

/// The page.
pub(super) fn render() -> String {
    let made = format!("<!-- Made by `{BLESS}`. -->");
    let mut page = PREAMBLE.replace("<!-- made -->", &made);
    commands(&mut page);
    settings(&mut page);
    page
}

fn commands(page: &mut String) {
    page.push_str("\n## Commands\n\n| command | what it does | |\n|---|---|---|\n");
    for command in TABLE {
        let name = text(command.name);
        let keyless = match command.key {
            KeyAccess::Keyless => "keyless",
            KeyAccess::Read | KeyAccess::Update | KeyAccess::Delete => "",
        };
        let _ = writeln!(
            page,
            "| [{}](commands/{name}.md) | {} | {keyless} |",
            name.to_uppercase(),
            text(command.summary),
        );
    }
}

fn settings(page: &mut String) {
    page.push_str(
        "\n## Settings\n\n\
         Set them as `mooring.<name>` in redis.conf, with CONFIG SET or MODULE LOADEX, or as `<name> <value>` after the file name \
         in\n`loadmodule`. CONFIG REWRITE saves them. An invalid value is refused with the reason.\n\n\
         | setting | default | allowed | meaning |\n|---|---|---|---|\n",
    );
    let _ = writeln!(
        page,
        "| `mooring.{}` | `{}` | {} | {} |",
        text(prefixes::SETTING.name),
        text(prefixes::DEFAULT),
        prefixes::RANGE,
        prefixes::MEANING,
    );
    let _ = writeln!(
        page,
        "| `mooring.{}` | no | yes, no | {} |",
        text(QUIESCE.name),
        QUIESCE.meaning,
    );
    for setting in SETTINGS {
        let _ = writeln!(
            page,
            "| `mooring.{}` | {} | {} to {} | {} |",
            text(setting.name),
            setting.default,
            setting.least,
            setting.most,
            setting.meaning
        );
    }
}
