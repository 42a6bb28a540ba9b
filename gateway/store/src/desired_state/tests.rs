//! What is written is read back, within limits.
#![allow(clippy::unwrap_used, reason = "tests fail by panicking")]
use super::*;
use crate::test_support::requests as make;

const NOW: Timestamp = Timestamp::from_unix_ms(1_700_000_000_000);

fn note() -> OperatorNote {
    OperatorNote {
        by: "olga".into(),
        at_ms: 1_700_000_000_000,
        note: "disk".into(),
    }
}

fn part(instance: Option<&str>) -> ParkedPart {
    ParkedPart {
        server: make::server("tools"),
        instance: instance.map(make::instance),
    }
}

fn added(definition: Value) -> DesiredChange {
    let note = note();
    DesiredChange::PutServer(make::server("tools"), AddedServer { definition, note })
}

/// The fields after a write.
fn applied(fields: &DesiredFields, changes: &[DesiredChange]) -> DesiredFields {
    let mut after = fields.clone();
    let write = plan(fields, changes, NOW).unwrap().unwrap();
    write.apply(&mut after);
    after
}

#[test]
fn what_is_written_is_read_back() {
    let url = "http://10.0.0.1:9000/mcp";
    let changes = [
        DesiredChange::Park(part(None), note()),
        DesiredChange::Park(part(Some(url)), note()),
        DesiredChange::Drain(make::worker("host:4444:b1"), note()),
        added(serde_json::json!({"id": "tools", "url": url})),
    ];
    let fields = applied(&DesiredFields::new(), &changes);
    let state = DesiredState::of_fields(&fields);
    assert_eq!((state.items(), state.version), (4, 1_700_000_000_000_000));
    assert_eq!(state.parked.get(&part(Some(url))), Some(&note()));
    let server = state.servers.get(&make::server("tools")).unwrap();
    assert_eq!(server.definition.get("url"), Some(&url.into()));
    assert_eq!(server.note, note());
    let removals = [
        DesiredChange::Unpark(part(None)),
        DesiredChange::Unpark(part(Some(url))),
        DesiredChange::Undrain(make::worker("host:4444:b1")),
        DesiredChange::RemoveServer(make::server("tools")),
    ];
    let state = DesiredState::of_fields(&applied(&fields, &removals));
    assert_eq!((state.items(), state.version), (0, 1_700_000_000_000_001));
}

#[test]
fn a_parked_server_parks_its_instances_and_an_instance_no_other() {
    let (tools, one, two) = (
        make::server("tools"),
        make::instance("i1"),
        make::instance("i2"),
    );
    let parked = |changes: &[DesiredChange]| {
        DesiredState::of_fields(&applied(&DesiredFields::new(), changes))
    };
    let state = parked(&[DesiredChange::Park(part(Some("i1")), note())]);
    assert!(state.parks_instance(&tools, &one) && !state.parks_instance(&tools, &two));
    assert!(!state.parks_server(&tools));
    let state = parked(&[DesiredChange::Park(part(None), note())]);
    assert!(state.parks_instance(&tools, &two) && state.parks_server(&tools));
    assert!(!state.parks_instance(&make::server("other"), &one));
}

#[test]
fn a_gateway_drains_by_its_id_or_its_name() {
    let worker = make::worker("host:4444:b1");
    for (wanted, drains) in [
        ("host:4444:b1", true),
        ("host:4444", true),
        ("host:4444:b2", false),
        ("host", false),
    ] {
        let change = DesiredChange::Drain(make::worker(wanted), note());
        let state = DesiredState::of_fields(&applied(&DesiredFields::new(), &[change]));
        assert_eq!(state.draining_note(&worker).is_some(), drains, "{wanted}");
    }
}

#[test]
fn fields_of_a_later_release_are_kept_and_have_no_effect() {
    let mut fields = DesiredFields::from([
        ("paused:tools".to_owned(), "{}".to_owned()),
        ("parked:tools".to_owned(), "not json".to_owned()),
        ("odd".to_owned(), String::new()),
    ]);
    assert_eq!(DesiredState::of_fields(&fields).items(), 0);
    fields = applied(&fields, &[DesiredChange::Park(part(Some("i1")), note())]);
    assert!(fields.contains_key("paused:tools"));
    assert_eq!(DesiredState::of_fields(&fields).items(), 1);
}

#[test]
fn what_changes_nothing_writes_nothing() {
    let park = [DesiredChange::Park(part(None), note())];
    let fields = applied(&DesiredFields::new(), &park);
    assert!(plan(&fields, &park, NOW).unwrap().is_none());
    let unpark = [DesiredChange::Unpark(part(Some("i1")))];
    assert!(plan(&fields, &unpark, NOW).unwrap().is_none());
}

#[test]
fn every_limit_is_named_and_a_full_state_can_shrink() {
    let refused =
        |fields: &DesiredFields, change: DesiredChange| plan(fields, &[change], NOW).err().unwrap();
    let none = DesiredFields::new();
    let long = "x".repeat(DEFINITION_BYTES_MAX);
    let definition = refused(&none, added(long.into()));
    assert_eq!(
        definition,
        DesiredLimit::Definition(DEFINITION_BYTES_MAX + 2)
    );
    let wordy = OperatorNote {
        note: "x".repeat(NOTE_BYTES_MAX + 1).into(),
        ..note()
    };
    let noted = refused(&none, DesiredChange::Park(part(None), wordy));
    assert_eq!(noted, DesiredLimit::Note(NOTE_BYTES_MAX + 1));
    let full: DesiredFields = (0..DESIRED_ITEMS_MAX)
        .map(|at| (format!("draining:w{at}"), to_json(&note())))
        .collect();
    let one_more = refused(&full, DesiredChange::Park(part(None), note()));
    assert_eq!(one_more, DesiredLimit::Items(DESIRED_ITEMS_MAX + 1));
    let large = DesiredFields::from([("later:x".to_owned(), "x".repeat(DESIRED_BYTES_MAX))]);
    let bytes = refused(&large, DesiredChange::Park(part(None), note()));
    assert!(matches!(bytes, DesiredLimit::Bytes(_)), "{bytes}");
    let undrain = [DesiredChange::Undrain(make::worker("w0"))];
    assert!(plan(&full, &undrain, NOW).unwrap().is_some());
}
