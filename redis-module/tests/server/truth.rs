//! What the indexes say, held against what the keyspace holds: the one question of all tests of the indexes.

use std::collections::BTreeMap;
use std::time::Duration;

use mooring_tests::redis::Redis;
use mooring_tests::wait;

use super::resp::{Connection, Value};

/// How long a rebuild of a test's few sessions may take.
const WHOLE_WITHIN: Duration = Duration::from_secs(20);

/// The databases that tests use.
const DATABASES: usize = 4;

/// The sessions of one database: by key, the fields of the record.
pub(super) type Sessions = BTreeMap<String, Vec<Value>>;

/// The sessions by GET and by LIST, of the same moment: time alone changes a record when its worker dies or its lease ends.
fn held_and_listed(c: &mut Connection) -> anyhow::Result<(Sessions, Sessions)> {
    loop {
        let before = held(c)?;
        let listed = listed(c, "")?;
        if held(c)? == before {
            return Ok((before, listed));
        }
    }
}

/// Fails unless SESSION.LIST and the figures say exactly what KEYS and SESSION.GET do. Answers how many sessions there
/// are. Nothing may write meanwhile.
pub(super) async fn holds(redis: &Redis, what: &str) -> anyhow::Result<usize> {
    let mut c = Connection::open(redis)?;
    whole(&mut c).await?;
    let (mut states, mut bindings, mut all) = (BTreeMap::<String, i64>::new(), 0, 0);
    for database in 0..DATABASES {
        c.run(&format!("SELECT {database}"))?;
        let (held, listed) = held_and_listed(&mut c)?;
        let names = |sessions: &Sessions| sessions.keys().cloned().collect::<Vec<_>>();
        assert_eq!(names(&listed), names(&held), "{what}: keys of {database}");
        for (key, record) in &held {
            assert_eq!(&listed[key], record, "{what}: {key} in {database}");
            let state = field(record, "state").to_string();
            if state == "active"
                && let Value::Array(of_record) = field(record, "bindings")
            {
                bindings += i64::try_from(of_record.len())?;
            }
            *states.entry(state).or_default() += 1;
        }
        all += held.len();
    }
    let figures = c.run("SESSION.STATS")?;
    for state in ["active", "expired", "ended"] {
        let figure = figures.field(&format!("sessions_{state}")).integer();
        let count = states.get(state).copied().unwrap_or_default();
        assert_eq!(figure, count, "{what}: sessions_{state}");
    }
    let figure = figures.field("bindings_active").integer();
    assert_eq!(figure, bindings, "{what}: bindings_active");
    Ok(all)
}

/// Waits until every index is whole.
pub(super) async fn whole(c: &mut Connection) -> anyhow::Result<()> {
    wait::until_true("every index to be whole", WHOLE_WITHIN, async || {
        Ok(c.run("SESSION.STATS")?.field("index_ready").integer() == 1)
    })
    .await
}

/// What SESSION.LIST says, over all pages, with further words.
pub(super) fn listed(c: &mut Connection, words: &str) -> anyhow::Result<Sessions> {
    let mut sessions = Sessions::new();
    let mut cursor = "0".to_owned();
    loop {
        let page = c.run(&format!("SESSION.LIST COUNT 100 CURSOR {cursor}{words}"))?;
        assert_eq!(page.field("complete").integer(), 1);
        let Value::Array(of_page) = page.field("sessions") else {
            anyhow::bail!("sessions are an array: {page}");
        };
        for session in of_page {
            let Value::Array(flat) = session else {
                anyhow::bail!("a session is a map: {session}");
            };
            let known = sessions.insert(flat[1].to_string(), flat[2..].to_vec());
            assert_eq!(known, None, "no session comes twice");
        }
        cursor = page.field("cursor").to_string();
        if cursor == "0" {
            return Ok(sessions);
        }
    }
}

/// What stands under the prefix and is a record.
fn held(c: &mut Connection) -> anyhow::Result<Sessions> {
    let Value::Array(keys) = c.run("KEYS mcpgw:*")? else {
        anyhow::bail!("KEYS is an array");
    };
    let mut sessions = Sessions::new();
    for key in keys {
        let Value::Text(name) = &key else {
            anyhow::bail!("a key is text: {key}");
        };
        if let Value::Array(record) = c.send(&[b"SESSION.GET", name])? {
            sessions.insert(key.to_string(), record);
        }
    }
    Ok(sessions)
}

fn field<'a>(record: &'a [Value], name: &str) -> &'a Value {
    let is_name = |value: &Value| *value == Value::Text(name.as_bytes().to_vec());
    let mut pairs = record.chunks(2);
    let pair = pairs.find(|pair| is_name(&pair[0]));
    pair.map(|pair| &pair[1])
        .unwrap_or_else(|| panic!("a record has a field {name}"))
}
