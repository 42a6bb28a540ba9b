//! `docs/settings.md`: every setting with its names, type, default, range and meaning.

use std::fmt::Write as _;

use super::super::servers::kinds_with;
use super::super::setting::{Row, Section, Setting, SettingInfo};
use super::super::table::{SECTIONS, SERVER};

const HEAD: &str = "\
<!-- Made by `mooring config reference`; do not edit. -->

# Settings

Every setting of `mooring serve`. All are read once, before a port is bound. Unknown keys, values out of range and
impossible combinations are refused with exit code 64; all problems are reported together.

A value is taken from the first of: the command-line flag, the `MOORING_*` environment variable, the ContextForge name
(so that an environment file of ContextForge works), the TOML file (`--config FILE` or `MOORING_CONFIG`; where neither
is given, `$XDG_CONFIG_HOME/mooring/mooring.toml` or `~/.config/mooring/mooring.toml`, if it exists), the default.
In the environment, lists are separated by commas, `true` may also be written `on`, `yes` or `1` (and `false` `off`,
`no` or `0`), and an empty variable counts as unset. A number has the unit that its setting's name ends with; write it
without the unit. A list in the environment may also be a JSON array, which patterns with a comma need.
`CODE_EXECUTION_RUST_ACCELERATION_ENABLED` is accepted and has no effect.

```toml
[affinity]
enabled = true

[[servers]]
id = \"tools\"
instances = [\"http://127.0.0.1:9001/mcp\", \"http://127.0.0.1:9002/mcp\"]

[[servers]]
id = \"sandbox\"
kind = \"code\"
sandbox_policy = { max_memory_mb = 512 }

[[servers]]
id = \"files\"
kind = \"stdio\"
command = [\"npx\", \"-y\", \"@modelcontextprotocol/server-filesystem\", \"/data\"]
env = { API_KEY = \"env:FILES_API_KEY\" }

[[servers]]
id = \"all\"
kind = \"group\"
members = [\"tools\", \"sandbox\", \"files\"]

[[servers]]
id = \"claude\"
kind = \"agent\"
profile = \"claude\"
```

`mooring config check --config FILE` checks a file and starts nothing; `mooring config schema` prints a JSON schema
for editors.
";

/// The text of `docs/settings.md`.
pub fn reference_page() -> String {
    let mut text = HEAD.to_owned();
    for section in SECTIONS {
        push_section(&mut text, &format!("[{}]", section.name), section);
    }
    push_section(&mut text, "[[servers]]", &SERVER);
    text.push_str(
        "\nThe flag `--server ID=URL[,URL]` adds a server of kind `http`, or gives the server of that id in the \
         file other instances. `--server 'ID=PROGRAM ARGUMENT...'` adds one of kind `stdio`, or gives it another \
         command: it begins with a name in PATH or an absolute path; spaces separate the words, and quotes keep \
         them together. `MOORING_SERVERS` has the same, one server a line; a flag wins over it.\n\
         \nServers with all their fields need no edited file either: `default.servers_dir` names a directory of files, \
         and `MOORING_SERVERS_JSON` has a JSON list of servers with the same fields, such as \
         `[{\"id\": \"tools\", \"instances\": [\"http://127.0.0.1:9001/mcp\"]}]`. An id may be in one place only.\n",
    );
    text
}

fn push_section(text: &mut String, title: &str, section: &Section) {
    let _ = write!(text, "\n## `{title}`\n\n{}\n", section.meaning);
    for setting in section.settings() {
        push_setting(text, title, setting);
    }
}

fn push_setting(text: &mut String, title: &str, setting: &Setting) {
    let about = setting.about();
    let _ = write!(text, "\n### `{}`\n\n{}\n\n", about.key, about.meaning);
    if let Setting::Choice(choice) = setting {
        for (word, meaning) in (choice.words)() {
            let _ = writeln!(text, "- `{word}`: {meaning}");
        }
    } else {
        let _ = writeln!(text, "- Allowed: {}", setting.allowed());
    }
    if let Setting::Tables(tables) = setting {
        for row in tables.rows() {
            let (about, allowed) = (row.about(), row.allowed());
            let missing = match row.default_text() {
                Some(default) => format!("Default: `{default}`{}", unit(row)),
                None => format!("Unset: {}", about.unset.unwrap_or("none")),
            };
            let (name, meaning) = (about.name(), about.meaning);
            let _ = writeln!(
                text,
                "  - `{name}`: {meaning} Allowed: {allowed}. {missing}."
            );
        }
    }
    match (setting.default_text(), about.unset) {
        (Some(default), _) => {
            let _ = writeln!(text, "- Default: `{default}`{}", unit(setting));
        }
        (None, Some(unset)) => {
            let _ = writeln!(text, "- Unset: {unset}");
        }
        (None, None) => {}
    }
    if title.starts_with("[[") {
        push_kinds(text, about);
    }
    if !about.aliases.is_empty() {
        let names: Vec<String> = about
            .aliases
            .iter()
            .map(|name| format!("`{name}`"))
            .collect();
        let _ = writeln!(text, "- Also written: {}", names.join(", "));
    }
    if !title.starts_with("[[") {
        let mut names = format!("`{}`", about.environment_name());
        if let Some(name) = about.contextforge_name {
            let _ = write!(names, ", ContextForge name `{name}`");
        }
        if let Some(flag) = about.flag {
            let _ = write!(names, ", flag `{flag}`");
        }
        let _ = writeln!(text, "- Environment: {names}");
    }
}

/// The kinds of servers that have this field, where not every one has it.
fn push_kinds(text: &mut String, about: &SettingInfo) {
    let kinds: Vec<String> = kinds_with(about)
        .iter()
        .map(|kind| format!("`{kind}`"))
        .collect();
    if !kinds.is_empty() {
        let _ = writeln!(text, "- Kinds: {}", kinds.join(", "));
    }
}

fn unit(setting: &Setting) -> String {
    match setting {
        Setting::Integer(integer) => format!(" {}", integer.unit),
        _ => String::new(),
    }
}
