//! Lists: newest first, page by page, filtered.

use super::super::list::ENDED_BYTES_MAX;
use super::*;

#[test]
fn runs_are_listed_newest_first_over_days_and_pages() {
    let fixture = Fixture::new();
    let now_ms = mooring_store::unix_now_ms();
    let day_ms = 24 * 60 * 60 * 1_000;
    let mut ids = Vec::new();
    for (days_ago, user) in [(2, "ada"), (1, "bob"), (1, "ada"), (0, "ada"), (0, "bob")] {
        let number = u64::try_from(ids.len()).unwrap();
        let id = RunId::at(now_ms - days_ago * day_ms + number);
        let recording = fixture
            .records
            .begin(&fixture.server, new_run_with(user, id.clone()));
        recording.finish(finished(""));
        ids.push(id);
    }
    ids.reverse();
    let listed = |filter: RunFilter| -> Vec<String> {
        fixture
            .list(&filter)
            .into_iter()
            .map(|run| run.begun.id)
            .collect()
    };
    let texts = |ids: &[RunId]| -> Vec<String> { ids.iter().map(ToString::to_string).collect() };
    assert_eq!(listed(all()), texts(&ids));
    assert_eq!(listed(RunFilter { limit: 2, ..all() }), texts(&ids[..2]));
    let before = Some(ids[1].clone());
    assert_eq!(listed(RunFilter { before, ..all() }), texts(&ids[2..]));
    let user = Some("bob".to_owned());
    assert_eq!(
        listed(RunFilter { user, ..all() }),
        texts(&[ids[0].clone(), ids[3].clone()])
    );
    let status = |status| RunFilter {
        status: Some(status),
        ..all()
    };
    assert_eq!(listed(status(RunStatus::Completed)).len(), 5);
    assert_eq!(listed(status(RunStatus::Running)).len(), 0);
    let _running = fixture.begin("ada");
    assert_eq!(listed(status(RunStatus::Running)).len(), 1);
}

#[test]
fn a_record_that_is_too_large_keeps_no_other_from_being_listed() {
    let fixture = Fixture::new();
    let ids = ["ada", "bob"].map(|user| {
        let recording = fixture.begin(user);
        let id = recording.run_id().to_owned();
        recording.finish(finished(""));
        id
    });
    let large = RunId::parse(&ids[0]).unwrap();
    let end = format!(".runs/sandbox/{}/{large}.end", large.day());
    let end = std::fs::File::options()
        .write(true)
        .open(fixture.base.join(end))
        .unwrap();
    end.set_len(u64::try_from(ENDED_BYTES_MAX).unwrap() + 1)
        .unwrap();
    let listed = fixture.list(&all());
    assert_eq!(listed.len(), 1);
    assert_eq!(listed[0].begun.id, ids[1]);
    let read = fixture.records.run(&fixture.server, &large);
    assert!(matches!(read, Err(RecordsError::Unreadable)), "{read:?}");
}

#[test]
fn a_server_without_runs_has_none() {
    let fixture = Fixture::new();
    assert_eq!(fixture.list(&all()), []);
}
