//! `mooring sessions` as a process, over the embedded file and over Redis: files of claude-code-mcp in and out, and what is
//! said of the broken ones.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::Context;
use mooring_tests::advised_users::advised_users;
use mooring_tests::paths;
use mooring_tests::redis::{Module, Redis};
use serde_json::{Value, json};
use tempfile::TempDir;

const SETTINGS: &str = "\
[[servers]]
id = \"claude\"
kind = \"agent\"
profile = \"claude\"
";

const DAY: Duration = Duration::from_secs(86_400);

/// A user's own directory with settings in it, and a store.
struct Machine {
    home: TempDir,
    store: String,
}

impl Machine {
    fn new(store: &str) -> anyhow::Result<Self> {
        let home = TempDir::with_prefix("mooring-home-")?;
        let settings = home.path().join("config/mooring");
        std::fs::create_dir_all(&settings)?;
        std::fs::write(settings.join("mooring.toml"), SETTINGS)?;
        let store = store.to_owned();
        Ok(Self { home, store })
    }

    fn path(&self, name: &str) -> PathBuf {
        self.home.path().join(name)
    }

    fn file(&self, name: &str, content: &[u8]) -> anyhow::Result<PathBuf> {
        let path = self.path(name);
        std::fs::write(&path, content)?;
        Ok(path)
    }

    async fn sessions(&self, words: &[&str]) -> anyhow::Result<Output> {
        let mut command = Command::new(paths::binary("mooring")?);
        command
            .arg("sessions")
            .args(words)
            .args(["--store", &self.store])
            .env_clear()
            .env("HOME", self.home.path())
            .env("XDG_CONFIG_HOME", self.path("config"));
        Ok(tokio::task::spawn_blocking(move || command.output()).await??)
    }

    /// One that has to succeed: what it printed, and what it said.
    async fn told(&self, words: &[&str]) -> anyhow::Result<(String, String)> {
        let output = self.sessions(words).await?;
        let errors = String::from_utf8(output.stderr)?;
        anyhow::ensure!(output.status.success(), "{words:?}: {errors}");
        Ok((String::from_utf8(output.stdout)?, errors))
    }

    async fn exported(&self) -> anyhow::Result<Value> {
        let (text, _) = self.told(&["export"]).await?;
        serde_json::from_str(&text).with_context(|| text)
    }
}

fn text(path: &Path) -> &str {
    path.to_str().expect("a path of text")
}

/// A moment of today, in the form of `toISOString`: the day that the system's `date` knows, so that no code of the gateway
/// is tested by itself.
async fn ago(length: Duration) -> anyhow::Result<String> {
    let at = SystemTime::now().duration_since(UNIX_EPOCH)? - length;
    date(&format!("@{}.{:03}", at.as_secs(), at.subsec_millis())).await
}

/// The moment that the system's `date` understands so.
async fn date(at: &str) -> anyhow::Result<String> {
    let mut date = Command::new("date");
    date.args(["-u", "-d", at, "+%Y-%m-%dT%H:%M:%S.%3NZ"]);
    let output = tokio::task::spawn_blocking(move || date.output()).await??;
    Ok(String::from_utf8(output.stdout)?.trim().to_owned())
}

fn entry(session: &str, updated_at: &str) -> Value {
    json!({"claudeSessionId": session, "updatedAt": updated_at})
}

