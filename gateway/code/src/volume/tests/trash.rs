//! The trash: emptied by several at once, never twice, never more than is asked.

use super::super::TrashOutcome;
use super::processes::other;
use super::*;

#[test]
fn two_processes_empty_one_trash() {
    let fixture = Fixture::new();
    let trash = fixture.base.join(".trash");
    for thing in 0..60 {
        let deep = trash.join(format!("thing.{thing}")).join("a/b/c");
        std::fs::create_dir_all(&deep).unwrap();
        for file in 0..10 {
            std::fs::write(deep.join(file.to_string()), "x").unwrap();
        }
    }
    let mut others = [(); 2].map(|()| other("empties", &fixture.base));
    for other in &mut others {
        assert_eq!(other.hear(), "ready");
    }
    for other in &mut others {
        other.tell("go");
    }
    let removed = others.map(|mut other| other.hear().parse::<usize>().unwrap());
    assert_eq!(removed.iter().sum::<usize>(), 60, "{removed:?}");
    assert_eq!(fixture.in_trash(), [""; 0]);
}

#[test]
fn no_more_is_deleted_than_asked_and_trees_lie_for_a_while() {
    let fixture = Fixture::new();
    let trash = fixture.base.join(".trash");
    for name in ["a.1", "b.2", "c.3", "tools-abc"] {
        std::fs::create_dir(trash.join(name)).unwrap();
    }
    let emptied = |removed, left| TrashOutcome { removed, left };
    assert_eq!(fixture.volume.empty_trash(2).unwrap(), emptied(2, 2));
    assert_eq!(fixture.volume.empty_trash(2).unwrap(), emptied(1, 1));
    assert_eq!(fixture.in_trash(), ["tools-abc"]);
    let base = rustix::fs::open(
        &fixture.base,
        rustix::fs::OFlags::RDONLY,
        rustix::fs::Mode::empty(),
    );
    let path = ".trash/tools-abc";
    super::super::directory::set_modified(std::os::fd::AsFd::as_fd(&base.unwrap()), path, 1)
        .unwrap();
    assert_eq!(fixture.volume.empty_trash(2).unwrap(), emptied(1, 0));
}

#[test]
fn one_generation_may_go_to_the_trash_twice() {
    let fixture = Fixture::new();
    let alice = place_of("alice");
    for _ in 0..3 {
        fixture.open(&alice, recorded(5, 1_000));
        fixture.volume.retire(&alice, 5).unwrap();
    }
    let name = format!("{}.5", alice.id);
    assert_eq!(
        fixture.in_trash(),
        [name.clone(), format!("{name}.1"), format!("{name}.2")]
    );
}
