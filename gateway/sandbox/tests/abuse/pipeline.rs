//! The tools of the one-line shell as a way out: they read any file, run programs and write where they are told to.

use std::process::Command;

use mooring_sandbox::{Argument, Program, Stage, StopHandle};

use crate::arena::{Arena, limits};
use crate::who::everybody;

/// One call of a tool, and what it shows where it works. `OTHER`, `BASE` and `SECRET` stand for what is planted.
struct Call {
    number: u16,
    tool: &'static str,
    arguments: &'static [&'static str],
    shows: &'static str,
}

const CALLS: &[Call] = &[
    call(1, "cat", &["/etc/passwd"], "root:"),
    call(
        1,
        "head",
        &["-n", "1", "../../../../../../../../../../etc/passwd"],
        "root:",
    ),
    call(1, "ls", &["/etc"], "passwd"),
    call(2, "cat", &["OTHER"], "SECRET"),
    call(2, "cat", &["link"], "SECRET"),
    call(2, "grep", &["-r", "secret-", "BASE"], "SECRET"),
    call(2, "rg", &["-uuu", "secret-", "BASE"], "SECRET"),
    call(2, "jq", &["-R", ".", "OTHER"], "SECRET"),
    call(
        2,
        "jq",
        &["-n", "--rawfile", "stolen", "OTHER", "$stolen"],
        "SECRET",
    ),
    call(2, "wc", &["--files0-from=OTHER"], "secret-"),
    call(4, "cat", &["/proc/1/cmdline"], "\0"),
    call(5, "jq", &["-n", "$ENV.GATEWAY_VALUE"], "SECRET"),
    call(
        11,
        "find",
        &[".", "-maxdepth", "0", "-exec", "/usr/bin/id", ";"],
        "uid=",
    ),
    call(
        11,
        "rg",
        &["--pre", "/usr/bin/id", "uid", "link"],
        "no such user",
    ),
];

const fn call(
    number: u16,
    tool: &'static str,
    arguments: &'static [&'static str],
    shows: &'static str,
) -> Call {
    Call {
        number,
        tool,
        arguments,
        shows,
    }
}

#[test]
fn tools_reach_nothing_of_others() {
    everybody("pipeline::tools_reach_nothing_of_others", |arena| {
        for Call {
            number,
            tool,
            arguments,
            shows,
        } in CALLS
        {
            let shows = filled(arena, shows);
            let arguments: Vec<String> = arguments.iter().map(|one| filled(arena, one)).collect();
            let control = Command::new(format!("/usr/bin/{tool}"))
                .args(&arguments)
                .env("GATEWAY_VALUE", arena.planted.secret())
                .current_dir(arena.planted.outside().join("scratch"))
                .output()
                .unwrap();
            let control = [control.stdout, control.stderr].concat();
            let control = String::from_utf8_lossy(&control);
            assert!(
                control.contains(&shows),
                "the control of {number} ({tool}) has to work: {control}"
            );
            let said = run(arena, tool, arguments);
            assert!(!said.contains(&shows), "{number} {tool}: {said}");
        }
        arena.is_fine();
    });
}

/// 8: what was planted is as it was: every run is compared with what stood before.
#[test]
fn tools_change_nothing_of_others() {
    everybody("pipeline::tools_change_nothing_of_others", |arena| {
        let (read, into) = if arena.is_strict() {
            ("/tools/stub.py", "/tools")
        } else {
            ("../tools/stub.py", "../tools")
        };
        let other = arena.planted.other_session().display().to_string();
        for (tool, arguments) in [
            ("sort", vec!["-o", read, read]),
            ("sort", vec!["-o", &other, read]),
            ("uniq", vec![read, &other]),
            ("find", vec![into, "-type", "f", "-delete"]),
            ("find", vec![read, "-fprint", &other]),
        ] {
            run(
                arena,
                tool,
                arguments.into_iter().map(str::to_owned).collect(),
            );
        }
        arena.is_fine();
    });
}

/// Runs one tool inside. What it said.
fn run(arena: &Arena<'_>, tool: &str, arguments: Vec<String>) -> String {
    let arguments = arguments.into_iter().map(Argument::Literal).collect();
    let stages = vec![Stage {
        tool: tool.to_owned(),
        arguments,
    }];
    let program = Program::Pipeline { stages };
    let run = arena.run(program, limits(), &StopHandle::new().unwrap());
    run.stdout + &run.stderr
}

fn filled(arena: &Arena<'_>, text: &str) -> String {
    text.replace(
        "OTHER",
        &arena.planted.other_session().display().to_string(),
    )
    .replace(
        "BASE",
        &arena.planted.root().join("base").display().to_string(),
    )
    .replace("SECRET", arena.planted.secret())
}
