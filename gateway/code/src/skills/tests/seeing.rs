//! Who sees which skill.

use super::*;

fn of(scope: &str, name: &str, source: &str) -> NewSkill {
    NewSkill {
        scope: Scope::parse(scope).unwrap(),
        ..new_skill(name, source)
    }
}

#[test]
fn a_skill_is_mounted_for_those_of_its_scope_only() {
    let fixture = Fixture::new();
    fixture.create(of("server", "common", "x = 0\n"), false);
    fixture.create(of("team:red", "red", "x = 1\n"), false);
    fixture.create(of("user:ada", "mine", "x = 2\n"), false);
    let names = |principal: &str, teams: &[&str]| -> Vec<String> {
        let mounted = fixture.mounted(&viewer(principal, teams));
        mounted.into_iter().map(|(name, ..)| name).collect()
    };
    assert_eq!(names("ada", &["red"]), ["common", "mine", "red"]);
    assert_eq!(names("ada", &[]), ["common", "mine"]);
    assert_eq!(names("bob", &["red", "blue"]), ["common", "red"]);
    assert_eq!(names("bob", &["blue"]), ["common"]);
    assert_eq!(names("red", &["ada"]), ["common"]);
}

#[test]
fn a_version_that_one_does_not_see_does_not_hide_the_one_that_one_does() {
    let fixture = Fixture::new();
    fixture.create(of("server", "report", "x = 1\n"), false);
    fixture.create(of("user:ada", "report", "x = 2\n"), false);
    assert_eq!(fixture.versions(&viewer("ada", &[])), [2]);
    assert_eq!(fixture.versions(&viewer("bob", &[])), [1]);
}

#[test]
fn equal_sets_have_equal_digests_and_others_do_not() {
    let fixture = Fixture::new();
    let digest = |principal: &str| {
        let set = fixture
            .skills
            .visible(&fixture.server, &viewer(principal, &[]))
            .unwrap();
        set.digest().to_owned()
    };
    fixture.create(of("server", "report", "x = 1\n"), false);
    let before = digest("bob");
    assert_eq!(digest("ada"), before);
    fixture.create(of("user:ada", "mine", "x = 2\n"), false);
    assert_eq!(digest("bob"), before, "nothing changed for bob");
    assert_ne!(digest("ada"), before);
}

#[test]
fn servers_do_not_share_skills() {
    let fixture = Fixture::new();
    fixture.create(of("server", "report", "x = 1\n"), false);
    let other = ServerName::parse(b"other").unwrap();
    assert!(
        fixture
            .skills
            .visible(&other, &viewer("ada", &[]))
            .unwrap()
            .skills()
            .is_empty()
    );
    let never = ServerName::parse(b"../sandbox").unwrap();
    assert!(matches!(
        fixture.skills.all(&never),
        Err(SkillsError::Server(_))
    ));
}