/// A file goes in and comes out equal, also as an update of what is there.
async fn goes_round(machine: &Machine) -> anyhow::Result<()> {
    let (old, young) = (ago(DAY / 2).await?, ago(DAY / 24).await?);
    let first = json!({
        "parent-session-123": entry("eff82f41-a021-4098-80a0-95117aa3f3e4", &young),
        "a parent: with \"spaces\"": entry("s-2", &old),
    });
    let path = machine.file(
        "sessions.json",
        serde_json::to_string_pretty(&first)?.as_bytes(),
    )?;
    let (said, errors) = machine
        .told(&["import", text(&path), "--server", "claude"])
        .await?;
    assert!(
        said.starts_with("2 sessions imported for local at claude: 2 new"),
        "{said}"
    );
    assert_eq!(errors, "");
    assert_eq!(machine.exported().await?, first);

    let second = json!({
        "parent-session-123": entry("stale", &old),
        "a parent: with \"spaces\"": entry("fresh", &young),
    });
    machine.file("sessions.json", second.to_string().as_bytes())?;
    let (said, _) = machine.told(&["import", text(&path)]).await?;
    assert!(said.contains("0 new, 1 replaced; 1 kept"), "{said}");
    let merged = json!({
        "parent-session-123": first["parent-session-123"],
        "a parent: with \"spaces\"": second["a parent: with \"spaces\""],
    });
    assert_eq!(machine.exported().await?, merged);
    machine
        .told(&["import", text(&path), "--overwrite"])
        .await?;
    assert_eq!(machine.exported().await?, second);

    let out = machine.path("out.json");
    machine.told(&["export", text(&out)]).await?;
    let written: Value = serde_json::from_slice(&std::fs::read(&out)?)?;
    assert_eq!(written, second);
    let (nobody, _) = machine
        .told(&["export", "--principal", "ada@example.org"])
        .await?;
    assert_eq!(nobody, "{}\n");
    Ok(())
}

/// What was imported is listed, shown and ended.
async fn is_managed(machine: &Machine) -> anyhow::Result<()> {
    let (listed, _) = machine.told(&["list"]).await?;
    assert!(listed.starts_with("SESSION "), "{listed}");
    let (listed, _) = machine
        .told(&["list", "--kind", "agent", "--server", "claude", "--json"])
        .await?;
    let listed: Value = serde_json::from_str(&listed)?;
    let sessions = listed["sessions"].as_array().context("a list")?;
    assert_eq!((sessions.len(), &listed["complete"]), (2, &json!(true)));
    let by_parent = |session: &&Value| {
        session["place"]
            .as_str()
            .is_some_and(|place| place.ends_with(":parent-session-123"))
    };
    let place = sessions.iter().find(by_parent).context("the one")?["place"]
        .as_str()
        .context("text")?;
    for session in sessions {
        let text = |field: &str| session[field].as_str().context("text");
        let (last_used, expires) = (text("last_used_at")?, text("expires_at")?);
        // The seconds are rounded down.
        let ttl = session["ttl_seconds"].as_u64().context("a number")?;
        let earliest = date(&format!("{last_used} + {ttl} seconds")).await?;
        let latest = date(&format!("{last_used} + {} seconds", ttl + 1)).await?;
        assert!(
            (earliest.as_str()..&*latest).contains(&expires),
            "{session}"
        );
    }
    let (shown, _) = machine.told(&["show", place]).await?;
    assert!(
        shown.contains("label parent: parent-session-123"),
        "{shown}"
    );
    assert!(shown.contains("upstream session stale"), "{shown}");
    machine.told(&["end", place]).await?;
    let left = machine.exported().await?;
    assert_eq!(
        left.as_object().map(serde_json::Map::len),
        Some(1),
        "{left}"
    );
    Ok(())
}

/// Where that server keeps it, whatever `XDG_CONFIG_HOME` is.
#[tokio::test]
async fn an_import_without_a_file_takes_that_of_claude_code_mcp() -> anyhow::Result<()> {
    let machine = Machine::new("embedded")?;
    let absent = machine.sessions(&["import"]).await?;
    let errors = String::from_utf8(absent.stderr)?;
    let default = machine.path(".config/claude-code-mcp/sessions.json");
    assert_eq!(absent.status.code(), Some(1), "{errors}");
    assert!(errors.contains(text(&default)), "{errors}");

    let sessions = json!({"parent-session-123": entry("s-1", &ago(DAY / 24).await?)});
    std::fs::create_dir_all(default.parent().context("a directory")?)?;
    std::fs::write(&default, sessions.to_string())?;
    let (said, errors) = machine.told(&["import"]).await?;
    assert!(said.starts_with("1 sessions imported"), "{said}{errors}");
    assert_eq!(machine.exported().await?, sessions);
    Ok(())
}

