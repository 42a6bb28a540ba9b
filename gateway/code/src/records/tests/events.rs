//! Security events: stored, listed, filtered.

use strum::VariantNames;

use super::*;

pub(super) fn any() -> EventFilter {
    EventFilter {
        limit: 100,
        ..EventFilter::default()
    }
}

#[test]
fn events_are_listed_newest_first_by_user_kind_and_time() {
    let fixture = Fixture::new();
    let limited = SecurityEvent::new(EventKind::RateLimited, "20 runs a minute are allowed");
    let blocked = SecurityEvent::new(EventKind::PolicyBlock, "blocked by the pattern eval");
    for (user, event) in [("ada", &limited), ("bob", &limited), ("ada", &blocked)] {
        fixture
            .records
            .event(&fixture.server, &principal(user), event);
    }
    let list = |filter: EventFilter| -> Vec<(String, EventKind)> {
        let events = fixture.records.events(&fixture.server, &filter).unwrap();
        events
            .into_iter()
            .map(|event| (event.user_email, event.kind))
            .collect()
    };
    let every = list(any());
    assert_eq!(every.len(), 3);
    let ids: Vec<String> = {
        let events = fixture.records.events(&fixture.server, &any()).unwrap();
        events.into_iter().map(|event| event.id).collect()
    };
    assert!(ids.is_sorted_by(|newer, older| newer > older));
    let of_ada = EventFilter {
        user: Some("ada".to_owned()),
        ..any()
    };
    assert_eq!(list(of_ada.clone()).len(), 2);
    let kind = Some(EventKind::RateLimited);
    assert_eq!(
        list(EventFilter { kind, ..of_ada }),
        [("ada".to_owned(), EventKind::RateLimited)]
    );
    assert_eq!(list(EventFilter { limit: 1, ..any() }).len(), 1);
    let since = |since_ms| EventFilter {
        since_ms: Some(since_ms),
        ..any()
    };
    let now_ms = mooring_store::unix_now_ms();
    assert_eq!(list(since(now_ms + 60_000)), []);
    assert_eq!(list(since(now_ms - 60_000)).len(), 3);
}

#[test]
fn a_run_stores_a_bounded_number_of_events_and_counts_the_rest() {
    let fixture = Fixture::new();
    let recording = fixture.begin("ada");
    for number in 0..150 {
        let message = format!("file {number} was not kept");
        recording.event(SecurityEvent::new(EventKind::FileRefused, message));
    }
    let ended = recording.finish(finished("")).ended.unwrap();
    assert_eq!(
        (ended.security_events.len(), ended.security_events_total),
        (100, 150)
    );
    let stored = fixture.records.events(
        &fixture.server,
        &EventFilter {
            limit: 1_000,
            ..any()
        },
    );
    assert_eq!(stored.unwrap().len(), 100);
}

#[test]
fn words_are_read_as_they_are_written() {
    for word in EventKind::VARIANTS {
        let kind: EventKind = word.parse().unwrap();
        assert_eq!(kind.to_string(), *word);
        assert_eq!(serde_json::to_value(kind).unwrap(), json!(word));
    }
}
