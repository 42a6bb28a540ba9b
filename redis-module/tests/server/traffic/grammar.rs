//! The commands' grammar as the server tells it: COMMAND DOCS, read into a tree.
//!
//! Invariant: no command is named here, so one that is added to the module is covered from its first day.

use anyhow::Context;

use crate::resp::{Connection, Value};

/// One command.
#[derive(Clone, Debug)]
pub(crate) struct Grammar {
    /// Its name in lower case.
    pub(crate) name: String,
    /// Its arguments in their order.
    pub(crate) arguments: Vec<Argument>,
}

/// One argument, or a group of them.
#[derive(Clone, Debug)]
pub(crate) struct Argument {
    /// What the value is called.
    pub(crate) name: String,
    /// What the value is.
    pub(crate) kind: Kind,
    /// The word before it.
    pub(crate) token: Option<String>,
    /// Whether it may be left out.
    pub(crate) optional: bool,
    /// Whether it may come again.
    pub(crate) multiple: bool,
}

/// What an argument's value is.
#[derive(Clone, Debug)]
pub(crate) enum Kind {
    /// The name of a key.
    Key,
    /// Any text.
    Text,
    /// An integer.
    Integer,
    /// Its token alone.
    Token,
    /// Several values, one after another.
    Block(Vec<Argument>),
    /// One of several.
    OneOf(Vec<Argument>),
}

impl Grammar {
    /// The grammars of all commands of the module.
    pub(crate) fn of_module(c: &mut Connection) -> anyhow::Result<Vec<Self>> {
        let Value::Array(names) = c.run("COMMAND LIST FILTERBY MODULE mooring")? else {
            anyhow::bail!("COMMAND LIST is an array");
        };
        let mut names: Vec<String> = names.iter().map(Value::to_string).collect();
        names.sort();
        names.into_iter().map(|name| Self::of(c, name)).collect()
    }

    fn of(c: &mut Connection, name: String) -> anyhow::Result<Self> {
        let docs = c.run(&format!("COMMAND DOCS {name}"))?;
        let arguments = entry(docs.field(&name), "arguments")
            .map(arguments)
            .transpose()
            .with_context(|| format!("the grammar of {name}"))?
            .unwrap_or_default();
        Ok(Self { name, arguments })
    }

    /// Whether its first argument is a key.
    pub(crate) fn has_key(&self) -> bool {
        matches!(
            self.arguments.first(),
            Some(Argument {
                kind: Kind::Key,
                ..
            })
        )
    }
}

fn arguments(list: &Value) -> anyhow::Result<Vec<Argument>> {
    let Value::Array(list) = list else {
        anyhow::bail!("arguments are an array: {list}");
    };
    list.iter().map(argument).collect()
}

fn argument(map: &Value) -> anyhow::Result<Argument> {
    let text = |name| entry(map, name).map(Value::to_string);
    let flags = text("flags").unwrap_or_default();
    let parts = || arguments(entry(map, "arguments").context("parts")?);
    let kind = match text("type").context("a type")?.as_str() {
        "key" => Kind::Key,
        "integer" | "unix-time" | "double" => Kind::Integer,
        "pure-token" => Kind::Token,
        "block" => Kind::Block(parts()?),
        "oneof" => Kind::OneOf(parts()?),
        _ => Kind::Text,
    };
    Ok(Argument {
        name: text("name").context("a name")?,
        kind,
        token: text("token"),
        optional: flags.contains("optional"),
        multiple: flags.contains("multiple"),
    })
}

/// The value of a map's field, if there is one; flat arrays are taken for maps.
pub(crate) fn entry<'a>(map: &'a Value, name: &str) -> Option<&'a Value> {
    let is_name = |value: &Value| *value == Value::Text(name.as_bytes().to_vec());
    match map {
        Value::Map(pairs) => pairs
            .iter()
            .find(|(field, _)| is_name(field))
            .map(|(_, value)| value),
        Value::Array(flat) => flat
            .chunks_exact(2)
            .find(|pair| is_name(&pair[0]))
            .map(|pair| &pair[1]),
        _ => None,
    }
}
