//! `docs/contextforge.md`: each variable of ContextForge's environment file, and its counterpart.

use std::fmt::Write as _;

use super::super::setting::{Row, Section};
use super::super::table::SECTIONS;
use super::topics;

const HEAD: &str = "\
<!-- Made by `mooring config contextforge`; do not edit. -->

# From ContextForge

An environment file of ContextForge can be given to `mooring serve` as it is. Variables that are settings here are read
by ContextForge's names; a `MOORING_*` variable of the same setting wins. All others are named in the log at the start,
with what to set instead, and by `mooring config check`, which starts nothing:

```sh
set -a; . ./.env; set +a
mooring config check
```

A shell takes the quotes out of `NAME=[\"a\",\"b\"]`: write `NAME='[\"a\",\"b\"]'`, or let Docker (`--env-file`) or systemd
(`EnvironmentFile`) read the file.

`AUTH_REQUIRED=true` is refused as long as `auth.mode` is `none`: no caller would be authenticated. With
`CODE_EXECUTION_ENABLED=false` servers of kind `code` are left out, and all others are served.

[migrating-from-contextforge.md](migrating-from-contextforge.md) has servers, users and everything else.

The names are those of `.env.example` of ContextForge's main branch of August 2026, and the `CODE_EXECUTION_*` variables
of its branch for the execution of code.
";

/// The text of `docs/contextforge.md`.
pub fn contextforge_page() -> String {
    let mut text = HEAD.to_owned();
    text.push_str("\n## Read here\n\n| Variable | Setting |\n|---|---|\n");
    for setting in SECTIONS.iter().flat_map(Section::settings) {
        let about = setting.about();
        if let Some(name) = about.contextforge_name {
            let _ = writeln!(text, "| `{name}` | `{}` |", about.key);
        }
    }
    for (has_counterpart, heading) in [
        (true, "Set something else"),
        (false, "Without a counterpart"),
    ] {
        let _ = write!(text, "\n## {heading}\n\n| Topic | Variables |\n|---|---|\n");
        for topic in topics().filter(|topic| topic.has_counterpart == has_counterpart) {
            let _ = writeln!(
                text,
                "| {}. {} | `{}` |",
                topic.title,
                topic.explanation,
                topic.names.join("` `")
            );
        }
    }
    text
}
