//! The commands over a store in a file: what is imported and kept, and what an export writes.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test fails by panicking"
)]

use std::path::PathBuf;

use serde_json::{Value, json};
use tempfile::TempDir;

use super::agent_records::{AgentRecords, AgentSessionState, PutOutcome};
use super::import::OnKnown;
use super::list::ListFilter;
use super::*;
use crate::cli::{EXIT_BAD_SETTINGS, EXIT_FAILURE};
use crate::cli::{OwnerArguments, SessionKind};
use mooring_agent::session_file::Entry;
use mooring_settings::{Environment, Flags, Settings};
use mooring_store::{rfc3339, unix_now_ms};

const HOUR_MS: u64 = 3_600_000;

/// A store in a file, and settings with one agent, which has a cap of three sessions.
struct Scene {
    directory: TempDir,
    target: StoreTarget,
    owner: OwnerArguments,
}

impl Scene {
    fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("mooring.toml");
        let toml = "[[servers]]\nid = \"helper\"\nkind = \"agent\"\nprofile = \"claude\"\nsessions_max = 3\n\
                    [[servers]]\nid = \"tools\"\ninstances = [\"http://127.0.0.1:9001/mcp\"]\n";
        std::fs::write(&file, toml).unwrap();
        let environment: Environment = [("HOME", directory.path())].into_iter().collect();
        let flags = Flags {
            config: Some(file),
            ..Flags::default()
        };
        let settings = Settings::load(&environment, &flags).unwrap().settings;
        Self {
            directory,
            target: StoreTarget::of(settings),
            owner: OwnerArguments::default(),
        }
    }

    fn file(&self, text: &str) -> PathBuf {
        let path = self.directory.path().join("sessions.json");
        std::fs::write(&path, text).unwrap();
        path
    }

    async fn import_as(&self, text: &str, on_known: OnKnown) -> Outcome {
        let file = self.file(text);
        import::run(&self.target, &self.owner, &file, on_known)
            .await
            .unwrap()
    }

    async fn import(&self, sessions: &[(&str, &str, u64)]) -> Outcome {
        self.import_as(&text(sessions), OnKnown::KeepNewer).await
    }

    async fn exported(&self) -> Value {
        let outcome = export::run(&self.target, &self.owner, "-".as_ref());
        serde_json::from_str(&outcome.await.unwrap().text).unwrap()
    }

    async fn listed(&self) -> Value {
        let wanted = ListFilter::parse(None, None, Some(SessionKind::Agent), 50).unwrap();
        let outcome = list::run(&self.target, &wanted, true).await.unwrap();
        serde_json::from_str(&outcome.text).unwrap()
    }
}

/// A sessions.json: parent, agent's session, last use.
fn text(sessions: &[(&str, &str, u64)]) -> String {
    let member = |(parent, session, at): &(&str, &str, u64)| {
        let value = json!({"claudeSessionId": session, "updatedAt": rfc3339(*at)});
        ((*parent).to_owned(), value)
    };
    Value::Object(sessions.iter().map(member).collect()).to_string()
}

fn parents(exported: &Value) -> Vec<&str> {
    let members = exported.as_object().unwrap();
    members.keys().map(String::as_str).collect()
}

#[tokio::test]
async fn what_is_imported_is_exported_as_it_was() {
    let (scene, now) = (Scene::new(), unix_now_ms());
    let sessions = [
        ("plain", "s-1", now - HOUR_MS),
        ("with spaces: \u{6771}", "s-2", now - 2 * HOUR_MS),
        ("third", "s-3", now - 23 * HOUR_MS),
    ];
    let outcome = scene.import(&sessions).await;
    assert_eq!(outcome.remarks, Vec::<String>::new());
    assert!(
        outcome
            .text
            .starts_with("3 sessions imported for local at helper: 3 new"),
        "{outcome:?}"
    );
    let whole: Value = serde_json::from_str(&text(&sessions)).unwrap();
    assert_eq!(scene.exported().await, whole);
    let again = scene.import(&sessions).await;
    assert!(
        again.text.contains("3 kept as the store has them") && !again.is_fruitless,
        "{again:?}"
    );
    assert_eq!(scene.exported().await, whole);
    let file = scene.directory.path().join("out.json");
    export::run(&scene.target, &scene.owner, &file)
        .await
        .unwrap();
    let written: Value = serde_json::from_slice(&std::fs::read(file).unwrap()).unwrap();
    assert_eq!(written, whole);
}

