//! Names made into identifiers that both languages accept.
//!
//! Every character but ASCII letters, digits and `_` becomes `_`. What then begins with a digit or with `_`, which is
//! kept for what is ours, gets a word in front; a word of either language gets a `_` behind. Of two names that become
//! the same, upper and lower case being the same, the one that was an identifier already keeps it, else the first in
//! order, and the other gets a number.
//!
//! Invariant: which identifier a name has follows from the set of names alone, and no two of a set share one.

use std::collections::{BTreeMap, HashMap, HashSet};

use super::limits;

/// The role of an identifier.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Role {
    /// An attribute of `tools`.
    Server,
    /// A function, with `<name>_async` beside it.
    Tool,
    /// A keyword parameter of Python.
    Parameter,
}

/// The suffix of asynchronous functions.
pub(super) const ASYNC_SUFFIX: &str = "_async";

/// The names that `tools` itself exports in either language, which no server's package may have.
pub(super) const OFFERED: &[&str] = &[
    "READ_ONLY_ROOTS",
    "ROOTS",
    "SCHEMA_VERSION",
    "ToolDeniedError",
    "ToolDivergedError",
    "ToolError",
    "ToolInternalError",
    "ToolInvalidError",
    "ToolLimitError",
    "ToolNotMountedError",
    "ToolOutcomeUnknownError",
    "ToolRecursionError",
    "ToolTimeoutError",
    "ToolUnavailableError",
    "WRITABLE_ROOTS",
    "call",
    "call_async",
    "listDir",
    "list_dir",
    "mod",
    "readFile",
    "read_file",
    "server",
    "writeFile",
    "write_file",
];

/// The keywords of Python.
#[rustfmt::skip]
const PYTHON_KEYWORDS: &[&str] = &[
    "False", "None", "True", "and", "as", "assert", "async", "await", "break", "class", "continue", "def", "del", "elif",
    "else", "except", "finally", "for", "from", "global", "if", "import", "in", "is", "lambda", "nonlocal", "not", "or",
    "pass", "raise", "return", "try", "while", "with", "yield",
];

/// Built-in names of Python, which a module's own would hide from its annotations.
#[rustfmt::skip]
const PYTHON_BUILTINS: &[&str] = &[
    "abs", "aiter", "all", "anext", "any", "ascii", "bin", "bool", "breakpoint", "bytearray", "bytes", "callable", "chr",
    "classmethod", "compile", "complex", "copyright", "credits", "delattr", "dict", "dir", "divmod", "enumerate", "eval",
    "exec", "exit", "filter", "float", "format", "frozenset", "getattr", "globals", "hasattr", "hash", "help", "hex",
    "id", "input", "int", "isinstance", "issubclass", "iter", "len", "license", "list", "locals", "map", "max",
    "memoryview", "min", "next", "object", "oct", "open", "ord", "pow", "print", "property", "quit", "range", "repr",
    "reversed", "round", "set", "setattr", "slice", "sorted", "staticmethod", "str", "sum", "super", "tuple", "type",
    "vars", "zip",
];

/// The words that a module of TypeScript cannot declare, and the globals that stubs use.
#[rustfmt::skip]
const TYPESCRIPT_WORDS: &[&str] = &[
    "Args", "Array", "Infinity", "NaN", "Promise", "Record", "Result", "any", "arguments", "await", "boolean", "break",
    "case", "catch", "class", "const", "continue", "debugger", "default", "delete", "do", "else", "enum", "eval",
    "export", "extends", "false", "finally", "for", "function", "if", "implements", "import", "in", "instanceof",
    "interface", "let", "never", "new", "null", "number", "package", "private", "protected", "public", "return",
    "static", "string", "super", "switch", "symbol", "this", "throw", "true", "try", "typeof", "undefined", "unknown",
    "var", "void", "while", "with", "yield",
    // The file of the package itself.
    "mod",
];

/// Whether this is a word of Python that names nothing.
pub fn is_python_keyword(name: &str) -> bool {
    PYTHON_KEYWORDS.contains(&name)
}

/// The identifier of each name of a set.
pub(super) fn identifiers<'a>(
    names: impl IntoIterator<Item = &'a str>,
    role: Role,
) -> BTreeMap<&'a str, String> {
    let mut names: Vec<&str> = names.into_iter().collect();
    names.sort_unstable();
    names.dedup();
    let mut taken = ReservedNames::new(role);
    let mut found = BTreeMap::new();
    let (exact, other): (Vec<_>, Vec<_>) = names
        .into_iter()
        .map(|name| (name, identifier(name, role)))
        .partition(|(name, wanted)| wanted == name);
    for (name, wanted) in exact.into_iter().chain(other) {
        found.insert(name, taken.take(&wanted));
    }
    found
}

