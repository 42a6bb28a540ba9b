//! Security events: they are there at once, for those who may see them, and outlive what they are about.

use serde_json::json;

use super::{ADA, AUDITOR, BOB, Scene, text};

#[tokio::test]
async fn events_are_listed_newest_first_and_filtered() -> anyhow::Result<()> {
    let scene = Scene::start("").await?;
    let mut ada = scene.coder(ADA).await?;
    let mut bob = scene.coder(BOB).await?;
    let blocked = json!({"code": "import os\nos.system('x')", "language": "python"});
    let (answer, _) = ada.call("shell_exec", blocked.clone()).await?;
    let run = text(&answer, "run_id");
    bob.call("shell_exec", blocked).await?;
    let slow = json!({"code": "while True: pass", "language": "python", "timeout_ms": 1_000});
    ada.call("shell_exec", slow).await?;

    let own = scene.events(1, ADA, "").await?;
    let kinds: Vec<String> = own.iter().map(|event| text(event, "kind")).collect();
    assert_eq!(kinds, ["limit_hit", "policy_block"]);
    assert_eq!(own[1]["run_id"], run.as_str());
    assert_eq!(own[1]["run_status"], "blocked");
    assert_eq!(own[1]["user_email"], ADA.user);
    assert_eq!(scene.events(2, AUDITOR, "").await?.len(), 3);
    assert_eq!(
        scene.events(2, AUDITOR, "?kind=policy_block").await?.len(),
        2
    );
    let of_bob = format!("?user={}&kind=policy_block", BOB.user);
    assert_eq!(scene.events(0, AUDITOR, &of_bob).await?.len(), 1);
    assert_eq!(scene.events(0, AUDITOR, "?limit=1").await?.len(), 1);
    assert_eq!(
        scene
            .events(0, AUDITOR, "?since=32503680000000")
            .await?
            .len(),
        0
    );
    Ok(())
}

#[tokio::test]
async fn who_runs_too_much_is_an_event() -> anyhow::Result<()> {
    let scene = Scene::start("sandbox_policy = { max_runs_per_minute = 1 }").await?;
    let mut ada = scene.coder(ADA).await?;
    ada.python("print(1)").await?;
    let again = json!({"code": "print(2)", "language": "python"});
    let (answer, is_error) = ada.call("shell_exec", again).await?;
    assert!(is_error, "{answer}");
    let events = scene.events(2, ADA, "?kind=rate_limited").await?;
    assert_eq!(events.len(), 1);
    assert_eq!(
        scene.runs(1, ADA, "").await?.len(),
        1,
        "what did not run is no run"
    );
    Ok(())
}

/// Each is code that meets a limit and goes on, and what the record of its run calls the limit.
const LIMITS_MET: [(&str, &str); 5] = [
    (
        "try:\n    open('/scratch/large', 'wb').write(b'x' * (2 << 20))\nexcept OSError:\n    print('went on')",
        "max_file_size_mb",
    ),
    (
        "try:\n    for n in range(20):\n        open(f'/results/{n}', 'wb').write(b'x' * (1 << 20 - 1))\n    \
         open('/results/rest', 'wb').write(b'x' * (1 << 19))\nexcept OSError:\n    print('went on')",
        "max_total_disk_mb",
    ),
    (
        "try:\n    for n in range(100):\n        open(f'/scratch/{n}', 'wb').close()\nexcept OSError:\n    print('went on')",
        "max_files",
    ),
    (
        "import threading\ndone = threading.Event()\ntry:\n    for n in range(20):\n        \
         threading.Thread(target=done.wait).start()\nexcept RuntimeError:\n    print('went on')\ndone.set()",
        "max_processes",
    ),
    ("print('went on' * (1 << 19))", "output_bytes_max"),
];

#[tokio::test]
async fn every_limit_that_a_run_meets_is_in_its_record_and_an_event() -> anyhow::Result<()> {
    let policy = "sandbox_policy = { max_file_size_mb = 1, max_total_disk_mb = 10, max_files = 40, max_processes = 8 }";
    const CLEAN: &str = "import os\nfor top in ('/scratch', '/results'):\n    for name in os.listdir(top):\n        \
                         os.remove(os.path.join(top, name))\nprint('clean')";
    let scene = Scene::start(policy).await?;
    let mut ada = scene.coder(ADA).await?;
    for (count, (code, limit)) in LIMITS_MET.into_iter().enumerate() {
        let arguments = json!({"code": code, "language": "python"});
        let (answer, _) = ada.call("shell_exec", arguments).await?;
        let output = text(&answer, "output");
        assert!(output.starts_with("went on"), "{limit}: {answer}");
        let runs = scene.runs(1, ADA, "?limit=1").await?;
        assert_eq!(
            runs[0]["metrics"]["limits_hit"],
            json!([limit]),
            "{limit}: {answer}"
        );
        let events = scene.events(2, ADA, "?kind=limit_hit").await?;
        assert_eq!(events.len(), count + 1, "{limit}");
        assert_eq!(events[0]["message"], limit);
        assert_eq!(ada.python(CLEAN).await?, "clean");
    }
    Ok(())
}