#[tokio::test]
async fn of_two_sessions_under_one_parent_the_one_used_later_stays() {
    let (scene, now) = (Scene::new(), unix_now_ms());
    scene.import(&[("p", "first", now - 2 * HOUR_MS)]).await;
    scene.import(&[("p", "older", now - 3 * HOUR_MS)]).await;
    assert_eq!(scene.exported().await["p"]["claudeSessionId"], "first");
    let newer = scene.import(&[("p", "newer", now - HOUR_MS)]).await;
    assert!(newer.text.contains("1 replaced"), "{newer:?}");
    assert_eq!(scene.exported().await["p"]["claudeSessionId"], "newer");
    let older = text(&[("p", "older", now - 3 * HOUR_MS)]);
    scene.import_as(&older, OnKnown::Overwrite).await;
    let exported = scene.exported().await;
    assert_eq!(exported["p"]["claudeSessionId"], "older");
    assert_eq!(exported["p"]["updatedAt"], rfc3339(now - 3 * HOUR_MS));
}

#[tokio::test]
async fn a_session_that_was_ended_later_does_not_come_back() {
    let (scene, now) = (Scene::new(), unix_now_ms());
    scene.import(&[("p", "s", now - HOUR_MS)]).await;
    let place = scene.listed().await["sessions"][0]["place"]
        .as_str()
        .unwrap()
        .to_owned();
    let ended = show::end(&scene.target, &place).await.unwrap();
    assert!(ended.text.ends_with("ended\n"), "{ended:?}");
    let outcome = scene.import(&[("p", "s", now - HOUR_MS)]).await;
    assert!(outcome.text.contains("1 kept"), "{outcome:?}");
    assert_eq!(scene.exported().await, json!({}));
    scene
        .import_as(&text(&[("p", "s", now - HOUR_MS)]), OnKnown::Overwrite)
        .await;
    assert_eq!(parents(&scene.exported().await), ["p"]);
}

#[tokio::test]
async fn what_is_imported_keeps_what_is_left_of_its_time() {
    let (scene, now) = (Scene::new(), unix_now_ms());
    scene.import(&[("p", "s", now - 23 * HOUR_MS)]).await;
    let ttl = &scene.listed().await["sessions"][0]["ttl_seconds"];
    let ttl = ttl.as_u64().unwrap();
    assert!((3_000..=3_600).contains(&ttl), "{ttl}");
}

#[tokio::test]
async fn at_the_cap_those_used_last_stay_whatever_their_place_in_the_file() {
    let (scene, now) = (Scene::new(), unix_now_ms());
    let at = |hours: u64| now - hours * HOUR_MS;
    let sessions = [
        ("c", "s", at(2)),
        ("a", "s", at(9)),
        ("d", "s", at(1)),
        ("b", "s", at(5)),
    ];
    scene.import(&sessions).await;
    assert_eq!(parents(&scene.exported().await), ["b", "c", "d"]);
    let too_old = scene.import(&[("e", "s", at(7))]).await;
    assert!(
        too_old.is_fruitless && too_old.remarks[0].contains("there is no room"),
        "{too_old:?}"
    );
    scene.import(&[("f", "s", at(3))]).await;
    assert_eq!(parents(&scene.exported().await), ["c", "d", "f"]);
}

