//! The examples of the reference pages: each is run against a real server, and has to be answered as the page shows.
//!
//! A page's numbers are moments, so they are compared as such, and a number that a later line of the example repeats
//! stands for what the server really answered. `MOORING_BLESS=1` writes what happened into the examples.

use std::collections::BTreeMap;
use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Mutex;
use std::thread;
use std::time::Duration;

use anyhow::{Context, ensure};
use mooring_tests::redis::{Module, Redis};
use mooring_tests::{paths, wait};

use tokio::runtime::Runtime;

use super::pages::{self, Page};
use super::resp::{Connection, Value};

/// Longer than the longest lease of a turn by default.
const START_OVER_WITHIN: Duration = Duration::from_secs(20);
/// How many pages at once. Some wait for seconds; but a turn that is granted has to be picked up within one.
const AT_ONCE: usize = 4;
const PROMPT: &str = "127.0.0.1:6379> ";
/// Integers with as many digits are moments, or numbers made from moments.
const MOMENT_DIGITS: usize = 13;
/// Fields whose numbers depend on how fast the machine is.
const UNEVEN: [&str; 2] = ["retry_after_ms", "turn_held_ms"];

/// The example of one page.
struct Example {
    /// What has to be run before.
    setup: Vec<String>,
    /// What is run, with the reply shown.
    steps: Vec<(String, String)>,
}

/// The texts in fences of the page's section "Example".
fn example(page: &str) -> anyhow::Result<Example> {
    let (_, section) = page.split_once("\n## Example\n").context("an example")?;
    let fenced: Vec<&str> = section.split("```").skip(1).step_by(2).collect();
    let fenced: Vec<&str> = fenced
        .into_iter()
        .map(|text| text.strip_prefix("text\n").context("a fence of text"))
        .collect::<anyhow::Result<_>>()?;
    let (setup, session) = match fenced[..] {
        [session] => ("", session),
        [setup, session] => (setup, session),
        _ => anyhow::bail!("one or two fenced texts"),
    };
    let steps = session.split(PROMPT).skip(1).map(|step| {
        let (command, reply) = step.split_once('\n').unwrap_or((step, ""));
        (command.to_owned(), reply.trim_end().to_owned())
    });
    Ok(Example {
        setup: setup.lines().map(str::to_owned).collect(),
        steps: steps.collect(),
    })
}

/// Runs one line as somebody types it at redis-cli.
fn type_in(redis: &Redis, line: &str) -> anyhow::Result<String> {
    let mut cli = Command::new("redis-cli")
        .args(["-3", "--no-raw", "-p", &redis.port().to_string()])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .context("run redis-cli")?;
    let mut input = cli.stdin.take().context("its input")?;
    writeln!(input, "{line}")?;
    drop(input);
    let output = cli.wait_with_output()?;
    let shown = String::from_utf8(output.stdout)?;
    ensure!(!shown.contains("(error)"), "{line}: {shown}");
    let lines: Vec<&str> = shown.lines().map(str::trim_end).collect();
    Ok(lines.join("\n").trim_end().to_owned())
}

/// The numbers of a text that are moments, with the text between them.
fn split_moments(text: &str) -> (Vec<&str>, Vec<&str>) {
    let (mut between, mut moments) = (Vec::new(), Vec::new());
    let mut rest = text;
    let mut from = 0;
    while let Some(start) = rest[from..].find(|c: char| c.is_ascii_digit()) {
        let start = from + start;
        let digits = rest[start..]
            .find(|c: char| !c.is_ascii_digit())
            .unwrap_or(rest.len() - start);
        if digits < MOMENT_DIGITS {
            from = start + digits;
            continue;
        }
        between.push(&rest[..start]);
        moments.push(&rest[start..start + digits]);
        rest = &rest[start + digits..];
        from = 0;
    }
    between.push(rest);
    (between, moments)
}

/// The first value of each field, as redis-cli shows it.
fn fields(reply: &str) -> BTreeMap<&str, &str> {
    let lines = reply.lines().rev();
    lines
        .filter_map(|line| {
            let (head, value) = line.split_once("\" => ")?;
            let name = head.rsplit('"').next()?;
            let value = value.trim_start_matches("(integer) ").trim_matches('"');
            Some((name, value))
        })
        .collect()
}

/// A sentence without its ages, whose units differ with them.
fn without_ages(line: &str) -> String {
    let words: Vec<&str> = line.split(' ').collect();
    let is_age = |place: usize| {
        let unit = words
            .get(place + 1)
            .map(|word| word.trim_matches([',', ':']));
        words[place].parse::<u64>().is_ok() && matches!(unit, Some("ms" | "s" | "min"))
    };
    let shown = (0..words.len()).map(|place| match place {
        age if is_age(age) => "#",
        unit if unit > 0 && is_age(unit - 1) => "#",
        _ => words[place],
    });
    shown.collect::<Vec<_>>().join(" ")
}

/// The line without the digest of its request, which differs with the numbers in that.
fn without_request(line: &str) -> &str {
    let named = ["\"request\" => ", " (request "];
    let cut = named.iter().find_map(|name| line.find(name));
    cut.and_then(|at| line.get(..at)).unwrap_or(line)
}