#[tokio::test]
async fn a_mistake_in_a_line_is_no_policy_block() -> anyhow::Result<()> {
    let scene = Scene::start("").await?;
    let mut ada = scene.coder(ADA).await?;
    for line in ["awk '{print}' /scratch/a", "ls; ls", "ls | sh"] {
        let (answer, is_error) = ada.call("shell_exec", json!({"code": line})).await?;
        assert!(is_error, "{line}: {answer}");
    }
    let runs = scene.runs(1, ADA, "?status=failed").await?;
    assert_eq!(runs.len(), 3);
    assert!(scene.events(2, ADA, "").await?.is_empty());
    let spawning = json!({"code": "find /scratch -exec cat x"});
    ada.call("shell_exec", spawning).await?;
    assert_eq!(scene.events(2, ADA, "?kind=policy_block").await?.len(), 1);
    Ok(())
}

#[tokio::test]
async fn patterns_that_warn_let_the_code_run() -> anyhow::Result<()> {
    let scene = Scene::start("").await?;
    let code = "exec('x = 1')\nprint(eval('x + 1'), __import__('json').dumps(1))";
    assert_eq!(scene.coder(ADA).await?.python(code).await?, "2 1");
    let events = scene.events(1, ADA, "").await?;
    assert_eq!(events.len(), 3);
    for event in &events {
        assert_eq!(event["kind"], "policy_warning");
        assert_eq!(event["run_status"], "completed");
    }
    Ok(())
}

#[tokio::test]
async fn only_allowed_runtimes_run() -> anyhow::Result<()> {
    let scene = Scene::start("sandbox_policy = { allowed_runtimes = [\"python\"] }").await?;
    let mut ada = scene.coder(ADA).await?;
    assert_eq!(ada.python("print(1)").await?, "1");
    for refused in [
        json!({"code": "ls /scratch"}),
        json!({"code": "console.log(1)", "language": "typescript"}),
    ] {
        let (answer, is_error) = ada.call("shell_exec", refused).await?;
        assert!(is_error, "{answer}");
        let error = text(&answer, "error");
        assert!(error.contains("its policy allows python"), "{error}");
    }
    assert_eq!(scene.runs(1, ADA, "?status=blocked").await?.len(), 2);
    assert_eq!(scene.events(2, ADA, "?kind=policy_block").await?.len(), 2);
    Ok(())
}

#[tokio::test]
async fn a_run_belongs_to_the_team_of_its_server() -> anyhow::Result<()> {
    for (server, team) in [
        ("", json!(null)),
        ("skills_scope = \"team:red\"", json!("red")),
    ] {
        let scene = Scene::start(server).await?;
        scene.coder(ADA).await?.python("print(1)").await?;
        assert_eq!(scene.runs(1, ADA, "").await?[0]["team_id"], team);
    }
    Ok(())
}

/// Each is a call of a file tool that meets the sandbox's end, and what the event says of it.
const PATHS_REFUSED: [(&str, &str, &str); 5] = [
    ("fs_read", "/etc/passwd", "fs_read: the path must lie in"),
    (
        "fs_browse",
        "/scratch/../../",
        "fs_browse: the path is not valid",
    ),
    (
        "fs_read",
        "/scratch/link",
        "fs_read: /scratch/link: neither a regular file",
    ),
    (
        "fs_read",
        "/scratch/second",
        "fs_read: /scratch/second: the file has more than one name",
    ),
    ("fs_write", "/tools/a", "fs_write: /tools/a: read-only"),
];

#[tokio::test]
async fn every_path_that_the_file_tools_refuse_is_an_event() -> anyhow::Result<()> {
    let scene = Scene::start("").await?;
    let mut ada = scene.coder(ADA).await?;
    ada.write("/scratch/first", "a").await?;
    let sessions = scene.fleet.volume.sessions()?;
    let scratch = sessions[0].join("scratch");
    std::os::unix::fs::symlink("/etc/passwd", scratch.join("link"))?;
    std::fs::hard_link(scratch.join("first"), scratch.join("second"))?;
    for (count, (tool, path, said)) in PATHS_REFUSED.iter().enumerate() {
        let mut arguments = json!({"path": path});
        if *tool == "fs_write" {
            arguments["content"] = "x".into();
        }
        let (answer, is_error) = ada.call(tool, arguments).await?;
        assert!(is_error, "{path}: {answer}");
        let events = scene.events(2, ADA, "?kind=sandbox_violation").await?;
        assert_eq!(events.len(), count + 1, "{path}");
        assert!(text(&events[0], "message").starts_with(said), "{events:?}");
    }
    let (_, is_error) = ada
        .call("fs_read", json!({"path": "/scratch/none"}))
        .await?;
    assert!(is_error, "a file that is not there is no event");
    let events = scene.events(2, ADA, "").await?;
    assert_eq!(events.len(), PATHS_REFUSED.len());
    Ok(())
}

