//! Which mounted tools a query means, for the tool `tool_search`.
//!
//! A query is a few words, or a question. A tool is found when a word of it is a word of its name, description, tags or
//! parameters, or the beginning of one; it comes the earlier the more of them are, and the better the place. The exact
//! name comes first. Words that every description has, such as "the", find nothing, and what has less than half of the
//! words that the best has is left out.
//!
//! Invariant: the order follows from the query and the tools alone; of two that fit alike, the one whose server and name
//! come first in the alphabet does.

use serde_json::{Value, json};

use super::function::{Function, Package, packages};
use super::tool::MountedTool;
use super::{describe, limits};

/// How much is answered of each tool.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, strum::EnumString)]
#[strum(serialize_all = "snake_case")]
pub enum Detail {
    /// How it is imported.
    Name,
    /// And its parameters, the fields of its result, and what it does, in a line.
    #[default]
    Summary,
    /// And its description, tags and schemas.
    Schema,
}

/// The results of a tool search.
#[derive(Clone, Debug, PartialEq)]
pub struct SearchResults {
    /// At most as many as were asked for, the best first.
    pub entries: Vec<Value>,
    /// How many fit.
    pub total: usize,
    /// The packages of the servers that have tools: at most 50.
    pub servers: Vec<String>,
}

/// The score of a word, by its place.
const IN_NAME: u32 = 16;
const IN_SERVER: u32 = 8;
const IN_TAGS: u32 = 8;
const IN_PARAMETERS: u32 = 4;
const IN_DESCRIPTION: u32 = 3;
/// A match with the beginning of a word has half of its score.
const OF_BEGINNING: u32 = 2;
/// The score of each word of the query that is found at all: higher than that of any place.
const FOUND: u32 = 1_000;
/// The score of the exact name: higher than that of all words together.
const EXACT: u32 = 1_000_000;
/// Words of questions that say nothing of a tool.
const STOP_WORDS: [&str; 60] = [
    "a", "about", "all", "am", "an", "and", "any", "are", "as", "at", "be", "by", "can", "could",
    "do", "does", "for", "from", "has", "have", "how", "i", "in", "into", "is", "it", "its", "me",
    "my", "of", "on", "or", "our", "please", "should", "some", "that", "the", "their", "them",
    "there", "these", "this", "those", "to", "tool", "tools", "us", "use", "want", "was", "we",
    "what", "when", "where", "which", "who", "will", "with", "you",
];
/// The shortest word whose beginning of another counts, in bytes.
const BEGINNING_BYTES_MIN: usize = 3;

/// Searches. Without words every tool is found.
pub fn search(tools: &[MountedTool], query: &str, detail: Detail, limit: usize) -> SearchResults {
    let query = query.trim();
    let mut wanted = words(query);
    wanted.sort_unstable();
    wanted.dedup();
    let has_words = !wanted.is_empty();
    wanted.retain(|word| !STOP_WORDS.contains(&word.as_str()));
    wanted.truncate(limits::QUERY_WORDS_MAX);
    // "all tools" is a query for every tool.
    let is_for_all = query.is_empty() || (has_words && wanted.is_empty());
    let packages = packages(tools);
    let mut found: Vec<(u32, &Package<'_>, &Function<'_>)> = Vec::new();
    for package in &packages {
        for function in &package.tools {
            let names = [package.name.as_str(), &function.name];
            let worth = score_tool(function.tool, query, &wanted, names);
            if worth > 0 || is_for_all {
                found.push((worth, package, function));
            }
        }
    }
    // Words that were found count [`FOUND`] each, so that this is their number.
    let words_of = |worth: &u32| (worth % EXACT) / FOUND;
    let most = found.iter().map(|(worth, ..)| words_of(worth)).max();
    found.retain(|(worth, ..)| *worth >= EXACT || 2 * words_of(worth) >= most.unwrap_or(0));
    found.sort_by_key(|(worth, package, function)| {
        let names = (package.server, &function.tool.original_name);
        (std::cmp::Reverse(*worth), names)
    });
    let best = found.iter().take(limit);
    SearchResults {
        total: found.len(),
        servers: (packages.iter().take(limits::SERVERS_TOLD_MAX))
            .map(|package| package.name.clone())
            .collect(),
        entries: best
            .map(|(_, package, function)| {
                entry(function.tool, &package.name, &function.name, detail)
            })
            .collect(),
    }
}