#[tokio::test]
async fn bad_entries_are_named_harmlessly_and_cost_no_other() {
    let (scene, now) = (Scene::new(), unix_now_ms());
    let good = text(&[("good", "s", now)]);
    let good = good.trim_matches(['{', '}']);
    let mixed = format!(
        r#"{{"\u001b[2J": null, {good}}}, "old": {{"claudeSessionId": "s", "updatedAt": "2020-01-01"}}}}"#
    );
    let outcome = scene.import_as(&mixed, OnKnown::KeepNewer).await;
    assert!(
        !outcome.is_fruitless && outcome.text.contains("2 skipped, of which 1 expired"),
        "{outcome:?}"
    );
    assert_eq!(outcome.remarks.len(), 2);
    assert_eq!(
        outcome.remarks[0],
        "skipped \"\\u{1b}[2J\": the key holds control characters"
    );
    assert!(
        scene
            .import_as(r#"{"a": 1}"#, OnKnown::KeepNewer)
            .await
            .is_fruitless
    );
    assert!(!scene.import_as("{}", OnKnown::KeepNewer).await.is_fruitless);
    let file = scene.file("[]");
    let refused = import::run(&scene.target, &scene.owner, &file, OnKnown::KeepNewer).await;
    assert!(
        matches!(refused, Err(SessionsError::Read { .. })),
        "{refused:?}"
    );
    assert_eq!(parents(&scene.exported().await), ["good"]);
}

#[tokio::test]
async fn a_run_that_ended_meanwhile_wins_over_an_import() {
    let (scene, now) = (Scene::new(), unix_now_ms());
    scene.import(&[("p", "s-1", now - HOUR_MS)]).await;
    let owner = scene.target.owner(&scene.owner).unwrap();
    let store = scene.target.open().await.unwrap();
    let records = AgentRecords::new(&store, &owner).unwrap();
    let entry = |session: &str| Entry {
        parent: "p".to_owned(),
        agent_session: session.to_owned(),
        updated_at_ms: now,
    };
    let seen = records.known("p").await.unwrap();
    let put = records.put(&entry("s-2"), seen, now).await.unwrap();
    assert_eq!(put, PutOutcome::Replaced);
    let late = records.put(&entry("s-3"), seen, now).await.unwrap();
    assert_eq!(late, PutOutcome::Overtaken);
    let late = records
        .put(&entry("s-4"), AgentSessionState::Nothing, now)
        .await
        .unwrap();
    assert_eq!(late, PutOutcome::Overtaken);
    assert_eq!(scene.exported().await["p"]["claudeSessionId"], "s-2");
    assert_eq!(
        records.known("other").await.unwrap(),
        AgentSessionState::Nothing
    );
}

#[tokio::test]
async fn owners_see_their_own() {
    let (scene, now) = (Scene::new(), unix_now_ms());
    scene.import(&[("p", "s", now)]).await;
    let other = OwnerArguments {
        server: Some("helper".to_owned()),
        principal: Some("ada@example.org".to_owned()),
    };
    let outcome = export::run(&scene.target, &other, "-".as_ref())
        .await
        .unwrap();
    assert_eq!(outcome.text, "{}\n");
    for (server, says) in [
        ("tools", "is of kind http"),
        ("absent", "no server of kind agent"),
    ] {
        let wrong = OwnerArguments {
            server: Some(server.to_owned()),
            principal: None,
        };
        let error = export::run(&scene.target, &wrong, "-".as_ref())
            .await
            .unwrap_err();
        assert!(error.to_string().contains(says), "{error}");
        assert_eq!(error.exit_code(), EXIT_BAD_SETTINGS);
    }
}

#[tokio::test]
async fn a_session_is_found_by_its_place_and_by_the_beginning_of_its_digest() {
    let (scene, now) = (Scene::new(), unix_now_ms());
    scene.import(&[("p", "s-secret", now)]).await;
    let listed = scene.listed().await;
    let session = &listed["sessions"][0];
    assert_eq!(session["kind"], "agent");
    let digest = session["session"].as_str().unwrap();
    for named in [digest, &digest[..4], session["place"].as_str().unwrap()] {
        let shown = show::show(&scene.target, named, false, false)
            .await
            .unwrap()
            .text;
        assert!(shown.contains("label parent: p\n"), "{shown}");
        assert!(shown.contains("upstream session s-secret"), "{shown}");
    }
    for (named, code) in [
        ("0", EXIT_BAD_SETTINGS),
        ("xyzw", EXIT_BAD_SETTINGS),
        ("helper:x:y", EXIT_FAILURE),
    ] {
        let error = show::show(&scene.target, named, false, false)
            .await
            .unwrap_err();
        assert_eq!(error.exit_code(), code, "{named}: {error}");
    }
}
