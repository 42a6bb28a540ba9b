//! The file of API keys, and whom keys are from while it changes.
#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "a test fails by panicking"
)]

use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use http::{HeaderMap, HeaderValue};
use serde_json::{Value, json};
use tempfile::TempDir;

use super::authenticator::known_keys;
use super::*;
use crate::{ApiKeyError, IdentityError};

const NOW: u64 = 1_800_000_000;
const DAY: u64 = 86_400;

fn new(user: &str) -> NewApiKey {
    NewApiKey {
        user: user.to_owned(),
        teams: vec!["dev".to_owned(), "dev".to_owned()],
        roles: Vec::new(),
        scopes: vec!["read".to_owned()],
        note: Some("build server".to_owned()),
        lifetime: Duration::from_secs(DAY),
    }
}

/// A directory, and a file in it that is not there yet.
fn home() -> (TempDir, PathBuf) {
    let home = TempDir::new().unwrap();
    let path = home.path().join("keys.json");
    (home, path)
}

async fn reader(path: &Path) -> ApiKeyAuthenticator {
    let keys = ApiKeyAuthenticator::new(path.to_owned());
    keys.read_if_changed().await;
    keys
}

fn user_at(keys: &ApiKeyAuthenticator, key: &str, now: u64) -> Result<String, IdentityError> {
    let identified = keys.identify(key, now);
    identified.map(|identity| identity.principal.as_str().to_owned())
}

#[tokio::test]
async fn a_key_is_its_users_until_it_ends() {
    let (_home, path) = home();
    let key = ApiKeyFile::create(&path, &new("ada"), NOW).unwrap();
    let other = ApiKeyFile::create(&path, &new("ada"), NOW).unwrap();
    assert_eq!((key.len(), key.starts_with("mk_")), (59, true));
    let text = std::fs::read_to_string(&path).unwrap();
    let (_, secret) = key[3..].split_once('_').unwrap();
    assert!(!text.contains(secret), "{text}");
    let mode = std::fs::metadata(&path).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);

    let keys = reader(&path).await;
    let identity = keys.identify(&key, NOW).unwrap();
    assert_eq!(identity.principal.as_str(), "ada");
    assert_eq!(
        (&*identity.teams, &*identity.scopes),
        (&["dev".to_owned()][..], &["read".to_owned()][..])
    );
    assert!(keys.identify(&key, NOW + DAY - 1).is_ok());
    let expired = Err(ApiKeyError::Expired.into());
    assert_eq!(user_at(&keys, &key, NOW + DAY), expired);

    let id = &ApiKeyFile::read(&path).unwrap().keys()[0].id.clone();
    ApiKeyFile::revoke(&path, id, NOW + 1).unwrap();
    assert!(keys.identify(&key, NOW).is_ok(), "not read again yet");
    keys.read_if_changed().await;
    assert_eq!(user_at(&keys, &key, NOW), Err(ApiKeyError::Revoked.into()));
    assert_eq!(user_at(&keys, &other, NOW), Ok("ada".to_owned()));
    let again = ApiKeyFile::revoke(&path, id, NOW + 9).unwrap();
    assert_eq!(again.revoked_at, Some(NOW + 1));
    let missing = ApiKeyFile::revoke(&path, "000000000000", NOW).unwrap_err();
    assert!(matches!(missing, ApiKeyFileError::NoSuchKey(_)));
}

#[tokio::test]
async fn what_is_no_key_is_unknown() {
    let (_home, path) = home();
    let key = ApiKeyFile::create(&path, &new("ada"), NOW).unwrap();
    let keys = reader(&path).await;
    let (id, secret) = key[3..].split_once('_').unwrap();
    let other_secret = format!("mk_{id}_{}", secret.chars().rev().collect::<String>());
    let long = format!("{key}{}", "x".repeat(KEY_BYTES_MAX));
    for text in [
        "",
        "mk_",
        "mk__",
        id,
        secret,
        &key[3..],
        &key[..58],
        &format!("{key}="),
        &other_secret,
        &long,
        &format!("mk_{secret}_{id}"),
    ] {
        assert_eq!(
            user_at(&keys, text, NOW),
            Err(ApiKeyError::Unknown.into()),
            "{text}"
        );
    }
}

/// What cannot be read changes nothing; before the first reading, nobody is known.
#[tokio::test]
async fn a_file_that_cannot_be_read_changes_nothing() {
    let (_home, path) = home();
    let keys = reader(&path).await;
    assert_eq!(
        user_at(&keys, "mk_a_b", NOW),
        Err(IdentityError::KeysUnavailable)
    );
    assert_eq!(keys.state().keys, None);
    let key = ApiKeyFile::create(&path, &new("ada"), NOW).unwrap();
    keys.read_if_changed().await;
    assert!(keys.identify(&key, NOW).is_ok());
    assert!(keys.state().failure.is_none());

    let good = std::fs::read(&path).unwrap();
    let set_mode =
        |mode| std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).unwrap();
    std::fs::write(&path, "{").unwrap();
    keys.read_if_changed().await;
    assert!(keys.identify(&key, NOW).is_ok());
    assert!(keys.state().failure.is_some());
    std::fs::write(&path, &good).unwrap();
    set_mode(0o644);
    keys.read_if_changed().await;
    let failure = keys.state().failure.unwrap();
    assert!(failure.contains("mode 0644"), "{failure}");
    // Only its mode is repaired.
    set_mode(0o600);
    keys.read_if_changed().await;
    assert!(keys.state().failure.is_none());
    std::fs::remove_file(&path).unwrap();
    keys.read_if_changed().await;
    assert!(keys.identify(&key, NOW).is_ok());
    assert!(keys.state().failure.is_some());
}