#[tokio::test]
async fn a_file_goes_through_the_embedded_store_and_back() -> anyhow::Result<()> {
    let machine = Machine::new("embedded")?;
    goes_round(&machine).await?;
    is_managed(&machine).await
}

#[tokio::test]
async fn a_file_goes_through_redis_to_another_machine() -> anyhow::Result<()> {
    let redis = Redis::start().await?;
    let machine = Machine::new(&redis.url())?;
    goes_round(&machine).await?;
    let another = Machine::new(&redis.url())?;
    assert_eq!(another.exported().await?, machine.exported().await?);
    is_managed(&another).await
}

/// As the users of docs/operating-redis.md, which are kept over a restart of Redis as the guide says.
#[tokio::test]
async fn the_operator_of_the_guide_may_do_all_of_it_and_a_reaper_is_told_what_it_may_not()
-> anyhow::Result<()> {
    let directory = TempDir::with_prefix("mooring-acl-")?;
    let users_file = directory.path().join("users.acl");
    std::fs::write(&users_file, "")?;
    let mut redis = Redis::start_with(Module::Loaded, &["--aclfile", text(&users_file)]).await?;
    let users = advised_users()?;
    for user in &users {
        let line: Vec<&str> = user.line.split(' ').collect();
        assert_eq!(redis.cli(&line)?, "OK", "{}", user.line);
    }
    assert_eq!(redis.cli(&["ACL", "SAVE"])?, "OK");
    redis.restart().await?;

    let url_of = |name: &str, password: &str| {
        format!("redis://{name}:{password}@127.0.0.1:{}", redis.port())
    };
    let [_, reaper, operator] = users.as_slice() else {
        anyhow::bail!("the guide has other users");
    };
    let machine = Machine::new(&url_of(&operator.name, &operator.password))?;
    goes_round(&machine).await?;
    is_managed(&machine).await?;

    for (url, says) in [
        (
            url_of(&reaper.name, &reaper.password),
            "'command|info' command",
        ),
        (
            url_of(&reaper.name, "wrong"),
            "authentication failed: wrong user or password",
        ),
    ] {
        let refused = Machine::new(&url)?.sessions(&["list"]).await?;
        let errors = String::from_utf8_lossy(&refused.stderr);
        assert_eq!(refused.status.code(), Some(69), "{errors}");
        assert!(errors.contains(says), "{errors}");
    }
    Ok(())
}

#[tokio::test]
async fn imports_at_the_same_time_lose_nothing_of_each_other() -> anyhow::Result<()> {
    let machine = Machine::new("embedded")?;
    let at = ago(DAY / 24).await?;
    let mut all = serde_json::Map::new();
    let mut files = Vec::new();
    for process in 0..4 {
        let member = |parent| (format!("p-{process}-{parent}"), entry("s", &at));
        let own: serde_json::Map<String, Value> = (0..10).map(member).collect();
        files.push(machine.file(
            &format!("{process}.json"),
            Value::Object(own.clone()).to_string().as_bytes(),
        )?);
        all.extend(own);
    }
    let [one, two, three, four] =
        [0, 1, 2, 3].map(|process: usize| ["import", text(&files[process])]);
    tokio::try_join!(
        machine.told(&one),
        machine.told(&two),
        machine.told(&three),
        machine.told(&four),
    )?;
    assert_eq!(machine.exported().await?, Value::Object(all));
    Ok(())
}

