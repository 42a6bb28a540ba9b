//! What is mounted: its hash, its files, and that code can use them.

use std::os::unix::fs::PermissionsExt as _;
use std::process::Command;
use std::sync::Barrier;
use std::thread;

use serde_json::{Value, json};

use super::super::tools::{self, ManifestError};
use super::super::{MountedSkill, TreeOrigin};
use super::*;
use mooring_settings::StubFormat;
use mooring_stubs::MountedTool;

fn tool(name: &str) -> MountedTool {
    MountedTool {
        id: format!("github__{name}"),
        name: name.to_owned(),
        original_name: name.to_owned(),
        server: "github".to_owned(),
        description: "Makes an issue.".to_owned(),
        tags: vec!["issues".to_owned()],
        input_schema: json!({"type": "object"}),
        ..MountedTool::default()
    }
}

fn mounted(tools: &[&str], skills: &[&str]) -> Result<MountManifest, ManifestError> {
    mounted_as(StubFormat::Python, tools, skills)
}

fn mounted_as(
    format: StubFormat,
    tools: &[&str],
    skills: &[&str],
) -> Result<MountManifest, ManifestError> {
    let skill = |name: &&str| MountedSkill {
        name: (*name).to_owned(),
        source: "x = 1\n".to_owned(),
    };
    let (tools, skills) = (
        tools.iter().map(|name| tool(name)),
        skills.iter().map(skill),
    );
    let server = ServerName::parse(b"sandbox").unwrap();
    MountManifest::new(
        &server,
        Language::Python,
        format,
        tools.collect(),
        skills.collect(),
    )
}

/// One tool, mounted into sessions of the server `sandbox`.
pub(super) fn one_tool() -> MountManifest {
    mounted(&["create_issue"], &[]).unwrap()
}

#[test]
fn the_hash_follows_from_what_is_mounted_and_not_from_its_order() {
    let hash =
        |tools: &[&str], skills: &[&str]| mounted(tools, skills).unwrap().content_hash().clone();
    assert_eq!(
        hash(&["a", "b"], &["x.py", "y.py"]),
        hash(&["b", "a"], &["y.py", "x.py"])
    );
    let different = [
        hash(&[], &[]),
        hash(&["a"], &[]),
        hash(&["a", "b"], &[]),
        hash(&["a"], &["x.py"]),
        nothing(&place_of("alice")).content_hash().clone(),
    ];
    assert_eq!(different[0], different[4], "nobody's name is in it");
    for (index, one) in different[..4].iter().enumerate() {
        assert!(!different[..index].contains(one));
    }
    let server = ServerName::parse(b"sandbox").unwrap();
    let typescript = MountManifest::none(&server, Language::TypeScript).unwrap();
    assert_ne!(*typescript.content_hash(), different[0]);
    let json = mounted_as(StubFormat::Json, &["a"], &[]).unwrap();
    assert_ne!(*json.content_hash(), different[1]);
}

#[test]
fn a_skills_name_is_no_path_and_everything_has_a_limit() {
    let own = ["__init__.py", "_meta.json", "_mod.ts"];
    let long = "x".repeat(256);
    for name in ["", ".", "..", "a/b", "a\0b", &long].into_iter().chain(own) {
        assert!(
            matches!(mounted(&[], &[name]), Err(ManifestError::SkillName)),
            "{name}"
        );
    }
    let many = vec!["t"; 5_000];
    assert!(matches!(
        mounted(&many, &[]),
        Err(ManifestError::Tools { count: 5_000 })
    ));
    assert!(matches!(
        mounted(&[], &many),
        Err(ManifestError::Skills { count: 5_000 })
    ));
}

