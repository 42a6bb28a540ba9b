//! The module against the rules that it runs: the same random commands to a real server and to the rules over a map, and
//! after each the same reply and the same record, field by field and to the millisecond.
//!
//! The moment of a command is taken from the server's own TIME before and after it. Where a millisecond began in
//! between, either is right, but the reply, the record and the end of its key have to be of the same one.

mod drawn;
mod model;
mod wire;

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use anyhow::Context;
use mooring_session::codec;
use mooring_session::record::Record;
use mooring_tests::redis::{Module, Redis};
use mooring_tests::wait;

use super::resp::{Connection, Value};
use super::traffic::seeded;
use drawn::{Drawn, Topic};
use model::{Model, Outcome};

/// How many commands are compared.
const COMMANDS: usize = 6_000;

/// How many commands before a difference are shown.
const COMMANDS_SHOWN: usize = 12;

/// How often the sessions are left alone until the shorter-lived of them have expired.
const COMMANDS_BETWEEN_PAUSES: usize = 1_500;
/// How many commands are about the expired ones then, before others revive them.
const COMMANDS_OF_CLEANING: usize = 20;
/// How many numbers the clock gives in a millisecond.
const NUMBERS_PER_MS: u64 = 1_000;
/// Longer than their lives, the step by which a deadline is ahead included.
const PAUSE_MS: u64 = 1_700;
/// How long a pause may take on a busy machine.
const PAUSED_WITHIN: Duration = Duration::from_secs(20);

/// Long enough that nobody's grace and no beat ends while the test runs: liveness then depends on the commands alone.
const GRACE_MS: &str = "600000";

/// The latest commands, shown where the test fails.
#[derive(Default)]
struct Said(VecDeque<String>);

impl Said {
    fn note(&mut self, drawn: &Drawn, observed: &Observed) {
        if self.0.len() == COMMANDS_SHOWN {
            self.0.pop_front();
        }
        let (from, to) = (observed.from_ms, observed.to_ms);
        let words = drawn.words.join(" ");
        let line = format!("{from}..{to} {words}: {:?}", observed.reply);
        self.0.push_back(line);
    }
}

impl Drop for Said {
    #[expect(clippy::print_stdout, reason = "shown only where the test fails")]
    fn drop(&mut self) {
        for line in &self.0 {
            println!("{line}");
        }
    }
}

/// What the server made of one command.
struct Observed {
    /// The moments between which it ran.
    from_ms: u64,
    to_ms: u64,
    reply: Value,
    fields: BTreeMap<Vec<u8>, Vec<u8>>,
    ends_at: i64,
}

fn unix_ms(time: &Value) -> anyhow::Result<u64> {
    let Value::Array(parts) = time else {
        anyhow::bail!("TIME is an array: {time}");
    };
    let part = |n: usize| parts[n].to_string().parse::<u64>();
    Ok(part(0)? * 1_000 + part(1)? / 1_000)
}

fn observe(c: &mut Connection, drawn: &Drawn) -> anyhow::Result<Observed> {
    let words: Vec<&[u8]> = drawn.words.iter().map(|word| word.as_bytes()).collect();
    let key = drawn.key.as_bytes();
    let asked: [&[&[u8]]; 5] = [
        &[b"TIME"],
        &words,
        &[b"TIME"],
        &[b"HGETALL", key],
        &[b"PEXPIRETIME", key],
    ];
    let [before, reply, after, hash, ends_at] = c.pipeline(asked)?;
    let Value::Map(pairs) = hash else {
        anyhow::bail!("HGETALL is a map: {hash}");
    };
    let bytes = |value: Value| match value {
        Value::Text(bytes) => Ok(bytes),
        other => anyhow::bail!("no text: {other}"),
    };
    let fields = pairs
        .into_iter()
        .map(|(field, value)| Ok((bytes(field)?, bytes(value)?)))
        .collect::<anyhow::Result<_>>()?;
    Ok(Observed {
        from_ms: unix_ms(&before)?,
        to_ms: unix_ms(&after)?,
        reply,
        fields,
        ends_at: ends_at.integer(),
    })
}

/// Where the server and the rules differ.
fn difference(observed: &Observed, expected: &Outcome, model: &Model) -> Option<String> {
    if observed.reply != expected.reply {
        return Some(format!(
            "reply {:?}\nrules {:?}",
            observed.reply, expected.reply
        ));
    }
    let fields = expected.record.as_ref().map(fields_of).unwrap_or_default();
    if observed.fields != fields {
        let shown = |fields: &BTreeMap<Vec<u8>, Vec<u8>>| {
            let pairs = fields.iter();
            let pairs = pairs
                .map(|(field, value)| format!("{}={}", field.escape_ascii(), value.escape_ascii()));
            pairs.collect::<Vec<_>>().join(" ")
        };
        return Some(format!(
            "hash  {}\nrules {}",
            shown(&observed.fields),
            shown(&fields)
        ));
    }
    let ends_at = expected
        .record
        .as_ref()
        .map_or(-2..=-2, |record| model.ends_at(record));
    (!ends_at.contains(&observed.ends_at)).then(|| {
        format!(
            "the key ends at {}, not within {ends_at:?}",
            observed.ends_at
        )
    })
}

