//! What clients learn of the commands from the server itself: for every command the same as its reference page says.

use std::collections::BTreeSet;

use mooring_tests::redis::Redis;

use super::pages::{self, Page};
use super::resp::{Connection, Value};

/// How COMMAND INFO calls the flags that modules register by.
fn told(flag: &str) -> &str {
    match flag {
        "deny-oom" => "denyoom",
        "allow-loading" => "loading",
        "allow-stale" => "stale",
        "no-script" => "noscript",
        other => other,
    }
}

fn array(value: &Value) -> &[Value] {
    match value {
        Value::Array(values) => values,
        other => panic!("no array: {other}"),
    }
}

fn text(value: &Value) -> String {
    match value {
        Value::Text(bytes) => String::from_utf8_lossy(bytes).into_owned(),
        Value::Status(text) => text.clone(),
        other => panic!("no text: {other}"),
    }
}

fn set(value: &Value) -> BTreeSet<String> {
    array(value).iter().map(Value::to_string).collect()
}

/// A field of a map that may lack it.
fn optional<'a>(map: &'a Value, name: &str) -> Option<&'a Value> {
    let Value::Map(pairs) = map else {
        panic!("no map: {map}");
    };
    let named = pairs.iter().find(|(field, _)| field.to_string() == name);
    named.map(|(_, value)| value)
}

/// The grammar as the pages write it, from what COMMAND DOCS tells.
fn usage(line: &mut String, arguments: &[Value]) {
    for argument in arguments {
        let text = |name| optional(argument, name).map(Value::to_string);
        let flags = optional(argument, "flags").map(set).unwrap_or_default();
        let mut own = text("token").unwrap_or_default();
        match text("type").as_deref() {
            Some("pure-token") => {}
            Some("block") => usage(&mut own, array(argument.field("arguments"))),
            Some("oneof") => {
                let parts = array(argument.field("arguments")).iter().map(|part| {
                    let mut word = String::new();
                    usage(&mut word, std::slice::from_ref(part));
                    word.trim().to_owned()
                });
                own.push(' ');
                own.push_str(&parts.collect::<Vec<_>>().join("|"));
            }
            _ => {
                own.push(' ');
                own.push_str(&text("name").unwrap_or_default());
            }
        }
        let own = own.trim();
        let own = if flags.contains("optional") {
            format!("[{own}]")
        } else {
            own.to_owned()
        };
        let again = if flags.contains("multiple") {
            " ..."
        } else {
            ""
        };
        line.push_str(&format!(" {own}{again}"));
    }
}

fn check_info(page: &Page, info: &[Value]) -> anyhow::Result<()> {
    let name = &page.name;
    let mut usage_words = page.usage()?.split(' ');
    assert_eq!(usage_words.next(), Some(name.to_uppercase().as_str()));
    assert_eq!(info[0].to_string(), *name);
    let flags = page.words("flags")?;
    let mut flags: BTreeSet<_> = flags.iter().map(|flag| told(flag).to_owned()).collect();
    flags.insert("module".to_owned());
    assert_eq!(set(&info[2]), flags, "{name}");
    let key = i64::from(page.has_key()?);
    for place in [3, 4, 5] {
        assert_eq!(info[place].integer(), key, "{name}");
    }
    // No category before Redis 7.2, only the server's own in it, and all from 7.4 on.
    let categories: BTreeSet<_> = page.words("ACL categories")?.into_iter().collect();
    assert!(set(&info[6]).is_subset(&categories), "{name}");
    let tips: BTreeSet<_> = page.words("hints for clients")?.into_iter().collect();
    assert_eq!(set(&info[7]), tips, "{name}");
    let specs: Vec<String> = array(&info[8])
        .iter()
        .map(|spec| spec.field("flags").to_string())
        .collect();
    let expected = match page.fact("key")?.as_deref() {
        Some("read") => vec!["[RO, access]"],
        Some("read and changed") => vec!["[RW, access, update]"],
        Some("read and dropped") => vec!["[RW, access, delete]"],
        _ => Vec::new(),
    };
    assert_eq!(specs, expected, "{name}");
    Ok(())
}

#[tokio::test]
async fn every_command_is_described_as_its_page_says() -> anyhow::Result<()> {
    let redis = Redis::start().await?;
    let mut c = Connection::open_resp3(&redis)?;
    let pages = pages::all()?;
    let known = set(&c.run("COMMAND LIST FILTERBY MODULE mooring")?);
    let described: BTreeSet<_> = pages.iter().map(|page| page.name.clone()).collect();
    assert_eq!(known, described);
    for page in &pages {
        let infos = c.run(&format!("COMMAND INFO {}", page.name))?;
        check_info(page, array(&array(&infos)[0]))?;
        let docs = c.run(&format!("COMMAND DOCS {}", page.name))?;
        let docs = docs.field(&page.name);
        assert_eq!(text(docs.field("summary")), page.summary()?);
        assert_eq!(docs.field("module").to_string(), "mooring");
        assert_eq!(docs.field("group").to_string(), "module");
        for fact in ["since", "complexity"] {
            let told = text(docs.field(fact));
            assert_eq!(Some(told), page.fact(fact)?, "{}", page.name);
        }
        let mut line = page.name.to_uppercase();
        usage(&mut line, optional(docs, "arguments").map_or(&[], array));
        assert_eq!(line, page.usage()?);
    }
    Ok(())
}

#[tokio::test]
async fn help_lists_every_command_with_its_grammar() -> anyhow::Result<()> {
    let redis = Redis::start().await?;
    let mut c = Connection::open(&redis)?;
    let help = c.run("SESSION.HELP")?;
    let lines: Vec<String> = array(&help).iter().map(text).collect();
    let pages = pages::all()?;
    assert_eq!(lines.len(), 2 * pages.len());
    for page in &pages {
        let place = lines
            .iter()
            .position(|line| line == page.usage().unwrap_or_default());
        let place = place.unwrap_or_else(|| panic!("{} is not in {lines:?}", page.name));
        assert_eq!(lines[place + 1].trim_start(), page.summary()?);
    }
    Ok(())
}

#[tokio::test]
async fn keys_are_found_in_every_command_that_names_one() -> anyhow::Result<()> {
    let redis = Redis::start().await?;
    let mut c = Connection::open(&redis)?;
    for page in pages::all()? {
        let words: Vec<_> = page
            .usage()?
            .split(' ')
            .map(|word| word.trim_matches(['[', ']']))
            .collect();
        let shown = c.show(&format!("COMMAND GETKEYS {}", words.join(" ")))?;
        if page.has_key()? {
            assert_eq!(shown, "[key]", "{}", page.name);
        } else {
            // A command of one word is too short for GETKEYS to begin with.
            assert!(shown.starts_with("ERR"), "{}: {shown}", page.name);
        }
    }
    Ok(())
}

#[tokio::test]
async fn every_figure_has_a_meaning_on_the_page_of_stats() -> anyhow::Result<()> {
    let redis = Redis::start().await?;
    let mut c = Connection::open_resp3(&redis)?;
    let Value::Map(figures) = c.run("SESSION.STATS")? else {
        anyhow::bail!("STATS is a map");
    };
    let told: Vec<String> = figures
        .iter()
        .map(|(name, _)| format!("`{name}`"))
        .collect();
    let pages = pages::all()?;
    let page = pages.iter().find(|page| page.name == "session.stats");
    let rows = page.map_or_else(|| Ok(Vec::new()), |page| page.rows("Figures"))?;
    let explained: Vec<String> = rows.into_iter().skip(1).map(|(name, _)| name).collect();
    assert_eq!(told, explained);
    Ok(())
}
