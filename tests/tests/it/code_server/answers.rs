//! What a model reads of an answer: what was printed, and not how it ran; and all of that where the settings say so.

use anyhow::Context;
use mooring_tests::gateway::Settings;
use serde_json::{Value, json};

use super::{Scene, text};

/// What a model may have to read before it has asked anything.
const DEFINITIONS_BYTES_MAX: usize = 5_000;

/// The text of a result.
fn read(result: &Value) -> &str {
    text(result, "/content/0/text")
}

#[tokio::test]
async fn a_model_reads_what_was_printed_and_nothing_else() -> anyhow::Result<()> {
    let mut scene = Scene::start().await?;
    let mut run = async |code: &str| {
        let arguments = json!({"code": code, "language": "python"});
        scene.coder.result("shell_exec", arguments).await
    };
    let printed = run("print(55)").await?;
    assert_eq!(read(&printed), "55\n");
    assert_eq!(printed["structuredContent"], json!({"output": "55\n"}));
    assert_eq!(printed["isError"], false);
    let meta = &printed["_meta"]["mooring/run"];
    assert_eq!(meta["metrics"]["isolation"]["tier"], "strict", "{printed}");
    assert_eq!(meta["tool_calls_made"], json!([]));
    assert_eq!(meta["run_id"], meta["metrics"]["run_id"]);

    let nothing = run("x = 1").await?;
    assert_eq!(read(&nothing), "(nothing was printed)");
    assert_eq!(nothing["structuredContent"], json!({"output": ""}));

    let warned = run("import sys\nprint(1)\nprint('old', file=sys.stderr)").await?;
    assert_eq!(read(&warned), "1\nstderr:\nold\n");
    let expected = json!({"output": "1\n", "error": "old\n"});
    assert_eq!(warned["structuredContent"], expected);

    let failed = run("print('begun')\n1 / 0").await?;
    assert_eq!(failed["isError"], true);
    let said = read(&failed);
    assert!(
        said.starts_with("begun\n") && said.contains("line 2"),
        "{said}"
    );
    assert!(
        said.ends_with("ZeroDivisionError: division by zero\n"),
        "{said}"
    );
    let run_id = &failed["_meta"]["mooring/run"]["run_id"];
    assert_eq!(&failed["structuredContent"]["run_id"], run_id, "{failed}");

    let deep = run("import os\nos.makedirs('/results' + '/d' * 33)").await?;
    assert!(
        read(&deep).starts_with("stderr:\nnot kept: /results/d/d"),
        "{deep}"
    );
    assert!(read(&deep).contains("deeper than 32"), "{deep}");
    assert_eq!(deep["isError"], false);
    Ok(())
}

#[tokio::test]
async fn an_error_that_one_line_says_has_no_traceback() -> anyhow::Result<()> {
    let mut scene = Scene::start().await?;
    for (code, expected) in [
        (
            "print(1)\nimport pandas",
            "ModuleNotFoundError: No module named 'pandas' (line 2): only the standard library is here, and modules in \
             /scratch after sys.path.append('.')\n",
        ),
        (
            "import urllib.request\nurllib.request.urlopen('http://a.example')",
            "code has no network here: urllib.error.URLError: <urlopen error [Errno -3] Temporary failure in name \
             resolution> (line 2)\n",
        ),
        (
            "import socket\n\nsocket.socket()",
            "code has no network here: OSError: [Errno 38] Function not implemented (line 3)\n",
        ),
    ] {
        let arguments = json!({"code": code, "language": "python"});
        let answer = scene.failed(arguments).await?;
        assert_eq!(text(&answer, "/error"), expected);
    }
    let arguments = json!({"code": "def f():\n    1 / 0\nf()", "language": "python"});
    let answer = scene.failed(arguments).await?;
    assert!(text(&answer, "/error").starts_with("Traceback"), "{answer}");
    Ok(())
}

#[tokio::test]
async fn a_search_where_no_server_has_tools_says_so() -> anyhow::Result<()> {
    let mut scene = Scene::start().await?;
    let found = (scene.coder).result("tool_search", json!({"query": "orders"}));
    let found = found.await?;
    assert!(
        read(&found).starts_with("No tools are available."),
        "{found}"
    );
    Ok(())
}