#[test]
fn files_are_checked() {
    let stored = |change: fn(&mut Value)| {
        let mut key = json!({
            "id": "0123456789ab", "sha256": "ab".repeat(32), "user": "ada", "note": null,
            "created_at": 1, "expires_at": 2, "revoked_at": null,
        });
        change(&mut key);
        let file = json!({"version": 1, "keys": [key, {
            "id": "b", "sha256": "AB".repeat(32), "user": "bob", "created_at": 1, "expires_at": 2,
        }]});
        let file = ApiKeyFile::parse(file.to_string().as_bytes())?;
        known_keys(file.keys()).map(|keys| keys.len())
    };
    assert_eq!(stored(|_| {}).unwrap(), 2);
    let invalid: [fn(&mut Value); 6] = [
        |key| key["id"] = "b".into(),
        |key| key["sha256"] = "ab".into(),
        |key| key["sha256"] = "+a".repeat(32).into(),
        |key| key["user"] = "".into(),
        |key| key["teams"] = json!(["a\nb"]),
        |key| key["roles"] = json!(vec!["x".repeat(129)]),
    ];
    for change in invalid {
        let error = stored(change).unwrap_err().to_string();
        assert!(error.starts_with("the API key "), "{error}");
    }
    let unknown = stored(|key| key["not_before"] = 7.into()).unwrap_err();
    assert_eq!(unknown.to_string(), "the file of API keys is not valid");
    let later = ApiKeyFile::parse(br#"{"version": 2, "keys": []}"#).unwrap_err();
    assert!(later.to_string().contains("version 2"), "{later}");
}

#[test]
fn new_keys_are_checked() {
    let (_home, path) = home();
    let refused = |change: fn(&mut NewApiKey)| {
        let mut key = new("ada");
        change(&mut key);
        let error = ApiKeyFile::create(&path, &key, NOW).unwrap_err();
        assert!(matches!(error, ApiKeyFileError::New(_)), "{error}");
        assert!(!path.exists(), "nothing is written");
    };
    refused(|key| key.user = " ada".to_owned());
    refused(|key| key.user = "x".repeat(321));
    refused(|key| key.teams = vec!["a\tb".to_owned()]);
    refused(|key| key.scopes = (0..65).map(|number| number.to_string()).collect());
    refused(|key| key.note = Some("x".repeat(201)));
}

/// Every key is there that many writers have made at once, and keys that ended long ago are not.
#[test]
fn writers_wait_for_each_other() {
    let (_home, path) = home();
    let writers: Vec<_> = (0..8)
        .map(|_| {
            let path = path.clone();
            std::thread::spawn(move || ApiKeyFile::create(&path, &new("ada"), NOW).unwrap())
        })
        .collect();
    for writer in writers {
        writer.join().unwrap();
    }
    assert_eq!(ApiKeyFile::read(&path).unwrap().keys().len(), 8);
    ApiKeyFile::create(&path, &new("bob"), NOW + 91 * DAY).unwrap();
    let users: Vec<String> = (ApiKeyFile::read(&path).unwrap().keys().iter())
        .map(|key| key.user.clone())
        .collect();
    assert_eq!(users, ["bob"]);
}

#[test]
fn a_request_has_one_key_in_one_header() {
    let find = |pairs: &[(&'static str, &'static str)]| {
        let mut headers = HeaderMap::new();
        for (name, value) in pairs {
            headers.append(*name, HeaderValue::from_static(value));
        }
        key_of(&headers).map(str::to_owned)
    };
    let found = Ok("mk_a_b".to_owned());
    assert_eq!(find(&[("x-api-key", "mk_a_b")]), found);
    assert_eq!(find(&[("authorization", "Bearer mk_a_b")]), found);
    assert_eq!(find(&[]), Err(IdentityError::ApiKeyMissing));
    assert_eq!(
        find(&[("authorization", "Basic YTpi")]),
        Err(IdentityError::ApiKeyMissing)
    );
    for pairs in [
        [("x-api-key", "mk_a_b"), ("x-api-key", "mk_a_b")],
        [("x-api-key", "mk_a_b"), ("authorization", "Bearer mk_a_b")],
    ] {
        assert_eq!(find(&pairs), Err(IdentityError::SeveralCredentials));
    }
}
