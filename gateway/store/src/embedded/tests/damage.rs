//! A file that is no database, or not a whole one, is moved aside, and nothing else is.

use std::fs;
use std::path::PathBuf;

use super::File;
use crate::test_support::requests as make;
use crate::test_support::server::eventually;
use crate::transition::Get;

/// What was moved aside.
fn moved_aside(file: &File) -> Vec<PathBuf> {
    let directory = file.path.parent().unwrap();
    let names = file.names().into_iter();
    names
        .filter(|name| {
            name.contains(".corrupt-") && !name.ends_with("-wal") && !name.ends_with("-shm")
        })
        .map(|name| directory.join(name))
        .collect()
}

/// The bytes of a file with sessions in it, closed.
async fn written(file: &File) -> Vec<u8> {
    let store = file.open();
    for n in 0..200 {
        let session = format!("s{n}");
        store
            .run(&make::key(&session), &make::create(&session))
            .await
            .unwrap();
    }
    drop(store);
    closed(file).await;
    fs::read(&file.path).unwrap()
}

/// The thread of the last store over a file writes the log back, and takes it away.
async fn closed(file: &File) {
    let log = file.path.with_file_name("sessions.db-wal");
    eventually("the log is written back", async || !log.exists()).await;
}

#[tokio::test]
async fn what_is_no_whole_database_is_moved_aside_and_a_new_one_begun() {
    let whole = written(&File::new()).await;
    assert!(whole.len() > 16 * 4_096, "{}", whole.len());
    let mut torn = whole.clone();
    torn[8 * 4_096..12 * 4_096].fill(0xa5);
    let damaged = [
        ("text", b"this is no database".repeat(400)),
        ("zeros", vec![0; 8_192]),
        ("a few bytes", b"SQLite".to_vec()),
        ("the first page", whole[..4_096].to_vec()),
        ("half of it", whole[..whole.len() / 2].to_vec()),
        ("pages of something else", torn),
    ];
    for (what, bytes) in damaged {
        let file = File::new();
        fs::create_dir(file.path.parent().unwrap()).unwrap();
        fs::write(&file.path, &bytes).unwrap();
        let store = file.open();
        let key = make::key("new");
        store.run(&key, &make::create("new")).await.unwrap();
        let aside = moved_aside(&file);
        assert_eq!(aside.len(), 1, "{what}: {:?}", file.names());
        assert_eq!(fs::read(&aside[0]).unwrap(), bytes, "{what}");
        file.open().run(&key, &Get).await.unwrap();
        assert_eq!(moved_aside(&file).len(), 1, "{what}");
    }
}

#[tokio::test]
async fn an_empty_file_is_a_new_one() {
    let file = File::new();
    fs::create_dir(file.path.parent().unwrap()).unwrap();
    fs::write(&file.path, "").unwrap();
    file.open();
    assert_eq!(moved_aside(&file), Vec::<PathBuf>::new());
}

/// A log whose file is gone is that file's, and not the new one's.
#[tokio::test]
async fn what_a_lost_file_left_beside_it_is_not_taken_for_the_new_ones() {
    let file = File::new();
    let store = file.open();
    store
        .run(&make::key("s"), &make::create("s"))
        .await
        .unwrap();
    fs::remove_file(&file.path).unwrap();
    let other = file.open();
    let key = make::key("t");
    other.run(&key, &make::create("t")).await.unwrap();
    assert!(file.names().iter().any(|name| name.contains(".corrupt-")));
    // Whoever still had the lost one open goes over to the new one, and takes nothing of it away.
    store.run(&key, &Get).await.unwrap();
    drop(store);
    drop(other);
    file.open().run(&key, &Get).await.unwrap();
}

#[tokio::test]
async fn a_store_that_meets_the_damage_goes_over_to_the_new_file() {
    let file = File::new();
    let first = file.open();
    first
        .run(&make::key("s"), &make::create("s"))
        .await
        .unwrap();
    for part in ["", "-wal", "-shm"] {
        fs::remove_file(format!("{}{part}", file.path.display())).unwrap();
    }
    fs::write(&file.path, "no database").unwrap();
    let key = make::key("new");
    first.run(&key, &make::create("new")).await.unwrap();
    assert_eq!(moved_aside(&file).len(), 1);
    file.open().run(&key, &Get).await.unwrap();
}