fn score_tool(
    tool: &MountedTool,
    query: &str,
    wanted: &[String],
    [package, function]: [&str; 2],
) -> u32 {
    let places = [
        (IN_NAME, words(&tool.original_name)),
        (IN_NAME, words(tool.title.as_deref().unwrap_or_default())),
        (IN_SERVER, words(&tool.server)),
        (
            IN_TAGS,
            tool.tags.iter().flat_map(|tag| words(tag)).collect(),
        ),
        (
            IN_PARAMETERS,
            describe::property_names(&tool.input_schema)
                .flat_map(words)
                .collect(),
        ),
        (IN_DESCRIPTION, words(&tool.description)),
    ];
    let names = [
        tool.original_name.as_str(),
        &tool.name,
        &tool.id,
        function,
        &format!("{package}.{function}"),
        &format!("{}/{}", tool.server, tool.original_name),
    ];
    let is_exact = names.iter().any(|name| name.eq_ignore_ascii_case(query));
    let words: u32 = wanted.iter().map(|word| score_word(word, &places)).sum();
    if is_exact { EXACT + words } else { words }
}

/// The worth of the best place of a word.
fn score_word(wanted: &str, places: &[(u32, Vec<String>)]) -> u32 {
    let of_place = |(worth, words): &(u32, Vec<String>)| {
        let of_word = |word: &String| {
            let begins = wanted.len() >= BEGINNING_BYTES_MIN && word.starts_with(wanted);
            match (word == wanted, begins) {
                (true, _) => *worth,
                (false, true) => worth / OF_BEGINNING,
                (false, false) => 0,
            }
        };
        words.iter().map(of_word).max().unwrap_or(0)
    };
    match places.iter().map(of_place).max() {
        None | Some(0) => 0,
        Some(best) => FOUND + best,
    }
}

/// The words of a text, in lower case. Characters other than letters and digits separate words; so does a capital letter
/// after a small one.
fn words(text: &str) -> Vec<String> {
    let mut words = Vec::new();
    let mut word = String::new();
    let mut was_small = false;
    for letter in text.chars() {
        let is_part = letter.is_alphanumeric();
        if (!is_part || (was_small && letter.is_uppercase())) && !word.is_empty() {
            words.push(std::mem::take(&mut word));
        }
        if is_part {
            word.extend(letter.to_lowercase());
        }
        was_small = letter.is_lowercase() || letter.is_ascii_digit();
    }
    if !word.is_empty() {
        words.push(word);
    }
    words
}

fn entry(tool: &MountedTool, package: &str, function: &str, detail: Detail) -> Value {
    let mut entry = json!({
        "server": tool.server,
        "name": tool.original_name,
        "python": format!("from tools.{package} import {function}"),
        "typescript": format!("import {{ {function} }} from \"tools/{package}/{function}.ts\";"),
    });
    let Some(fields) = entry.as_object_mut() else {
        return entry;
    };
    if detail != Detail::Name {
        fields.insert("summary".to_owned(), describe::summary(tool).into());
        let python_call = describe::python_call(tool, function);
        fields.insert("python_call".to_owned(), python_call.into());
        let typescript_call = describe::typescript_call(tool, function);
        fields.insert("typescript_call".to_owned(), typescript_call.into());
    }
    if detail == Detail::Schema {
        fields.insert("description".to_owned(), tool.description.clone().into());
        fields.insert("tags".to_owned(), tool.tags.clone().into());
        fields.insert("input_schema".to_owned(), tool.input_schema.clone());
        if let Some(schema) = &tool.output_schema {
            fields.insert("output_schema".to_owned(), schema.clone());
        }
        if let Some(annotations) = &tool.annotations {
            fields.insert("annotations".to_owned(), annotations.clone());
        }
    }
    entry
}
