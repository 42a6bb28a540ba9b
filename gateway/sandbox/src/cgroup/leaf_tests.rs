//! Names, and whose they are.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test says what it expects by failing"
)]

use super::*;

#[test]
fn a_name_is_its_owners_and_nobody_elses() {
    let own = Owner::own().expect("this process can be looked up");
    let (first, second) = (next_name().expect("a name"), next_name().expect("a name"));
    assert_ne!(first, second);
    assert_eq!(Owner::parse(&first), Some(own));
    assert!(!own.is_gone());
    assert!(
        Owner {
            started: own.started + 1,
            ..own
        }
        .is_gone(),
        "a later process of the same number is another"
    );
    for other in [
        "mooring-1-2-3",
        "mooring-1-2-3-4-5",
        "mooring-a-2-3-4",
        "user-1-2-3-4",
        "",
    ] {
        assert_eq!(Owner::parse(other), None, "{other}");
    }
}

#[test]
fn the_sweep_removes_only_what_belongs_to_the_dead() {
    let base = tempfile::tempdir().expect("a directory");
    let own = Owner::own().expect("this process can be looked up");
    let name = |namespace, pid, started| format!("mooring-{namespace}-{pid}-{started}-0");
    let of_the_dead = name(own.namespace, own.pid, own.started + 1);
    let kept = [
        name(own.namespace, own.pid, own.started),
        name(own.namespace + 1, own.pid, own.started + 1),
        "somebody-elses".to_owned(),
    ];
    for name in kept.iter().chain([&of_the_dead]) {
        fs::create_dir(base.path().join(name)).expect("a directory");
    }
    sweep(&[base.path()]);
    assert!(!base.path().join(of_the_dead).exists());
    for name in kept {
        assert!(base.path().join(&name).exists(), "{name}");
    }
}
