//! Processes that change skills at once, and that are killed at it.

use std::collections::BTreeSet;

use super::*;
use mooring_test_support::processes::{TestProcess, place, say};

/// How often a changing process is killed at a moment of chance.
const KILLS: usize = 12;
/// How many skills each of several processes makes.
const MADE: usize = 10;

#[test]
#[ignore = "started by other tests, as a process of its own"]
fn the_process_that_changes() {
    let skills = skills_at(&place());
    say("ready");
    loop {
        let skill = create(&skills, new_skill("report", "x = 1\n"), true).unwrap();
        say("made");
        skills
            .approve(&server(), &skill.approval_id.unwrap(), "eve")
            .unwrap();
        skills.revoke(&server(), &skill.id, "eve").unwrap();
    }
}

#[test]
#[ignore = "started by other tests, as a process of its own"]
fn the_process_that_makes() {
    let skills = skills_at(&place());
    for _ in 0..MADE {
        create(&skills, new_skill("report", "x = 1\n"), false).unwrap();
    }
    say("made");
}

#[test]
fn wherever_a_changing_process_is_killed_all_or_nothing_is_changed() {
    let fixture = Fixture::new();
    for round in 0..KILLS {
        let mut other = TestProcess::start(
            "skills::tests::killed::the_process_that_changes",
            &fixture.base,
        );
        assert_eq!(other.hear(), "ready");
        for _ in 0..round {
            assert_eq!(other.hear(), "made");
        }
        other.kill();
        let all = fixture.skills.all(&fixture.server).unwrap();
        let versions: Vec<u32> = all.iter().map(|skill| skill.version).collect();
        let expected: Vec<u32> = (1..).take(versions.len()).collect();
        assert_eq!(versions, expected, "each version once, and none left out");
        for skill in &all {
            assert_eq!(
                fixture.skills.source(&fixture.server, skill).unwrap(),
                "x = 1\n"
            );
        }
        // All but the last went all the way.
        let (_, earlier) = all
            .split_last()
            .map_or((None, &all[..0]), |(l, e)| (Some(l), e));
        let settled = earlier
            .iter()
            .filter(|skill| skill.status == SkillStatus::Revoked);
        assert!(settled.count() + KILLS >= earlier.len());
        // The lock is free, and the next change works.
        let skill = fixture.create(new_skill("report", "x = 1\n"), false);
        assert_eq!(fixture.versions(&viewer("bob", &[])).len(), 1);
        fixture
            .skills
            .revoke(&fixture.server, &skill.id, "eve")
            .unwrap();
    }
}

#[test]
fn processes_that_change_at_once_lose_no_change() {
    let fixture = Fixture::new();
    let mut others: Vec<TestProcess> = (0..3)
        .map(|_| {
            TestProcess::start(
                "skills::tests::killed::the_process_that_makes",
                &fixture.base,
            )
        })
        .collect();
    for other in &mut others {
        assert_eq!(other.hear(), "made");
    }
    let all = fixture.skills.all(&fixture.server).unwrap();
    let versions: BTreeSet<u32> = all.iter().map(|skill| skill.version).collect();
    assert_eq!((all.len(), versions.len()), (3 * MADE, 3 * MADE));
    let indexes = std::fs::read_dir(fixture.base.join(".skills/sandbox"))
        .unwrap()
        .filter(|entry| {
            let name = entry.as_ref().unwrap().file_name();
            name.to_str().unwrap().starts_with(".index.")
        });
    assert!(indexes.count() <= 2, "old indexes are removed");
}