#[test]
fn the_tree_holds_catalog_schema_and_runtime_and_cannot_be_written() {
    let fixture = Fixture::new();
    let alice = place_of("alice");
    let handle = fixture.volume.session(&alice);
    let mounted = mounted(&["create_issue"], &["x.py"]).unwrap();
    handle.open(blank(1_000), &mounted, PATIENCE).unwrap();
    let tree = fixture
        .base
        .join(".tools")
        .join(mounted.content_hash().as_str());
    let tools = tree.join("tools");
    assert_eq!(names(&tree), ["skills", "tools"]);
    assert_eq!(
        names(&tools),
        [
            ".search_index",
            "__init__.py",
            "__init__.pyi",
            "_catalog.json",
            "_import_map.json",
            "_runtime.py",
            "_runtime.ts",
            "_schema.json",
            "github",
            "mod.ts"
        ]
    );
    let server = tools.join("github");
    assert_eq!(
        names(&server),
        [
            "__init__.py",
            "__init__.pyi",
            "_meta.json",
            "create_issue.py"
        ]
    );
    assert_eq!(
        names(&tree.join("skills")),
        ["__init__.py", "_meta.json", "_mod.ts", "x.py"]
    );
    let mode = |path: &Path| std::fs::metadata(path).unwrap().permissions().mode() & 0o7777;
    for directory in [&tools, &server, &tree.join("skills")] {
        assert_eq!(mode(directory), 0o555);
    }
    for file in [tools.join("_runtime.py"), server.join("create_issue.py")] {
        assert_eq!(mode(&file), 0o444);
    }
    let read = |name: &str| -> Value {
        serde_json::from_slice(&std::fs::read(tools.join(name)).unwrap()).unwrap()
    };
    let catalog = read("_catalog.json");
    assert_eq!(catalog["schema_version"], "2026-02-01");
    assert_eq!(
        (&catalog["server_id"], &catalog["tool_count"]),
        (&json!("sandbox"), &json!(1))
    );
    assert_eq!(catalog["tools"][0]["name"], "create_issue");
    assert!(catalog["generated_at"].as_str().unwrap().ends_with('Z'));
    assert!(!catalog.to_string().contains("alice"));
    assert_eq!(
        read("_schema.json"),
        json!({
            "version": "2026-02-01",
            "roots": ["/tools", "/skills", "/scratch", "/results"],
            "stub_language": "python",
            "stub_format": "python",
        })
    );
}

#[test]
fn of_trees_made_at_once_one_stays() {
    let fixture = Fixture::new();
    let barrier = Barrier::new(4);
    for round in 0..20 {
        let skill = format!("s{round}.py");
        let mounted = mounted(&[], &[&skill]).unwrap();
        let made = thread::scope(|scope| {
            let make = || {
                barrier.wait();
                let base = std::os::fd::AsFd::as_fd(&fixture.volume.shared.base);
                tools::ensure(base, &mounted).unwrap().origin
            };
            let threads = [(); 4].map(|()| scope.spawn(make));
            let origins = threads.map(|thread| thread.join().unwrap());
            origins
                .iter()
                .filter(|origin| **origin == TreeOrigin::Made)
                .count()
        });
        assert_eq!(made, 1);
    }
    assert_eq!(
        names(&fixture.base.join(".tools")).len(),
        20,
        "nothing half-made is left"
    );
}

#[test]
fn what_is_mounted_is_a_package_of_python() {
    let fixture = Fixture::new();
    let handle = fixture.volume.session(&place_of("alice"));
    let mounted = mounted(&["create_issue"], &["x.py"]).unwrap();
    handle.open(blank(1_000), &mounted, PATIENCE).unwrap();
    let hash = mounted.content_hash().as_str();
    let code = r#"
import skills, tools
from tools.github import create_issue
assert skills.x.x == 1
try:
    create_issue(title="t")
except tools.ToolUnavailableError as error:
    assert "descriptor 3" in str(error)
else:
    raise SystemExit("a call without a bridge came back")
"#;
    let ran = Command::new("/usr/bin/python3")
        .args(["-P", "-s", "-S", "-B", "-c", code])
        .env("PYTHONPATH", fixture.base.join(".tools").join(hash))
        .output()
        .unwrap();
    assert!(
        ran.status.success(),
        "{}",
        String::from_utf8_lossy(&ran.stderr)
    );
}
