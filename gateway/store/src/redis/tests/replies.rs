//! Replies of the commands over many sessions and of turns, as the server sends them in both protocols.

use mooring_session::names::ServerName;
use mooring_session::record::SessionState;
use mooring_session::workers::Drain;
use redis::Value;

use super::super::{events, fleet, rate, sessions, turns};
use super::{flat, text, tools};
use crate::WorkerEvent;
use crate::query::{Order, SessionQuery};
use crate::test_support::requests as make;

fn list(values: Vec<Value>) -> Value {
    Value::Array(values)
}

/// The same fields as a map and flat.
fn both(fields: Vec<(Value, Value)>) -> [Value; 2] {
    [Value::Map(fields.clone()), flat(fields)]
}

fn record_fields(id: &str) -> Vec<(Value, Value)> {
    vec![
        (text("key"), text(&format!("mcpgw:session_affinity:{id}"))),
        (text("id"), text(id)),
        (text("gen"), Value::Int(7)),
        (text("principal"), text("alice")),
        (text("state"), text("expired")),
        (text("created_at"), Value::Int(1)),
        (text("last_used_at"), Value::Int(2)),
        (text("expires_at"), Value::Int(3)),
        (text("ttl_ms"), Value::Int(4)),
        (text("content_hash"), Value::Nil),
        (text("labels"), Value::Array(Vec::new())),
        (text("bindings"), Value::Array(Vec::new())),
    ]
}

fn foreign_fields() -> Vec<(Value, Value)> {
    vec![(text("key"), text("mcpgw:code:x"))]
}

#[test]
fn a_page_passes_over_sessions_of_others() {
    let page = vec![
        (text("complete"), Value::Int(0)),
        (text("cursor"), text("1700000000000-3")),
        (
            text("sessions"),
            list(vec![flat(foreign_fields()), flat(record_fields("s"))]),
        ),
    ];
    for reply in both(page) {
        let page = sessions::page(make::PREFIX, reply).unwrap();
        assert!(!page.complete && page.cursor.is_some());
        let [(key, record)] = page.sessions.as_slice() else {
            unreachable!("one session is this gateway's");
        };
        assert_eq!(*key, make::key("s"));
        assert_eq!(
            (record.generation, record.state),
            (7, SessionState::Expired)
        );
    }
    let end = vec![
        (text("complete"), Value::Int(1)),
        (text("cursor"), text("0")),
        (text("sessions"), list(Vec::new())),
    ];
    for reply in both(end) {
        let page = sessions::page(make::PREFIX, reply).unwrap();
        assert!(page.complete && page.cursor.is_none() && page.sessions.is_empty());
    }
    assert!(sessions::page(make::PREFIX, Value::Map(foreign_fields())).is_err());
}

#[test]
fn a_query_is_a_command_that_names_what_it_asks_for() {
    let all = SessionQuery::default();
    let words = |prefix: &str, query: &SessionQuery| {
        let packed = sessions::list(prefix, query).get_packed_command();
        String::from_utf8(packed).unwrap()
    };
    let command = words("mcpgw:", &all);
    assert!(command.contains("\r\nmcpgw:session_affinity:*\r\n"));
    assert!(command.contains("newest") && !command.contains("CURSOR"));
    let some = SessionQuery {
        principal: Some(make::principal("alice")),
        owner: Some(make::worker("w:1")),
        state: Some(SessionState::Ended),
        order: Order::Oldest,
        cursor: crate::Cursor::of("17-3"),
        count: 5_000,
        ..all
    };
    let command = words("a*b:", &some);
    for word in [
        "a\\*b:session_affinity:*",
        "ended",
        "oldest",
        "17-3",
        "w:1",
        "1000",
    ] {
        assert!(
            command.contains(&format!("\r\n{word}\r\n")),
            "{word}: {command}"
        );
    }
}

#[test]
fn what_is_to_be_cleaned_is_named_by_keys() {
    let reply = vec![
        (text("complete"), Value::Int(1)),
        (
            text("keys"),
            list(vec![
                text("mcpgw:session_affinity:s"),
                text("mcpgw:code:x"),
                Value::BulkString(vec![0xff]),
            ]),
        ),
    ];
    for reply in both(reply) {
        let keys = sessions::reaped(make::PREFIX, reply).unwrap();
        assert_eq!(keys, [make::key("s")]);
    }
}

#[test]
fn workers_are_listed_with_what_they_drive_where_that_is_known() {
    let worker = |bindings: Option<i64>| {
        let mut fields = vec![
            (text("worker"), text("w:1")),
            (text("address"), text("127.0.0.1:9")),
            (text("alive"), Value::Int(1)),
            (text("draining"), Value::Int(1)),
            (text("last_beat_at"), Value::Int(5)),
        ];
        fields.extend(bindings.map(|count| (text("bindings"), Value::Int(count))));
        fields
    };
    for (bindings, expected) in [(None, None), (Some(3), Some(3))] {
        for reply in both(worker(bindings)) {
            let workers = fleet::workers(list(vec![reply])).unwrap();
            let [view] = workers.as_slice() else {
                unreachable!("one worker");
            };
            assert_eq!((view.alive, view.drain), (true, Drain::Draining));
            assert_eq!(view.bindings, expected);
        }
    }
}

#[test]
fn news_names_sessions_and_passes_over_what_is_not_known() {
    let item = |event: &str, key: &str| {
        flat(vec![
            (text("event"), text(event)),
            (text("key"), text(key)),
            (text("server"), text("tools")),
            (text("ticket"), text("t1")),
            (text("turn"), Value::Int(9)),
        ])
    };
    let own = "mcpgw:session_affinity:s";
    let reply = list(vec![
        item("turn", own),
        item("withdrawn", own),
        item("settled", own),
        item("later", own),
        item("turn", "mcpgw:code:x"),
    ]);
    let server = tools();
    let turn = WorkerEvent::Turn {
        key: make::key("s"),
        server: server.clone(),
        ticket: make::token("t1"),
        turn: 9,
    };
    let withdrawn = WorkerEvent::Withdrawn {
        key: make::key("s"),
        server: server.clone(),
        ticket: make::token("t1"),
    };
    let settled = WorkerEvent::Settled {
        key: make::key("s"),
        server,
    };
    assert_eq!(
        events::parse_events(make::PREFIX, reply),
        Ok(vec![turn, withdrawn, settled])
    );
    assert_eq!(
        events::parse_events(make::PREFIX, Value::Nil),
        Ok(Vec::new())
    );
    assert_eq!(
        events::parse_events(make::PREFIX, list(Vec::new())),
        Ok(Vec::new())
    );
    assert!(events::parse_events(make::PREFIX, Value::Int(1)).is_err());
}

#[test]
fn a_turn_comes_with_the_way_to_go() {
    let server: ServerName = tools();
    for (turn, expected) in [(Value::Int(8), Some(8)), (Value::Nil, None)] {
        let unbound = vec![(text("state"), text("unbound")), (text("turn"), turn)];
        for reply in both(unbound) {
            let entered = turns::entered(reply, &server).unwrap();
            assert_eq!((entered.turn, entered.routed.binding), (expected, None));
        }
    }
}

#[test]
fn a_rate_says_whether_and_when() {
    let reply = vec![
        (text("allowed"), Value::Int(0)),
        (text("remaining"), Value::Int(2)),
        (text("retry_after_ms"), Value::Int(30)),
    ];
    for reply in both(reply) {
        let rated = rate::rated(reply).unwrap();
        assert!(!rated.allowed);
        assert_eq!((rated.remaining, rated.retry_after.get()), (2, 30));
    }
}
