//! The three kinds of programs, and where they find their files.

use std::fs;
use std::os::fd::AsFd;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use mooring_sandbox::{
    Argument, Layer, Options, Outcome, Program, RunEnd, Sandbox, Stage, StopHandle, Tier,
};

use crate::support::{
    Ground, Turn, limits, options, python, read_upper, run_python, sandbox, text,
};

fn output(outcome: &Outcome) -> String {
    assert_eq!(
        outcome.ended,
        RunEnd::Exited(0),
        "{}",
        text(&outcome.stderr.bytes)
    );
    text(&outcome.stdout.bytes)
}

#[test]
fn the_outcome_names_the_tier_and_its_layers() {
    let _turn = Turn::take();
    let outcome = run_python("print(6 * 7)", limits());
    assert_eq!(output(&outcome), "42\n");
    assert_eq!(outcome.tier, Tier::Degraded);
    assert_eq!(outcome.layers, sandbox().layers());
    for absent in [Layer::Namespaces, Layer::Root, Layer::Overlay] {
        assert!(!outcome.layers.contains(&absent), "{absent:?} is not built");
    }
    assert!(
        outcome.usage.memory_peak_bytes > 1 << 20,
        "{:?}",
        outcome.usage
    );
}

#[test]
fn python_finds_its_trees_by_variables_and_beside_it() {
    let _turn = Turn::take();
    let ground = Ground::new();
    fs::write(ground.path("tools").join("t"), "tool").unwrap();
    fs::write(ground.path("skills").join("s"), "skill").unwrap();
    fs::write(ground.path("scratch").join("old"), "old").unwrap();
    let source = "import os\ne = os.environ\n\
        print(open(e['MOORING_TOOLS'] + '/t').read(), open('../skills/s').read(), open('old').read())\n\
        open(e['MOORING_SCRATCH'] + '/new', 'w').write('new')\n\
        open('../results/r', 'w').write('r')\n\
        open(e['TMPDIR'] + '/gone', 'w').write('gone')\n\
        print(e['HOME'] == e['MOORING_SCRATCH'] == os.getcwd(), sorted(e))";
    let outcome = sandbox()
        .run(
            ground.job(python(source), limits()),
            &StopHandle::new().unwrap(),
        )
        .unwrap();
    assert_eq!(
        output(&outcome),
        "tool skill old\nTrue ['HOME', 'LANG', 'MALLOC_ARENA_MAX', 'MOORING_RESULTS', 'MOORING_SCRATCH', \
         'MOORING_SKILLS', 'MOORING_TOOLS', 'NO_COLOR', 'PATH', 'PYTHONPATH', 'PYTHONSAFEPATH', 'TMPDIR']\n"
    );
    assert_eq!(read_upper(outcome.changes.scratch.as_fd(), "new"), "new");
    assert_eq!(read_upper(outcome.changes.scratch.as_fd(), "old"), "old");
    assert_eq!(read_upper(outcome.changes.results.as_fd(), "r"), "r");
    assert!(
        !ground.path("scratch").join("new").exists(),
        "the trees themselves are untouched"
    );
}

#[test]
fn python_has_threads_children_and_event_loops() {
    let _turn = Turn::take();
    let source = "import asyncio, os, subprocess, sys, tempfile, threading, shutil\nseen = []\n\
        thread = threading.Thread(target=lambda: seen.append('thread')); thread.start(); thread.join()\n\
        seen.append(subprocess.run([sys.executable, '-c', 'print(\"child\")'], capture_output=True, text=True).stdout.strip())\n\
        async def main():\n    await asyncio.sleep(0)\n    return 'loop'\n\
        seen.append(asyncio.run(main()))\n\
        with tempfile.NamedTemporaryFile() as file:\n    shutil.copy2(file.name, 'copy'); seen.append('copy')\n\
        print(' '.join(seen))";
    assert_eq!(
        output(&run_python(source, limits())),
        "thread child loop copy\n"
    );
}

/// A copy of deno where the run of root, which is another user's, reaches it.
fn deno_for_all(place: &Path) -> PathBuf {
    let installed = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../.tools/bin/deno");
    let deno = std::env::var_os("MOORING_TEST_DENO").map_or(installed, PathBuf::from);
    fs::set_permissions(place, fs::Permissions::from_mode(0o755)).unwrap();
    fs::copy(&deno, place.join("deno")).expect("deno: run tests/tools/install.sh tools");
    place.join("deno")
}

#[test]
fn deno_reads_and_writes_by_variables() {
    let _turn = Turn::take();
    let source = "const scratch: string = Deno.env.get('MOORING_SCRATCH')!;\n\
        Deno.writeTextFileSync(`${scratch}/n`, 'deno');\n\
        await new Promise((done) => setTimeout(done, 1));\n\
        console.log(Deno.readTextFileSync('n'), Deno.readTextFileSync('n').length);";
    let place = tempfile::tempdir().unwrap();
    let sandbox = Sandbox::probe(Options {
        deno: Some(deno_for_all(place.path())),
        ..options()
    })
    .unwrap();
    let program = Program::TypeScript {
        source: source.to_owned(),
    };
    let ground = Ground::new();
    let job = ground.job(program, limits());
    let outcome = sandbox.run(job, &StopHandle::new().unwrap()).unwrap();
    assert_eq!(output(&outcome), "deno 4\n");
    assert_eq!(read_upper(outcome.changes.scratch.as_fd(), "n"), "deno");
}

#[test]
fn tools_read_one_another() {
    let _turn = Turn::take();
    let ground = Ground::new();
    fs::write(ground.path("scratch").join("a.txt"), "b\na\nb\n").unwrap();
    let stage = |tool: &str, arguments: &[Argument]| Stage {
        tool: tool.to_owned(),
        arguments: arguments.to_vec(),
    };
    let stages = vec![
        stage("cat", &[Argument::Pattern("../scratch/*.txt".to_owned())]),
        stage("sort", &[]),
        stage("uniq", &[Argument::Literal("-c".to_owned())]),
    ];
    let job = ground.job(Program::Pipeline { stages }, limits());
    let outcome = sandbox().run(job, &StopHandle::new().unwrap()).unwrap();
    assert_eq!(output(&outcome), "      1 a\n      2 b\n");
}