/// Each is code that leaves the sandbox if it can, with the event that it becomes. All go on.
const REFUSED_CALLS: [(&str, &str, &str); 4] = [
    (
        "import socket\ntry:\n    socket.socket()\nexcept OSError:\n    print('went on')",
        "network_refused",
        "the system call filter refused socket (1 times)",
    ),
    (
        "import ctypes\nfor _ in range(3):\n    ctypes.CDLL(None).unshare(0x10000000)\nprint('went on')",
        "sandbox_violation",
        "the system call filter refused unshare (3 times)",
    ),
    (
        "import ctypes\nctypes.CDLL(None).mount(b'none', b'/tmp', b'tmpfs', 0, 0)\nprint('went on')",
        "sandbox_violation",
        "the system call filter refused mount (1 times)",
    ),
    (
        "import ctypes\nctypes.CDLL(None).ptrace(16, 1, 0, 0)\nprint('went on')",
        "sandbox_violation",
        "the system call filter refused ptrace (1 times)",
    ),
];

#[tokio::test]
async fn every_refused_call_out_of_the_sandbox_is_an_event() -> anyhow::Result<()> {
    let scene = Scene::start("").await?;
    let mut ada = scene.coder(ADA).await?;
    for (code, kind, message) in REFUSED_CALLS {
        assert_eq!(ada.python(code).await?, "went on", "{message}");
        let events = scene.events(2, ADA, "?limit=1").await?;
        assert_eq!(events[0]["kind"], kind, "{message}");
        assert_eq!(events[0]["message"], message);
    }
    Ok(())
}

#[tokio::test]
async fn code_and_file_tools_keep_to_the_same_directories() -> anyhow::Result<()> {
    let scene = Scene::start(
        "sandbox_policy = { filesystem_read_paths = [\"/scratch/**\", \"/results/shared/**\"], \
         filesystem_write_paths = [\"/scratch/**\"], filesystem_deny_paths = [\"/scratch/private/**\"] }",
    )
    .await?;
    let mut ada = scene.coder(ADA).await?;
    assert_eq!(
        ada.python("open('/scratch/a', 'w').write('1')\nprint(open('a').read())")
            .await?,
        "1"
    );
    assert_eq!(ada.read("/scratch/a").await?, "1");
    ada.write("/scratch/d/b", "2").await?;
    // A path, what may be done with it, and by whom it is asked.
    let rows = [
        ("fs_read", json!({"path": "/scratch/private/x"})),
        (
            "fs_write",
            json!({"path": "/scratch/private/x", "content": ""}),
        ),
        ("fs_browse", json!({"path": "/scratch/private"})),
        ("fs_write", json!({"path": "/results/x", "content": ""})),
        (
            "fs_write",
            json!({"path": "/results/shared/x", "content": ""}),
        ),
        ("fs_read", json!({"path": "/results/x"})),
        ("fs_browse", json!({"path": "/tools"})),
    ];
    let count = rows.len();
    for (tool, arguments) in rows {
        let (answer, is_error) = ada.call(tool, arguments.clone()).await?;
        let error = text(&answer, "error");
        assert!(
            is_error && error.contains("the server's policy does not allow"),
            "{arguments}: {answer}"
        );
    }
    for code in [
        "open('/scratch/private/x')",
        "open('/scratch/private/x', 'w')",
        "import os; os.listdir('/scratch/private')",
        "open('/results/x', 'w')",
        "open('/results/shared/x', 'w')",
        "open('/results/x')",
        "import os; os.rename('/scratch/private', '/scratch/public')",
        "import os; os.listdir('/tools')[0]",
    ] {
        let (answer, is_error) = ada
            .call("shell_exec", json!({"code": code, "language": "python"}))
            .await?;
        assert!(is_error, "{code}: {answer}");
    }
    assert_eq!(ada.names("/").await?, ["results", "scratch"]);
    assert_eq!(ada.names("/results").await?, ["shared"]);
    assert_eq!(ada.names("/scratch").await?, ["a", "d"]);
    let events = scene.events(2, ADA, "?kind=sandbox_violation").await?;
    assert_eq!(events.len(), count);
    Ok(())
}