fn fields_of(record: &Record) -> BTreeMap<Vec<u8>, Vec<u8>> {
    let fields = codec::encode(record).into_iter();
    fields
        .map(|(field, value)| (field.into_bytes(), value.into_bytes()))
        .collect()
}

/// Waits until the server's clock is past a moment, and past every one that it has shown to anybody. Numbers may be
/// ahead of it for a moment: many in one millisecond.
fn pass(c: &mut Connection, moment_ms: u64) -> anyhow::Result<()> {
    let began = unix_ms(&c.run("TIME")?)?;
    while unix_ms(&c.run("TIME")?)? <= moment_ms.max(began + 1) {}
    Ok(())
}

/// Lets time pass on the server's clock.
async fn pause(c: &mut Connection) -> anyhow::Result<()> {
    let until = unix_ms(&c.run("TIME")?)? + PAUSE_MS;
    wait::until_true("sessions to expire", PAUSED_WITHIN, async || {
        Ok(unix_ms(&c.run("TIME")?)? > until)
    })
    .await
}

/// What the numbers of a new record exceed, and what they do from now on: one that has no binding yet says so. Where the
/// numbers of the module are ahead of the clock, as after many rebinds within a millisecond, asking raises it by one.
fn floor_of(c: &mut Connection, n: usize) -> anyhow::Result<(u64, u64)> {
    let key = format!("mcpgw:floor:{n}");
    let created = c.run(&format!("SESSION.CREATE {key} floor nobody TTL 1000"))?;
    let generation = u64::try_from(created.field("gen").integer())?;
    let created_at = u64::try_from(created.field("created_at").integer())?;
    let identity = c.run(&format!("HGET {key} id"))?.to_string();
    let floor = identity.split(' ').nth(1).context("no epoch")?.parse()?;
    if generation > created_at * NUMBERS_PER_MS {
        return Ok((floor, generation));
    }
    Ok((floor, floor))
}

#[tokio::test]
async fn the_module_does_what_the_rules_say() -> anyhow::Result<()> {
    let arguments = ["--mooring.worker-grace-ms", GRACE_MS];
    let redis = Redis::start_with(Module::Loaded, &arguments).await?;
    let mut c = Connection::open_resp3(&redis)?;
    let mut rng = fastrand::Rng::with_seed(seeded(17)?);
    let mut model = Model::new();
    let mut answered = BTreeMap::new();
    let mut said = Said::default();
    for n in 0..COMMANDS {
        let since_pause = n % COMMANDS_BETWEEN_PAUSES;
        if since_pause == 0 {
            pause(&mut c).await?;
        }
        let topic = match since_pause < COMMANDS_OF_CLEANING {
            true => Topic::Cleaning,
            false => Topic::Anything,
        };
        let drawn = Drawn::draw(&mut rng, &model, topic);
        let observed = observe(&mut c, &drawn)?;
        let mut differences = Vec::new();
        // What is said of a worker depends on no wall clock, and is said once.
        let to_ms = match drawn.is_of_worker() {
            true => observed.from_ms,
            false => observed.to_ms,
        };
        let right = (observed.from_ms..=to_ms).find_map(|now_ms| {
            let outcome = model.run(&drawn, now_ms);
            match difference(&observed, &outcome, &model) {
                None => Some(outcome),
                Some(difference) => {
                    differences.push(difference);
                    None
                }
            }
        });
        let right = right.with_context(|| {
            format!(
                "command {n}: {}\n{}",
                drawn.words.join(" "),
                differences.join("\nor\n")
            )
        })?;
        said.note(&drawn, &observed);
        *answered.entry(drawn.name()).or_insert(0) += u64::from(!right.is_refusal());
        let is_dropped = right.record.is_none() && model.holds(&drawn);
        model.accept(&drawn, right);
        if is_dropped {
            pass(&mut c, model.floor() / NUMBERS_PER_MS)?;
            let (floor, raised) = floor_of(&mut c, n)?;
            model.take_floor(floor, observed.from_ms, observed.to_ms);
            model.raise_floor(raised);
        }
    }
    assert!(answered.values().all(|count| *count > 0), "{answered:?}");
    Ok(())
}
