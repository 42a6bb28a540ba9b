use std::fs;
use std::os::unix::fs::{PermissionsExt as _, symlink};

use proptest::prelude::*;

use super::super::{WriteError, read as read_file, text, write};
use super::*;

#[test]
fn the_file_is_written_as_that_project_writes_it_oldest_first() {
    let entries = [
        entry("young", "s-2", NOW_MS - 1),
        entry("old \"one\"", "s-1", NOW_MS - HOUR_MS),
    ];
    let expected = r#"{
  "old \"one\"": {
    "claudeSessionId": "s-1",
    "updatedAt": "2026-01-14T23:00:00.000Z"
  },
  "young": {
    "claudeSessionId": "s-2",
    "updatedAt": "2026-01-14T23:59:59.999Z"
  }
}
"#;
    assert_eq!(text(&entries), expected);
    assert_eq!(text(&[]), "{}\n");
}

#[test]
fn its_owner_alone_can_read_it_and_nothing_else_is_left_beside_it() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("sessions.json");
    fs::write(&path, "what was there").unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).unwrap();
    let entries = [entry("a", "s", NOW_MS)];
    write(&path, &entries).unwrap();
    assert_eq!(read_file(&path, NOW_MS, TTL).unwrap().entries, entries);
    assert_eq!(
        fs::metadata(&path).unwrap().permissions().mode() & 0o777,
        0o600
    );
    assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 1);
}

#[test]
fn whoever_has_the_old_file_open_keeps_it_whole() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("sessions.json");
    write(&path, &[entry("a", "old", NOW_MS)]).unwrap();
    let held = fs::File::open(&path).unwrap();
    write(&path, &[entry("a", "new", NOW_MS)]).unwrap();
    let old = super::super::read_from(held, NOW_MS, TTL).unwrap();
    assert_eq!(old.entries[0].agent_session, "old");
}

#[test]
fn a_link_stays_one_and_what_is_no_file_is_not_replaced() {
    let directory = tempfile::tempdir().unwrap();
    let (kept, link) = (
        directory.path().join("kept.json"),
        directory.path().join("link.json"),
    );
    fs::write(&kept, "{}").unwrap();
    symlink(&kept, &link).unwrap();
    write(&link, &[entry("a", "s", NOW_MS)]).unwrap();
    assert!(fs::symlink_metadata(&link).unwrap().is_symlink());
    assert!(
        fs::read_to_string(&kept)
            .unwrap()
            .contains("claudeSessionId")
    );
    let refused = write(directory.path(), &[]);
    assert!(
        matches!(refused, Err(WriteError::NotAFile { .. })),
        "{refused:?}"
    );
    let nowhere = write(&directory.path().join("absent/sessions.json"), &[]);
    assert!(
        matches!(nowhere, Err(WriteError::Write { .. })),
        "{nowhere:?}"
    );
}

proptest! {
    #[test]
    fn what_is_written_is_read(sessions in prop::collection::btree_map("[^\\p{Cc}]{1,40}", ("[!-,.-~][!-~]{0,60}", 0..24 * HOUR_MS), 0..20)) {
        let mut entries: Vec<Entry> = sessions
            .into_iter()
            .map(|(parent, (session, age))| entry(&parent, &session, NOW_MS - age))
            .collect();
        let reading = read(&text(&entries)).unwrap();
        prop_assert_eq!(&reading.skipped, &[]);
        entries.sort_by_key(|entry| entry.updated_at_ms);
        let mut read = reading.entries;
        read.sort_by(|one, other| (one.updated_at_ms, &one.parent).cmp(&(other.updated_at_ms, &other.parent)));
        entries.sort_by(|one, other| (one.updated_at_ms, &one.parent).cmp(&(other.updated_at_ms, &other.parent)));
        prop_assert_eq!(read, entries);
    }
}
