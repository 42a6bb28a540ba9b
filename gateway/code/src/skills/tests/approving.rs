//! What becomes of a skill after it was made.

use super::*;

fn approval(skill: &Skill) -> &str {
    skill.approval_id.as_deref().unwrap()
}

#[test]
fn what_is_not_approved_is_not_mounted() {
    let fixture = Fixture::new();
    let (ada, server) = (viewer("ada", &[]), &fixture.server);
    let pending = fixture.create(new_skill("report", "x = 1\n"), true);
    assert_eq!(pending.status, SkillStatus::Pending);
    assert_eq!(fixture.versions(&ada), [0_u32; 0]);
    let rejected = fixture.create(new_skill("other", "x = 1\n"), true);
    let rejected = fixture
        .skills
        .reject(server, approval(&rejected), "eve", "too long")
        .unwrap();
    assert_eq!(rejected.status, SkillStatus::Rejected);
    assert_eq!(rejected.rejection_reason.as_deref(), Some("too long"));
    assert_eq!(fixture.versions(&ada), [0_u32; 0]);
    let approved = fixture
        .skills
        .approve(server, approval(&pending), "eve")
        .unwrap();
    assert_eq!(approved.decided_by.as_deref(), Some("eve"));
    assert_eq!(fixture.versions(&ada), [1]);
}

#[test]
fn a_decision_is_made_once() {
    let fixture = Fixture::new();
    let (skills, server) = (&fixture.skills, &fixture.server);
    let skill = fixture.create(new_skill("report", "x = 1\n"), true);
    let none = skills.approve(server, &skill.id, "eve");
    assert!(
        matches!(none, Err(ChangeError::NoSkill)),
        "a skill is no approval"
    );
    let none = skills.revoke(server, approval(&skill), "eve");
    assert!(
        matches!(none, Err(ChangeError::NoSkill)),
        "an approval is no skill"
    );
    let early = skills.revoke(server, &skill.id, "eve");
    assert!(matches!(
        early,
        Err(ChangeError::Status(SkillStatus::Pending))
    ));
    skills.approve(server, approval(&skill), "eve").unwrap();
    let again = skills.approve(server, approval(&skill), "eve");
    assert!(matches!(
        again,
        Err(ChangeError::Status(SkillStatus::Approved))
    ));
    let late = skills.reject(server, approval(&skill), "eve", "");
    assert!(matches!(
        late,
        Err(ChangeError::Status(SkillStatus::Approved))
    ));
    skills.revoke(server, &skill.id, "eve").unwrap();
    let again = skills.revoke(server, &skill.id, "eve");
    assert!(matches!(
        again,
        Err(ChangeError::Status(SkillStatus::Revoked))
    ));
    let back = skills.approve(server, approval(&skill), "eve");
    assert!(matches!(
        back,
        Err(ChangeError::Status(SkillStatus::Revoked))
    ));
}

#[test]
fn a_newer_approved_version_takes_over_and_its_revocation_gives_back() {
    let fixture = Fixture::new();
    let (ada, server) = (viewer("ada", &[]), &fixture.server);
    let first = fixture.create(new_skill("report", "x = 1\n"), false);
    let second = fixture.create(new_skill("report", "x = 2\n"), true);
    assert_eq!(fixture.versions(&ada), [1], "the second waits");
    fixture
        .skills
        .approve(server, approval(&second), "eve")
        .unwrap();
    assert_eq!(fixture.versions(&ada), [2]);
    fixture.skills.revoke(server, &second.id, "eve").unwrap();
    assert_eq!(
        fixture.versions(&ada),
        [1],
        "the one before is approved still"
    );
    let third = fixture.create(new_skill("report", "x = 3\n"), false);
    fixture.skills.revoke(server, &first.id, "eve").unwrap();
    assert_eq!(fixture.versions(&ada), [3]);
    fixture.skills.revoke(server, &third.id, "eve").unwrap();
    assert_eq!(
        fixture.versions(&ada),
        [0_u32; 0],
        "what was revoked does not come back"
    );
    let fourth = fixture.create(new_skill("report", "x = 4\n"), false);
    assert_eq!(fourth.version, 4);
}

#[test]
fn an_approval_expires() {
    let fixture = Fixture::new();
    let skill = fixture.create(new_skill("report", "x = 1\n"), true);
    let until_ms = skill.approval_expires_at_ms.unwrap();
    assert_eq!(until_ms - skill.created_at_ms, 30 * 24 * 60 * 60 * 1_000);
    assert!(!skill.is_expired(until_ms - 1));
    assert!(skill.is_expired(until_ms));
    // The same on the volume: a record whose time is over.
    let path = fixture.base.join(".skills/sandbox/.index.1.json");
    let text = std::fs::read_to_string(&path).unwrap();
    std::fs::write(&path, text.replace(&until_ms.to_string(), "1")).unwrap();
    let other = skills_at(&fixture.base);
    let late = other.approve(&fixture.server, approval(&skill), "eve");
    assert!(matches!(late, Err(ChangeError::Expired)), "{late:?}");
}

#[test]
fn a_revocation_is_seen_by_every_process_at_its_next_look() {
    let fixture = Fixture::new();
    let ada = viewer("ada", &[]);
    let skill = fixture.create(new_skill("report", "x = 1\n"), false);
    let others: Vec<Skills> = (0..3).map(|_| skills_at(&fixture.base)).collect();
    let digests = || -> Vec<(usize, String)> {
        let look = |skills: &Skills| {
            let set = skills.visible(&fixture.server, &ada).unwrap();
            (set.skills().len(), set.digest().to_owned())
        };
        others.iter().map(look).collect()
    };
    let before = digests();
    assert!(before.iter().all(|(count, _)| *count == 1));
    others[0].revoke(&fixture.server, &skill.id, "eve").unwrap();
    let after = digests();
    assert!(
        after
            .iter()
            .all(|(count, digest)| *count == 0 && *digest != before[0].1)
    );
}