/// One name as an identifier, whatever others there are.
fn identifier(name: &str, role: Role) -> String {
    let known = |letter: char| match letter {
        'A'..='Z' | 'a'..='z' | '0'..='9' | '_' => letter,
        _ => '_',
    };
    let text: String = name
        .chars()
        .map(known)
        .take(limits::IDENTIFIER_CHARS_MAX)
        .collect();
    let begins_well = text.starts_with(|first: char| first.is_ascii_alphabetic());
    let text = match (begins_well, role) {
        (true, _) => text,
        (false, Role::Server) => format!("server_{text}"),
        (false, Role::Tool) => format!("tool_{text}"),
        (false, Role::Parameter) => format!("arg_{text}"),
    };
    if is_word(&text, role) {
        text + "_"
    } else {
        text
    }
}

/// Whether the name is a keyword or builtin in this role.
fn is_word(text: &str, role: Role) -> bool {
    let is_keyword = is_python_keyword(text);
    let is_known = || PYTHON_BUILTINS.contains(&text) || TYPESCRIPT_WORDS.contains(&text);
    match role {
        Role::Parameter => is_keyword,
        Role::Tool => is_keyword || is_known(),
        Role::Server => is_keyword || is_known() || OFFERED.contains(&text),
    }
}

/// Identifiers already in use.
#[derive(Debug)]
struct ReservedNames {
    role: Role,
    folded: HashSet<String>,
    /// The last number tried for each identifier that was wanted, folded: those up to it stay taken.
    tried: HashMap<String, u32>,
}

impl ReservedNames {
    fn new(role: Role) -> Self {
        Self {
            role,
            folded: HashSet::new(),
            tried: HashMap::new(),
        }
    }

    /// The identifier itself where it is free, else with the first number that is.
    fn take(&mut self, wanted: &str) -> String {
        let own = self.own_claim(wanted);
        let mut found = wanted.to_owned();
        let mut number = self.tried.get(&own).copied().unwrap_or(1);
        while !self.is_free(&found) {
            number = number.saturating_add(1);
            found = format!("{wanted}_{number}");
        }
        self.tried.insert(own, number);
        for claim in self.claims(&found) {
            self.folded.insert(claim);
        }
        found
    }

    fn is_free(&self, text: &str) -> bool {
        !self.claims(text).any(|claim| self.folded.contains(&claim))
    }

    /// The identifier itself, and the other names that it takes.
    fn claims(&self, text: &str) -> impl Iterator<Item = String> + use<> {
        let own = self.own_claim(text);
        let beside = (self.role == Role::Tool).then(|| format!("{own}{ASYNC_SUFFIX}"));
        std::iter::once(own).chain(beside)
    }

    /// The identifier itself, as it is compared.
    fn own_claim(&self, text: &str) -> String {
        match self.role {
            // Parameters are in no file's name.
            Role::Parameter => text.to_owned(),
            Role::Server | Role::Tool => text.to_ascii_lowercase(),
        }
    }
}

/// The names of types in one stub, so that no two share one.
#[derive(Debug)]
pub(super) struct TypeNames {
    taken: HashSet<String>,
}

impl TypeNames {
    /// None yet but what the stub itself needs.
    pub(super) fn new(tool: &str) -> Self {
        let own = ["Args", "Result", "Promise", "Record", "Array"];
        let mut taken: HashSet<String> = own.map(str::to_ascii_lowercase).into();
        taken.insert(tool.to_ascii_lowercase());
        taken.insert(format!("{tool}{ASYNC_SUFFIX}").to_ascii_lowercase());
        Self { taken }
    }

    /// A free name like the one wanted, in the form `LikeThis`.
    pub(super) fn take(&mut self, wanted: &str) -> String {
        let wanted = pascal(wanted);
        let mut found = wanted.clone();
        let mut number = 1_u32;
        while PYTHON_KEYWORDS.contains(&found.as_str())
            || !self.taken.insert(found.to_ascii_lowercase())
        {
            number = number.saturating_add(1);
            found = format!("{wanted}{number}");
        }
        found
    }
}

/// `LikeThis`, of ASCII letters and digits.
fn pascal(text: &str) -> String {
    let mut name = String::new();
    for word in text.split(|letter: char| !letter.is_ascii_alphanumeric()) {
        let mut letters = word.chars();
        name.extend(letters.next().map(|first| first.to_ascii_uppercase()));
        name.extend(letters);
    }
    name.truncate(limits::IDENTIFIER_CHARS_MAX);
    if name.starts_with(|first: char| first.is_ascii_alphabetic()) {
        name
    } else {
        format!("Type{name}")
    }
}

/// Whether a module of TypeScript could not call something so.
pub(super) fn is_typescript_word(name: &str) -> bool {
    TYPESCRIPT_WORDS.contains(&name)
}
