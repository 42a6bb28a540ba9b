//! Query parameters. Unknown ones are refused: a misspelled filter must not list everything.

use std::collections::BTreeMap;
use std::str::FromStr;

use strum::VariantNames;
use url::form_urlencoded;

use super::problem::{Code, Problem};

/// A parameter that a route knows.
#[derive(Clone, Copy, Debug)]
pub(in crate::http) struct QueryParameter {
    /// Its name.
    pub(in crate::http) name: &'static str,
    /// What it does, in a sentence for the reference.
    pub(in crate::http) about: &'static str,
}

impl QueryParameter {
    pub(in crate::http) const fn new(name: &'static str, about: &'static str) -> Self {
        Self { name, about }
    }
}

/// The parameters of a request, each at most once.
#[derive(Debug)]
pub(in crate::http) struct Query(BTreeMap<String, String>);

impl Query {
    /// Parses them.
    pub(in crate::http) fn parse(text: &str, known: &[QueryParameter]) -> Result<Self, Problem> {
        let mut values = BTreeMap::new();
        for (name, value) in form_urlencoded::parse(text.as_bytes()) {
            if !known.iter().any(|one| one.name == name) {
                let known: Vec<&str> = known.iter().map(|one| one.name).collect();
                let known = match known.join(", ") {
                    none if none.is_empty() => "none".to_owned(),
                    some => some,
                };
                return Err(invalid(format!(
                    "a parameter is unknown; known are: {known}"
                )));
            }
            let name = name.into_owned();
            if values.contains_key(&name) {
                return Err(invalid(format!("the parameter {name} is repeated")));
            }
            values.insert(name, value.into_owned());
        }
        Ok(Self(values))
    }

    /// The text of a parameter.
    pub(in crate::http) fn text(&self, name: &str) -> Option<&str> {
        self.0.get(name).map(String::as_str)
    }

    /// A parameter parsed by `read`; `shape` describes the valid values in errors.
    pub(in crate::http) fn read<T>(
        &self,
        name: &str,
        shape: &str,
        read: impl FnOnce(&str) -> Option<T>,
    ) -> Result<Option<T>, Problem> {
        let Some(text) = self.text(name) else {
            return Ok(None);
        };
        match read(text) {
            Some(value) => Ok(Some(value)),
            None => Err(invalid(format!("{name} is {shape}"))),
        }
    }

    /// A variant of an enumeration.
    pub(in crate::http) fn choice<T: FromStr + VariantNames>(
        &self,
        name: &str,
    ) -> Result<Option<T>, Problem> {
        let words = format!("one of {}", T::VARIANTS.join(", "));
        self.read(name, &words, |word| word.parse().ok())
    }

    /// The requested length of a list, from 1.
    pub(in crate::http) fn limit(&self, usual: usize, most: usize) -> Result<usize, Problem> {
        let shape = format!("a number from 1 to {most}");
        let read = |text: &str| text.parse().ok().filter(|limit| (1..=most).contains(limit));
        Ok(self.read("limit", &shape, read)?.unwrap_or(usual))
    }
}

fn invalid(message: String) -> Problem {
    Problem::new(Code::InvalidQuery, message)
}