/// The reply with everything left out that no page can know.
fn masked(command: &str, reply: &str) -> String {
    let is_stats = command.starts_with("SESSION.STATS");
    let is_explained = command.starts_with("SESSION.EXPLAIN");
    let lines = reply.lines().map(without_request).map(|line| {
        let is_uneven = UNEVEN.iter().any(|field| line.contains(field));
        match line.split_once("(integer) ") {
            Some((head, _)) if is_stats || is_uneven => format!("{head}#"),
            _ if is_explained => without_ages(&split_moments(line).0.join("#")),
            _ => split_moments(line).0.join("#"),
        }
    });
    lines.collect::<Vec<_>>().join("\n")
}

/// Runs the example; answers it as it really went.
fn run(redis: &Redis, example: &Example) -> anyhow::Result<Example> {
    let mut known: BTreeMap<String, String> = BTreeMap::new();
    for line in &example.setup {
        type_in(redis, line)?;
    }
    let mut steps = Vec::new();
    for (command, shown) in &example.steps {
        let words = command.split(' ').map(|word| {
            let (between, moments) = split_moments(word);
            let real = moments.iter().map(|moment| {
                let real = known.get(*moment).map_or(*moment, String::as_str);
                real.to_owned()
            });
            let mut real = real.collect::<Vec<_>>().into_iter();
            let mut line = between[0].to_owned();
            for part in &between[1..] {
                line.push_str(&real.next().unwrap_or_default());
                line.push_str(part);
            }
            line
        });
        let command: String = words.collect::<Vec<_>>().join(" ");
        let reply = type_in(redis, &command)?;
        let real = fields(&reply);
        for (name, value) in fields(shown) {
            if let Some(real) = real.get(name) {
                known.entry(value.to_owned()).or_insert((*real).to_owned());
            }
        }
        steps.push((command, reply));
    }
    Ok(Example {
        setup: example.setup.clone(),
        steps,
    })
}

fn write(path: &Path, example: &Example) -> anyhow::Result<()> {
    let mut text = String::new();
    if !example.setup.is_empty() {
        text = format!("{}\n---\n", example.setup.join("\n"));
    }
    for (command, reply) in &example.steps {
        text.push_str(&format!("{PROMPT}{command}\n{reply}\n"));
    }
    std::fs::write(path, text).with_context(|| path.display().to_string())
}

/// Waits until turns are granted. For a while after a start a node grants only those that are claimed again, and
/// examples are of a server that has been up for longer.
async fn turns_are_granted(redis: &Redis) -> anyhow::Result<()> {
    let mut c = Connection::open(redis)?;
    let key = "mcpgw:session_affinity:probe";
    c.run(&format!("SESSION.CREATE {key} probe probe TTL 60000"))?;
    let enter = format!("SESSION.ENTER {key} probe tools w:0 probe LEASE 1000");
    wait::until_true("turns are granted", START_OVER_WITHIN, async || {
        Ok(*c.run(&enter)?.field("turn") != Value::Null)
    })
    .await?;
    c.run(&format!("SESSION.LEAVE {key} probe tools probe"))?;
    c.run(&format!("DEL {key}"))?;
    Ok(())
}

/// Runs the example of one page on a server of its own.
async fn check(page: Page) -> anyhow::Result<()> {
    let name = &page.name;
    let shown = example(&page.text)?;
    let of = name.to_uppercase();
    let is_its_own = |(command, _): &(String, String)| command.starts_with(&of);
    ensure!(shown.steps.iter().any(is_its_own), "no line of {of}");
    let redis = Redis::start_with(Module::Loaded, &["--appendonly", "no"]).await?;
    if page.text.contains("\nSESSION.ENTER ") || page.text.contains("> SESSION.ENTER ") {
        turns_are_granted(&redis).await?;
    }
    let real = run(&redis, &shown)?;
    if std::env::var_os("MOORING_BLESS").is_some() {
        let examples = paths::workspace().join("redis-module/src/commands/examples");
        return write(&examples.join(format!("{name}.txt")), &real);
    }
    for ((command, shown), (_, real)) in shown.steps.iter().zip(&real.steps) {
        assert_eq!(
            masked(command, real),
            masked(command, shown),
            "docs/commands/{name}.md, {command}: MOORING_BLESS=1 writes what is answered"
        );
    }
    Ok(())
}

/// Runs the examples of the pages that are left, one after another.
fn check_those_left(pages: &Mutex<Vec<Page>>) -> anyhow::Result<()> {
    loop {
        let Some(page) = pages.lock().unwrap().pop() else {
            return Ok(());
        };
        let name = page.name.clone();
        Runtime::new()?.block_on(check(page)).context(name)?;
    }
}

#[test]
fn every_example_is_answered_as_its_page_shows() -> anyhow::Result<()> {
    let pages = Mutex::new(pages::all()?);
    thread::scope(|scope| {
        let threads: Vec<_> = (0..AT_ONCE)
            .map(|_| scope.spawn(|| check_those_left(&pages)))
            .collect();
        for thread in threads {
            match thread.join() {
                Ok(checked) => checked?,
                Err(panic) => std::panic::resume_unwind(panic),
            }
        }
        Ok(())
    })
}
