//! All that a server holds, to be compared with what another holds, or the same one later.

use std::collections::{BTreeMap, BTreeSet};

use mooring_tests::redis::Redis;

use super::resp::{Connection, Value};

/// How many keys that differ are shown.
const SHOWN: usize = 5;

/// The databases that tests use.
const DATABASES: std::ops::Range<u32> = 0..2;

/// More than there are keys in a test: one step of SCAN is the whole walk.
const EVERYTHING: &str = "1000000";

/// No test takes longer to compare what two servers hold.
const STILL_FOR_MS: i64 = 60_000;

/// The digest of everything, and every key with its database, its own digest and the moment of its end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Keyspace {
    digest: String,
    keys: BTreeMap<String, (String, i64)>,
}

/// Deletes what would end by itself while it is compared: rates, whose keys live for their windows only. Tombstones
/// live for ten minutes at least.
pub(super) fn hold_still(redis: &Redis) -> anyhow::Result<()> {
    let mut c = Connection::open(redis)?;
    for database in DATABASES {
        for name in names(&mut c, database)? {
            let left = c.send(&[b"PTTL", &name])?.integer();
            if (0..STILL_FOR_MS).contains(&left) {
                c.send(&[b"DEL", &name])?;
            }
        }
    }
    Ok(())
}

/// The keys of a database. SCAN, unlike KEYS, deletes what it meets whose time is over: the digest still counts that.
fn names(c: &mut Connection, database: u32) -> anyhow::Result<Vec<Vec<u8>>> {
    c.run(&format!("SELECT {database}"))?;
    let Value::Array(mut scanned) = c.run(&format!("SCAN 0 COUNT {EVERYTHING}"))? else {
        anyhow::bail!("SCAN is an array");
    };
    let Some(Value::Array(names)) = scanned.pop() else {
        anyhow::bail!("its keys are an array");
    };
    let names = names.into_iter().map(|name| match name {
        Value::Text(name) => Ok(name),
        other => anyhow::bail!("a key is text: {other}"),
    });
    names.collect()
}

impl Keyspace {
    /// What the server holds now.
    pub(super) fn of(redis: &Redis) -> anyhow::Result<Self> {
        let mut c = Connection::open(redis)?;
        let digest = c.show("DEBUG DIGEST")?;
        let mut keys = BTreeMap::new();
        for database in DATABASES {
            for name in names(&mut c, database)? {
                let of_key = c.send(&[b"DEBUG", b"DIGEST-VALUE", &name])?.to_string();
                let ends_at = c.send(&[b"PEXPIRETIME", &name])?.integer();
                let name = format!("{database}:{}", name.escape_ascii());
                keys.insert(name, (of_key, ends_at));
            }
        }
        Ok(Self { digest, keys })
    }

    /// How many keys it holds.
    pub(super) fn len(&self) -> usize {
        self.keys.len()
    }

    /// Fails, and shows which keys differ, unless `other` is the same.
    pub(super) fn assert_same(&self, other: &Self, what: &str) {
        let names: BTreeSet<&String> = self.keys.keys().chain(other.keys.keys()).collect();
        let differing: Vec<String> = names
            .into_iter()
            .filter(|name| self.keys.get(*name) != other.keys.get(*name))
            .map(|name| {
                format!(
                    "{name}: {:?} / {:?}",
                    self.keys.get(name),
                    other.keys.get(name)
                )
            })
            .take(SHOWN)
            .collect();
        assert!(differing.is_empty(), "{what}: {differing:#?}");
        assert_eq!(self.digest, other.digest, "{what}");
    }
}