#[tokio::test]
async fn long_output_has_both_ends_and_is_whole_in_results() -> anyhow::Result<()> {
    let larger = |settings: Settings| {
        settings
            .env("MOORING_CODE_OUTPUT_BYTES_MAX", "3000000")
            .env("MOORING_CODE_DEFAULT_MAX_FILE_SIZE_MB", "1")
    };
    let mut scene = Scene::start_with(larger).await?;
    let long = |lines: usize| {
        let code = format!("for n in range({lines}):\n    print(f'{{n:09}}')");
        json!({"code": code, "language": "python"})
    };
    let result = scene.coder.result("shell_exec", long(10_000)).await?;
    let said = read(&result);
    assert!(said.len() <= 30_000, "{} bytes", said.len());
    assert!(said.starts_with("000000000\n") && said.ends_with("000009999\n"));
    assert_eq!(result["structuredContent"]["output"], said);
    assert_eq!(result["structuredContent"]["truncated"], true);
    let run_id = text(&result, "/structuredContent/run_id");
    let path = format!("/results/output-{run_id}.txt");
    assert!(
        said.contains(&format!("of 100000 bytes left out; all of it is in {path}")),
        "{said}"
    );
    let whole = scene.coder.read(&path).await?;
    assert_eq!(whole.lines().count(), 10_000);

    // A file may have a megabyte: this is more.
    let result = scene.coder.result("shell_exec", long(150_000)).await?;
    assert_eq!(result["isError"], false, "nothing is wrong with the run");
    assert!(read(&result).contains("could not be written to /results: over the limit file_bytes"));
    assert_eq!(scene.coder.names("/results").await?.len(), 1);
    Ok(())
}

#[tokio::test]
async fn the_whole_object_is_answered_where_the_settings_say_so() -> anyhow::Result<()> {
    let full = |settings: Settings| settings.env("MOORING_CODE_ANSWER", "full");
    let mut scene = Scene::start_with(full).await?;
    let arguments = json!({"code": "print('x' * 40_000)", "language": "python"});
    let result = scene.coder.result("shell_exec", arguments).await?;
    let structured = &result["structuredContent"];
    assert_eq!(text(structured, "/output").len(), 40_001);
    assert_eq!(structured["error"], Value::Null);
    assert_eq!(structured["metrics"]["outcome"], "completed");
    assert_eq!(structured["tool_calls_made"], json!([]));
    assert_eq!(result.get("_meta"), None);
    assert_eq!(&serde_json::from_str::<Value>(read(&result))?, structured);
    assert!(scene.coder.names("/results").await?.is_empty());
    Ok(())
}

#[tokio::test]
async fn the_definitions_of_the_tools_are_short() -> anyhow::Result<()> {
    for form in ["brief", "full"] {
        let in_form = |settings: Settings| settings.env("MOORING_CODE_ANSWER", form);
        let scene = Scene::start_with(in_form).await?;
        let mut session = scene.session().await?;
        let listed = session.request("tools/list", json!({})).await?.response;
        let bytes = listed["result"].to_string().len();
        assert!(bytes <= DEFINITIONS_BYTES_MAX, "{form}: {bytes} bytes");
        let run = listed.pointer("/result/tools/0/description");
        let run = run.and_then(Value::as_str).context("a description")?;
        assert!(run.contains("7 days after the last call"), "{run}");
    }
    Ok(())
}

#[tokio::test]
async fn code_of_agents_runs_as_they_write_it() -> anyhow::Result<()> {
    let mut scene = Scene::start().await?;
    for (code, expected) in [
        (
            "import asyncio\nprint(await asyncio.sleep(0, 'awaited'))",
            "awaited",
        ),
        ("print(eval('1+1'))", "2"),
        ("print(__import__('json').dumps([1]))", "[1]"),
        (
            "class Model:\n    def eval(self):\n        return 3\n\nprint(Model().eval())",
            "3",
        ),
    ] {
        assert_eq!(scene.coder.python(code).await?, expected, "{code}");
    }
    for line in [
        "mkdir -p /scratch/a && cd /scratch/a",
        "pip install pandas",
        "ls -la\nls /results",
    ] {
        let answer = scene.failed(json!({"code": line})).await?;
        let error = text(&answer, "/error");
        assert!(error.contains("there is no shell"), "{line}: {error}");
        assert!(!error.contains("SyntaxError"), "{line}: {error}");
    }
    Ok(())
}

