//! What it costs to make the trees of a thousand tools, against writing the same bytes to the same file system plainly.
//!
//! Run by `cargo bench -p mooring --bench stubs`. The first session with these tools makes the trees, every other finds
//! them: both are measured, and what it takes to know which trees they are. Each figure is the median.

#![allow(
    clippy::unwrap_used,
    clippy::print_stdout,
    clippy::indexing_slicing,
    reason = "a benchmark prints its table and may fail loudly"
)]

use std::fs::{self, File};
use std::hint::black_box;
use std::os::fd::AsFd as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use mooring_code::place::CodePlace;
use mooring_code::volume::{
    self, Incarnation, MountManifest, SecondProcess, Volume, VolumeOptions,
};
use mooring_session::names::{Principal, ServerName};
use mooring_settings::{Language, StubFormat};
use mooring_stubs::MountedTool;
use serde_json::json;
use tempfile::TempDir;

const ROUNDS: usize = 9;
const TOOLS: usize = 1_000;
const SERVERS: usize = 10;
const PATIENCE: Duration = Duration::from_secs(60);

fn main() -> ExitCode {
    if volume::is_second_process() {
        return volume::second_process();
    }
    // `cargo test --benches` runs this file too; without `--bench` it measures nothing.
    if std::env::args().any(|argument| argument == "--bench") {
        measure();
    }
    ExitCode::SUCCESS
}

fn measure() {
    let directory = TempDir::new().unwrap();
    let base = directory.path().join("base");
    let volume = Volume::open(VolumeOptions {
        base_dir: base.clone(),
        session_ttl: Duration::from_secs(900),
        second_process: SecondProcess::default(),
    })
    .unwrap();
    println!(
        "| stubs | files | KiB | the hash ms | the first session ms | the same bytes plainly ms | ratio | the next session ms |"
    );
    println!("|---|---|---|---|---|---|---|---|");
    for (name, format) in [
        ("Python", StubFormat::Python),
        ("TypeScript", StubFormat::TypeScript),
        ("JSON", StubFormat::Json),
    ] {
        let (mut hashes, mut firsts, mut plains, mut nexts) = (vec![], vec![], vec![], vec![]);
        let mut size = (0, 0);
        for round in 0..ROUNDS {
            let tools = tools(round);
            let began = Instant::now();
            let mounted = mounted(format, tools);
            hashes.push(began.elapsed());
            firsts.push(open(&volume, &format!("first-{name}-{round}"), &mounted));
            nexts.push(open(&volume, &format!("next-{name}-{round}"), &mounted));
            let tree = base.join(".tools").join(mounted.content_hash().as_str());
            let files = contents(&tree);
            size = (
                files.len(),
                files.iter().map(|(_, bytes)| bytes.len()).sum(),
            );
            plains.push(write(
                &directory.path().join(format!("plain-{name}-{round}")),
                &files,
            ));
        }
        let (first, plain) = (median(firsts), median(plains));
        println!(
            "| {name} | {} | {} | {:.1} | {first:.1} | {plain:.1} | {:.2} | {:.1} |",
            size.0,
            size.1 / 1024,
            median(hashes),
            first / plain,
            median(nexts),
        );
    }
    // Trees are read-only, which an ordinary user's removal of a temporary directory stumbles over.
    let parent = File::open(directory.path()).unwrap();
    mooring_sandbox::tree::remove(parent.as_fd(), "base".as_ref()).unwrap();
}

/// A thousand tools of ten servers, of a size that is common; no two rounds have the same.
fn tools(round: usize) -> Vec<MountedTool> {
    let tool = |number: usize| {
        let field = |words: &str| json!({"type": "string", "description": words});
        MountedTool {
            id: format!("server-{}__tool-{number}", number % SERVERS),
            name: format!("tool-{number}"),
            original_name: format!("tool-{number}"),
            server: format!("server-{}", number % SERVERS),
            description: format!(
                "Does the work of number {number} in round {round}, and says what came of it.\n\nIt may be called again."
            ),
            tags: vec!["bench".to_owned()],
            input_schema: json!({
                "type": "object",
                "required": ["owner", "name"],
                "properties": {
                    "owner": field("Whose it is."),
                    "name": field("What it is called."),
                    "state": {"enum": ["open", "closed", "all"]},
                    "labels": {"type": "array", "items": {"type": "string"}},
                    "page": {"type": "integer", "description": "Which page, from 1 on."},
                    "filter": {"$ref": "#/$defs/Filter"},
                },
                "$defs": {"Filter": {"type": "object", "properties": {
                    "since": field("Not before this moment."),
                    "by": {"anyOf": [{"type": "string"}, {"type": "null"}]},
                }}},
            }),
            output_schema: Some(json!({
                "type": "object",
                "required": ["items"],
                "properties": {"items": {"type": "array", "items": {"type": "object", "required": ["id"], "properties": {
                    "id": {"type": "integer"}, "title": {"type": "string"}, "closed": {"type": "boolean"}}}}},
            })),
            ..MountedTool::default()
        }
    };
    (0..TOOLS).map(tool).collect()
}

fn mounted(format: StubFormat, tools: Vec<MountedTool>) -> MountManifest {
    let server = ServerName::parse(b"sandbox").unwrap();
    black_box(MountManifest::new(&server, Language::Python, format, tools, Vec::new()).unwrap())
}

/// Opens a session of its own.
fn open(volume: &Volume, user: &str, mounted: &MountManifest) -> Duration {
    let principal = Principal::parse(user.as_bytes()).unwrap();
    let place = CodePlace::new(mounted.server(), &principal, Language::Python, None).unwrap();
    let incarnation = Incarnation::Recorded {
        generation: 1_000,
        created_at_ms: 1_000,
        is_new_key: true,
        outranks: None,
    };
    let session = volume.session(&place);
    let began = Instant::now();
    black_box(session.open(incarnation, mounted, PATIENCE).unwrap());
    began.elapsed()
}

/// All files below a directory, by their paths in it.
fn contents(tree: &Path) -> Vec<(PathBuf, Vec<u8>)> {
    let mut files = Vec::new();
    let mut directories = vec![tree.to_owned()];
    while let Some(directory) = directories.pop() {
        for entry in fs::read_dir(directory).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                directories.push(path);
            } else {
                let bytes = fs::read(&path).unwrap();
                files.push((path.strip_prefix(tree).unwrap().to_owned(), bytes));
            }
        }
    }
    files
}

fn write(to: &Path, files: &[(PathBuf, Vec<u8>)]) -> Duration {
    let began = Instant::now();
    for (path, bytes) in files {
        let path = to.join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, bytes).unwrap();
    }
    began.elapsed()
}

fn median(mut times: Vec<Duration>) -> f64 {
    times.sort_unstable();
    times[times.len() / 2].as_secs_f64() * 1_000.0
}
