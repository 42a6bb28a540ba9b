//! Making skills: what is refused, and what comes of it.

use super::*;

#[test]
fn a_skill_is_there_at_once_where_nobody_has_to_approve() {
    let fixture = Fixture::new();
    let skill = fixture.create(new_skill("report", "x = 1\n"), false);
    assert_eq!((skill.version, skill.status), (1, SkillStatus::Approved));
    assert_eq!(skill.approval_id, None);
    let mounted = fixture.mounted(&viewer("bob", &[]));
    assert_eq!(mounted, [("report".to_owned(), 1, "x = 1\n".to_owned())]);
    let file = fixture.base.join(".skills/sandbox/report/1.py");
    assert_eq!(std::fs::read_to_string(file).unwrap(), "x = 1\n");
    let again = fixture.create(new_skill("report", "x = 2\n"), false);
    assert_eq!(again.version, 2);
    assert_eq!(fixture.versions(&viewer("bob", &[])), [2]);
    assert_eq!(
        fixture.skills.source(&fixture.server, &skill).unwrap(),
        "x = 1\n"
    );
}

#[test]
fn what_cannot_be_a_skill_is_refused_and_nothing_is_stored() {
    let fixture = Fixture::new();
    let refused = |new: NewSkill| create(&fixture.skills, new, false).unwrap_err();
    assert!(matches!(
        refused(new_skill("../up", "x = 1")),
        CreateError::Name
    ));
    assert!(matches!(
        refused(new_skill("import", "x = 1")),
        CreateError::Keyword
    ));
    assert!(matches!(refused(new_skill("a", "")), CreateError::Source));
    assert!(matches!(
        refused(new_skill("a", "x\0")),
        CreateError::Source
    ));
    let long = "#".repeat(SOURCE_BYTES_MAX + 1);
    assert!(matches!(
        refused(new_skill("a", &long)),
        CreateError::Source
    ));
    let described = NewSkill {
        description: "x".repeat(DESCRIPTION_CHARS_MAX + 1),
        ..new_skill("a", "x = 1")
    };
    assert!(matches!(refused(described), CreateError::Description));
    let blocked = refused(new_skill("a", "import os\nos.system('ls')\n"));
    let CreateError::Blocked(found) = blocked else {
        panic!("{blocked}");
    };
    assert_eq!((&*found.pattern, found.line), ("os.system", 2));
    assert!(fixture.skills.all(&fixture.server).unwrap().is_empty());
    create(
        &fixture.skills,
        new_skill("a", &"#".repeat(SOURCE_BYTES_MAX)),
        false,
    )
    .unwrap();
}

#[test]
fn a_server_has_a_bounded_amount_of_skills() {
    let fixture = Fixture::new();
    let large = "#".repeat(SOURCE_BYTES_MAX);
    // Looking through 64 MiB is not what this is about.
    let no_patterns = Patterns::new(Some(&[]), Some(&[])).unwrap();
    let made: Vec<Skill> = (0..64)
        .map(|_| {
            let new = new_skill("large", &large);
            fixture
                .skills
                .create(&fixture.server, new, false, &no_patterns)
                .unwrap()
        })
        .collect();
    let first = &made[0];
    let full = create(&fixture.skills, new_skill("small", "x = 1"), false);
    assert!(matches!(full, Err(CreateError::Full)), "{full:?}");
    fixture
        .skills
        .revoke(&fixture.server, &first.id, "ada")
        .unwrap();
    fixture.create(new_skill("small", "x = 1"), false);
}

#[test]
fn a_source_that_was_changed_on_the_volume_is_not_mounted() {
    let fixture = Fixture::new();
    fixture.create(new_skill("report", "x = 1\n"), false);
    std::fs::write(fixture.base.join(".skills/sandbox/report/1.py"), "x = 2\n").unwrap();
    let set = fixture
        .skills
        .visible(&fixture.server, &viewer("ada", &[]))
        .unwrap();
    assert!(matches!(set.sources(), Err(SkillsError::Unreadable)));
}

#[test]
fn an_index_of_a_later_version_stops_everything() {
    let fixture = Fixture::new();
    fixture.create(new_skill("report", "x = 1\n"), false);
    let path = fixture.base.join(".skills/sandbox/.index.1.json");
    let text = std::fs::read_to_string(&path).unwrap();
    std::fs::write(&path, text.replacen("\"version\":1", "\"version\":2", 1)).unwrap();
    let other = skills_at(&fixture.base);
    let seen = other.visible(&fixture.server, &viewer("ada", &[]));
    assert!(matches!(seen, Err(SkillsError::Unreadable)));
    let made = create(&other, new_skill("other", "x = 1\n"), false);
    assert!(matches!(made, Err(CreateError::Skills(_))));
}