#[tokio::test]
async fn file_tools_answer_with_text_images_and_advice() -> anyhow::Result<()> {
    let mut scene = Scene::start().await?;
    scene.coder.write("/scratch/a.txt", "a\nb\n").await?;
    let code = "import base64, os\nos.mkdir('/scratch/d')\n\
                open('/scratch/p.png', 'wb').write(b'\\x89PNG\\r\\n\\x1a\\n' + bytes([0, 255]))\n\
                open('/scratch/z.zip', 'wb').write(b'PK\\x03\\x04' + bytes([255]))";
    scene.coder.python(code).await?;
    let read_file = |path: &str| json!({"path": path});
    let listed = scene
        .coder
        .result("fs_browse", read_file("/scratch"))
        .await?;
    assert_eq!(read(&listed), "a.txt 4\nd/\np.png 10\nz.zip 5");
    let whole = scene
        .coder
        .result("fs_read", read_file("/scratch/a.txt"))
        .await?;
    assert_eq!(read(&whole), "a\nb\n");
    assert_eq!(whole["structuredContent"]["content"], "a\nb\n");
    let image = scene
        .coder
        .result("fs_read", read_file("/scratch/p.png"))
        .await?;
    assert_eq!(image["isError"], false, "{image}");
    let block = json!({"type": "image", "data": "iVBORw0KGgoA/w==", "mimeType": "image/png"});
    assert_eq!(image["content"], json!([block]));
    assert_eq!(image["structuredContent"]["size_bytes"], 10);
    let archive = scene
        .coder
        .result("fs_read", read_file("/scratch/z.zip"))
        .await?;
    assert_eq!(archive["isError"], true);
    let said = read(&archive);
    assert!(
        said.contains("ZIP archive") && said.contains("open(\"/scratch/z.zip\", \"rb\")"),
        "{said}"
    );
    Ok(())
}

/// A host takes and gives files of any kind; a model has no other way than its tools.
#[tokio::test]
async fn binary_files_go_in_and_out() -> anyhow::Result<()> {
    // A ZIP archive with one empty file `a`.
    const ARCHIVE: &str = "UEsDBBQAAAAAAAAAIQAAAAAAAAAAAAAAAAABAAAAYVBLAQIUAxQAAAAAAAAAIQAAAAAAAAAAAAAAAAABAAAAAAAAAAAAAACAAQAAAABhUEsFBgAAAAABAAEALwAAAB8AAAAAAA==";
    let mut scene = Scene::start().await?;
    let file = |content: &str| json!({"path": "/scratch/in/a b.xlsx", "content": content, "encoding": "base64"});
    let written = scene.coder.result("fs_write", file(ARCHIVE)).await?;
    assert_eq!(written["isError"], false, "{written}");
    let code = "import zipfile\nprint(zipfile.ZipFile('/scratch/in/a b.xlsx').namelist())";
    let arguments = json!({"code": code, "language": "python"});
    let listed = scene.coder.result("shell_exec", arguments).await?;
    assert_eq!(read(&listed), "['a']\n", "{listed}");
    let arguments = json!({"path": "/scratch/in/a b.xlsx", "encoding": "base64"});
    let taken = scene.coder.result("fs_read", arguments).await?;
    let mime_type = "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet";
    let resource =
        json!({"uri": "file:///scratch/in/a%20b.xlsx", "mimeType": mime_type, "blob": ARCHIVE});
    let block = json!({"type": "resource", "resource": resource});
    assert_eq!(taken["content"], json!([block]), "{taken}");
    assert_eq!(taken["structuredContent"]["mime_type"], mime_type);

    let refused = scene.coder.result("fs_write", file("no base64!")).await?;
    assert_eq!(refused["isError"], true, "{refused}");
    assert!(read(&refused).contains("must be base64"), "{refused}");
    Ok(())
}

#[tokio::test]
async fn a_long_file_is_read_in_parts_that_split_no_character() -> anyhow::Result<()> {
    let mut scene = Scene::start().await?;
    // Three bytes each, of which no power of two is a multiple.
    let code = "open('/scratch/long', 'w').write('\\u20ac' * 500_000)";
    let arguments = json!({"code": code, "language": "python"});
    scene.coder.result("shell_exec", arguments).await?;
    let whole = scene
        .coder
        .result("fs_read", json!({"path": "/scratch/long"}))
        .await?;
    assert_eq!(whole["isError"], true, "{}", read(&whole));
    assert!(read(&whole).contains("from offset 0"), "{}", read(&whole));
    let (mut offset, mut characters) = (json!(0), 0);
    while !offset.is_null() {
        let arguments = json!({"path": "/scratch/long", "offset": offset});
        let part = scene.coder.result("fs_read", arguments).await?;
        let about = &part["structuredContent"];
        assert_eq!(about["size_bytes"], 1_500_000);
        assert!(read(&part).chars().all(|character| character == '\u{20ac}'));
        characters += read(&part).chars().count();
        offset = about["next_offset"].clone();
    }
    assert_eq!(characters, 500_000);
    Ok(())
}

#[tokio::test]
async fn a_time_that_no_run_may_take_is_refused_before_the_run() -> anyhow::Result<()> {
    let mut scene = Scene::start().await?;
    let arguments = json!({"code": "print(1)", "language": "python", "timeout_ms": 60_000});
    let refused = scene.coder.result("shell_exec", arguments).await?;
    assert_eq!(refused["isError"], true, "{refused}");
    let told = read(&refused);
    assert!(told.contains("60000") && told.contains("30000"), "{told}");
    Ok(())
}
