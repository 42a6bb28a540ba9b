//! docs/commands.md: the reference page, made from the tables that the module runs by.

use std::fmt::Write as _;
use std::path::PathBuf;

use crate::commands::TABLE;
use crate::registrar::KeyAccess;
use crate::settings::SETTINGS;

/// What no table says.
const PREAMBLE: &str = "\
# The module's commands

<!-- Made from the tables in redis-module/src by `MOORING_BLESS=1 cargo test -p mooring-module reference`. -->

`redis-server --loadmodule libmooring.so [setting value ...]`, for Redis 7.0 and later.

Every SESSION command names one key, its first argument, unless it says *keyless*. Keyless commands act on this node's
memory and are sent to every primary of a cluster. Durations are integer milliseconds; times in replies are Unix
milliseconds of the server's clock. Options follow the positional arguments, in any order and either case; an unknown
or repeated one is `ERR syntax error near '<word>'`. Replies are maps (flat in RESP2), flags are 0 or 1, and what is
absent is null. A refused command has changed nothing.

A record is a plain hash that HGETALL shows. What the module writes reaches replicas and the append-only file as HSET,
HDEL and PEXPIREAT with absolute values, so neither needs the module. `TTL key` shows when the tombstone goes, not when
the session expires: that is `expires_at`.

## What replies are made of

* **The binding**: `server`, `state` (`claimed`, `bound` or `orphaned`), `instance`, `upstream_session`, `owner`,
  `owner_alive`, `owner_address`, `driver`, `epoch`, `bound_at`, `lease_until`, `rebinds`, `last_reason`.
* **The record**: `id`, `gen`, `principal`, `state` (`active`, `expired` or `ended`), `created_at`, `last_used_at`,
  `expires_at`, `ttl_ms`, `content_hash`, `labels` (a map), `bindings` (an array of maps).

## Error codes

The first word of an error is its code; INFO errorstats and the figures `failures_<code>` count by it.

| code | meaning |
|---|---|
| `NOSESSION` | there is no such session: it never was, expired, or was reaped |
| `ENDED` | it was ended on purpose; its tombstone still stands |
| `DENIED` | it belongs to another principal; nothing else about it is revealed |
| `STALE` | the epoch, token or boot given is not the current one |
| `OWNED` | the binding's owner is alive and is not the caller |
| `BUSY` | something live holds it |
| `LIMIT` | a cap was reached: which one, and its value |
| `ERR` | bad arguments, or `corrupt session record: <field>` |
| `WRONGTYPE` | the key holds something else than a hash |
| `OOM` | memory is short and the command might make a record grow (the server's own check, see `denyoom` in COMMAND INFO); TOUCH, ROUTE, GET, CONFIRM and END still work |

## Keyspace events

Of class module (`d` in notify-keyspace-events): `session.created`, `session.bound`, `session.rebound`,
`session.ended`.
";

fn render() -> Result<String, std::fmt::Error> {
    let mut page = PREAMBLE.to_owned();
    writeln!(page, "\n## Commands")?;
    for command in &TABLE {
        let text = |value: &std::ffi::CStr| value.to_string_lossy().into_owned();
        let name = text(command.name).to_uppercase();
        let keyless = match command.key {
            KeyAccess::Keyless => " *Keyless.*",
            KeyAccess::Read | KeyAccess::Update => "",
        };
        writeln!(page, "\n### {name}\n\n`{}`\n", command.usage())?;
        writeln!(page, "{}{keyless}\n", text(command.summary))?;
        writeln!(page, "* Reply: {}.", command.reply)?;
        writeln!(
            page,
            "* Flags: {}. Complexity: {}. Since {}.",
            text(command.flags),
            text(command.complexity),
            text(command.since)
        )?;
    }
    writeln!(page, "\n## Settings\n")?;
    writeln!(
        page,
        "In redis.conf, by CONFIG SET or MODULE LOADEX as `mooring.<name>`, or as arguments of `loadmodule`.\n"
    )?;
    writeln!(
        page,
        "| setting | default | range | meaning |\n|---|---|---|---|"
    )?;
    for setting in SETTINGS {
        writeln!(
            page,
            "| `mooring.{}` | {} | {} to {} | {} |",
            setting.name.to_string_lossy(),
            setting.default,
            setting.least,
            setting.most,
            setting.meaning
        )?;
    }
    Ok(page)
}

#[test]
fn the_reference_page_says_what_the_tables_say() {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../docs/commands.md");
    let page = render().unwrap_or_default();
    if std::env::var_os("MOORING_BLESS").is_some() {
        assert!(
            std::fs::write(&path, &page).is_ok(),
            "writing {}",
            path.display()
        );
    }
    let written = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(
        page == written,
        "docs/commands.md is behind: MOORING_BLESS=1 cargo test -p mooring-module reference"
    );
}

#[test]
fn every_command_is_registered_in_lower_case_and_once() {
    let mut names: Vec<_> = TABLE.iter().map(|command| command.name).collect();
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), TABLE.len());
    for name in names {
        assert!(
            !name.to_bytes().iter().any(u8::is_ascii_uppercase),
            "{name:?}"
        );
    }
}