#[tokio::test]
async fn of_a_broken_file_all_that_can_be_taken_is_taken() -> anyhow::Result<()> {
    let machine = Machine::new("embedded")?;
    let good = entry("good", &ago(DAY / 24).await?);
    let broken = format!(
        r#"{{
            "good": {good}, "null": null, "list": [], "text": "s", "no-id": {{"updatedAt": "2026-01-14T23:15:00Z"}},
            "blank": {{"claudeSessionId": " ", "updatedAt": "2026-01-14T23:15:00Z"}},
            "number": {{"claudeSessionId": "s", "updatedAt": 1768432500000}},
            "nan": {{"claudeSessionId": "s", "updatedAt": "Invalid Date"}},
            "flag": {{"claudeSessionId": "--help", "updatedAt": "2026-01-14T23:15:00Z"}},
            "\u001b[2J": 1, "": {good}, "old": {{"claudeSessionId": "s", "updatedAt": "2020-01-01T00:00:00Z"}}
        }}"#
    );
    let path = machine.file("sessions.json", broken.as_bytes())?;
    let (said, errors) = machine.told(&["import", text(&path)]).await?;
    assert!(
        said.contains("1 new") && said.contains("11 skipped, of which 1 expired"),
        "{said}"
    );
    for (key, reason) in [
        ("null", "null, not an object"),
        ("list", "an array, not an object"),
        ("text", "a string, not an object"),
        ("no-id", "claudeSessionId is missing"),
        ("blank", "claudeSessionId is blank"),
        ("number", "updatedAt is a number, not a string"),
        ("nan", "updatedAt is not a date"),
        ("flag", "begins with a hyphen"),
        ("\\u{1b}[2J", "the key holds control characters"),
        ("", "the key is empty"),
        ("old", "it expired"),
    ] {
        let line = format!("mooring: skipped \"{key}\": ");
        let of_key = errors.lines().find(|said| said.starts_with(&line));
        assert!(
            of_key.is_some_and(|said| said.contains(reason)),
            "{key}: {errors}"
        );
    }
    assert_eq!(errors.lines().count(), 11, "{errors}");
    assert_eq!(machine.exported().await?, json!({"good": good}));
    Ok(())
}

#[tokio::test]
async fn a_command_that_comes_to_nothing_ends_with_a_documented_code() -> anyhow::Result<()> {
    let machine = Machine::new("embedded")?;
    let half = machine.file("half.json", b"{\"p\": {\"claudeSess")?;
    let list = machine.file("list.json", b"[]")?;
    let none = machine.file("none.json", b"{\"p\": null}")?;
    let (half, list, none) = (text(&half), text(&list), text(&none));
    let directory = text(machine.home.path());
    for (words, code, says) in [
        (
            vec!["import", half],
            1,
            "the file is cut off: it ends in line 1, column 18",
        ),
        (vec!["import", list], 1, "the file holds an array"),
        (vec!["import", none], 1, "skipped \"p\": its value is null"),
        (
            vec!["import", "/no/such/file"],
            1,
            "cannot open /no/such/file",
        ),
        (vec!["import", directory], 1, "is not a regular file"),
        (vec!["export", directory], 1, "is not a regular file"),
        (
            vec!["import", list, "--server", "other"],
            64,
            "no server of kind agent named \"other\"",
        ),
        (vec!["import", list, "--principal", "*"], 64, "--principal"),
        (vec!["list", "--limit", "0"], 64, "--limit"),
        (vec!["show", "x"], 64, "a session is named by"),
        (vec!["end", "0000"], 1, "the store has no such session"),
    ] {
        let output = machine.sessions(&words).await?;
        let errors = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(code), "{words:?}: {errors}");
        assert!(errors.contains(says), "{words:?}: {errors}");
    }
    let empty = machine.file("empty.json", b"{}")?;
    machine.told(&["import", text(&empty)]).await?;
    let away = Machine::new("redis://127.0.0.1:1")?;
    let output = away.sessions(&["export"]).await?;
    assert_eq!(output.status.code(), Some(69), "{output:?}");
    Ok(())
}
