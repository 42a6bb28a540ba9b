//! A table of attacks: run outside, where each has to work, and inside, where each has to be refused.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use mooring_sandbox::{Limits, RunEnd};

use crate::aftermath::MARKER;
use crate::arena::{Arena, limits};
use crate::outside::Control;

/// Where an attack has to be refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RefusedEntry {
    InBothTiers,
    /// The degraded tier does not promise it.
    InStrict,
}

/// One attack.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Attack {
    /// Its number in the list.
    pub(crate) number: u16,
    pub(crate) name: &'static str,
    /// The body of a function that does it and may return what it got, or raises.
    pub(crate) body: &'static str,
    pub(crate) refused: RefusedEntry,
}

/// Refused in both tiers.
pub(crate) const fn attack(number: u16, name: &'static str, body: &'static str) -> Attack {
    Attack {
        number,
        name,
        body,
        refused: RefusedEntry::InBothTiers,
    }
}

/// Refused in the strict tier.
pub(crate) const fn strict_attack(number: u16, name: &'static str, body: &'static str) -> Attack {
    Attack {
        number,
        name,
        body,
        refused: RefusedEntry::InStrict,
    }
}

/// Names that a table's bodies use beside the usual ones, and their values: text that both languages read.
pub(crate) type Names<'a> = &'a [(&'a str, String)];

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Side {
    Outside,
    Inside,
}

/// Runs a table of Python, outside and inside.
pub(crate) fn check_python(
    arena: &Arena<'_>,
    control: Control,
    names: Names<'_>,
    attacks: &[Attack],
) {
    check_python_within(arena, control, names, attacks, limits());
}

/// Likewise, inside with these limits.
pub(crate) fn check_python_within(
    arena: &Arena<'_>,
    control: Control,
    names: Names<'_>,
    attacks: &[Attack],
    within: Limits,
) {
    let source = |side| {
        let mut source = format!("MARKER = \"{MARKER}\"\n");
        for (name, value) in places(arena, side).iter().chain(names) {
            writeln!(source, "{name} = {value}").unwrap();
        }
        source.push_str(include_str!("prelude.py"));
        for attack in attacks {
            let body = attack.body.trim_matches('\n').replace('\n', "\n    ");
            writeln!(source, "def attack():\n    {body}").unwrap();
            writeln!(
                source,
                "attempt({}, {:?}, attack)",
                attack.number, attack.name
            )
            .unwrap();
        }
        source
    };
    worked(
        attacks,
        &arena.python_outside(&source(Side::Outside), control),
    );
    let run = arena.python_within(&source(Side::Inside), within);
    assert_eq!(run.ended, RunEnd::Exited(0), "{run:?}");
    refused(arena, attacks, &run.stdout);
    arena.is_fine();
}

/// Runs a table of TypeScript, outside and inside.
pub(crate) fn check_typescript(arena: &Arena<'_>, names: Names<'_>, attacks: &[Attack]) {
    let source = |side| {
        let mut source = String::new();
        for (name, value) in places(arena, side).iter().chain(names) {
            writeln!(source, "const {name} = {value};").unwrap();
        }
        source.push_str(include_str!("prelude.ts"));
        for Attack {
            number, name, body, ..
        } in attacks
        {
            writeln!(
                source,
                "await attempt({number}, {name:?}, async () => {{{body}}});"
            )
            .unwrap();
        }
        source.push_str("Deno.exit(0);\n");
        source
    };
    worked(attacks, &arena.typescript_outside(&source(Side::Outside)));
    // Each worker reserves as much data as deno itself.
    let within = Limits {
        memory_bytes: 1 << 30,
        ..limits()
    };
    let run = arena.typescript_within(&source(Side::Inside), within);
    assert_eq!(run.ended, RunEnd::Exited(0), "{run:?}");
    refused(arena, attacks, &run.stdout);
    arena.is_fine();
}

/// The places that attacks name. Outside, those that an attack would spoil are throw-away ones.
fn places(arena: &Arena<'_>, side: Side) -> Vec<(&'static str, String)> {
    let planted = arena.planted;
    let outside = planted.outside();
    let quoted = |path: &std::path::Path| format!("{path:?}");
    let [tools, skills, scratch, system, root] = match side {
        Side::Outside => [
            quoted(&outside.join("tools")),
            quoted(&outside.join("skills")),
            quoted(&outside.join("scratch")),
            quoted(&outside.join("system")),
            quoted(&outside),
        ],
        Side::Inside if arena.is_strict() => {
            ["/tools", "/skills", "/scratch", "/usr", "/"].map(|path| format!("{path:?}"))
        }
        // Without a root of its own a program begins in its copy of /scratch, beside the others.
        Side::Inside => ["../tools", "../skills", ".", "/usr", "/"].map(|path| format!("{path:?}")),
    };
    let gateway = std::process::id().to_string();
    let process = if side == Side::Inside {
        "1".to_owned()
    } else {
        gateway.clone()
    };
    vec![
        ("TOOLS", tools),
        ("SKILLS", skills),
        ("SCRATCH", scratch),
        ("SYSTEM", system),
        ("ROOT", root),
        ("GATEWAY", gateway),
        // The first process that it sees.
        ("PROCESS", process),
        ("OTHER", quoted(&planted.other_session())),
        ("HOST_ONLY", quoted(&planted.host_only())),
        ("SETTINGS", quoted(&planted.settings())),
    ]
}

fn worked(attacks: &[Attack], said: &str) {
    let verdicts = verdicts(said);
    for attack in attacks {
        let verdict = verdicts.get(&(attack.number, attack.name));
        assert_eq!(
            verdict.map(String::as_str),
            Some("done"),
            "the control of {} ({}) has to work outside:\n{said}",
            attack.number,
            attack.name
        );
    }
}

fn refused(arena: &Arena<'_>, attacks: &[Attack], said: &str) {
    let verdicts = verdicts(said);
    let failed: Vec<_> = attacks
        .iter()
        .filter(|attack| arena.is_strict() || attack.refused == RefusedEntry::InBothTiers)
        .filter(|attack| {
            verdicts
                .get(&(attack.number, attack.name))
                .map(String::as_str)
                != Some("refused")
        })
        .map(|attack| format!("{} {}", attack.number, attack.name))
        .collect();
    assert!(
        failed.is_empty(),
        "{:?}: not refused: {failed:#?}\n{said}",
        arena.sandbox.tier()
    );
}

/// What was said of each attack: lines of `number|name|verdict|what was shown`.
fn verdicts(said: &str) -> BTreeMap<(u16, &str), String> {
    said.lines()
        .filter_map(|line| {
            let mut fields = line.splitn(4, '|');
            let number = fields.next()?.parse().ok()?;
            Some(((number, fields.next()?), fields.next()?.to_owned()))
        })
        .collect()
}
