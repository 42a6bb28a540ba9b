//! What is registered of a command: its flags, key spec, ACL categories, grammar and descriptions.
//!
//! The registration of the `redis-module` crate refuses Redis 7.0, so this module has its own. Invariant: COMMAND DOCS,
//! the reference pages and the parser use one table of these, `commands::TABLE`.

use std::ffi::{CStr, c_int};

use redis_module::raw;

use crate::failure::ErrorSpec;

/// The function of one command, as Redis calls it.
pub(crate) type Entry = unsafe extern "C" fn(
    *mut raw::RedisModuleCtx,
    *mut *mut raw::RedisModuleString,
    c_int,
) -> c_int;

/// One command as registered with Redis.
pub(crate) struct CommandSpec {
    /// Its name; INFO commandstats prints this spelling.
    pub(crate) name: &'static CStr,
    /// The function behind it.
    pub(crate) entry: Entry,
    /// Flags of `RM_CreateCommand`.
    pub(crate) flags: &'static CStr,
    /// Words with the name; negative for at least that many.
    pub(crate) arity: i32,
    /// What it does with its first argument.
    pub(crate) key: KeyAccess,
    /// One sentence.
    pub(crate) summary: &'static CStr,
    /// Complexity, in the notation of the Redis documentation.
    pub(crate) complexity: &'static CStr,
    /// The version of this module that introduced it.
    pub(crate) since: &'static CStr,
    /// Hints for clients and proxies.
    pub(crate) tips: Option<&'static CStr>,
    /// ACL categories of the server; the module's own is that of the [`family`](Self::family).
    pub(crate) categories: &'static CStr,
    /// Its grammar.
    pub(crate) arguments: &'static [ArgumentSpec],
    /// Its reply, for the reference page.
    #[cfg_attr(
        not(test),
        expect(dead_code, reason = "a test makes the reference page")
    )]
    pub(crate) reply: &'static str,
    /// What it does beyond the summary: paragraphs in Markdown, for its page.
    #[cfg_attr(not(test), expect(dead_code, reason = "a test makes the pages"))]
    pub(crate) details: &'static str,
    /// The errors that it can return beyond those of every command, for its page.
    #[cfg_attr(not(test), expect(dead_code, reason = "a test makes the pages"))]
    pub(crate) errors: &'static [ErrorSpec],
}

/// What a command does with the key in its first argument.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum KeyAccess {
    /// It has no key.
    Keyless,
    /// Reads it.
    Read,
    /// Reads and changes it.
    Update,
    /// Reads and drops it.
    Delete,
}

/// One argument of a command's grammar.
pub(crate) struct ArgumentSpec {
    /// What the value is.
    pub(crate) name: &'static CStr,
    /// Its type.
    pub(crate) kind: ArgumentKind,
    /// The token before it.
    pub(crate) token: Option<&'static CStr>,
    /// Whether it may be left out.
    pub(crate) optional: bool,
    /// Whether it may be repeated, with its token if it has one.
    pub(crate) multiple: bool,
    /// Whether SLOWLOG and MONITOR must not show it.
    pub(crate) is_secret: bool,
    /// The arguments of a block, or the alternatives.
    pub(crate) parts: &'static [ArgumentSpec],
}

/// The type of an argument.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ArgumentKind {
    /// The key.
    Key,
    /// Text.
    Text,
    /// An integer.
    Integer,
    /// A token without a value.
    Word,
    /// Several values after one token.
    Block,
    /// One of several arguments, each with its token.
    Either,
}

impl ArgumentSpec {
    const fn new(name: &'static CStr, kind: ArgumentKind) -> Self {
        Self {
            name,
            kind,
            token: None,
            optional: false,
            multiple: false,
            is_secret: false,
            parts: &[],
        }
    }

    /// The key.
    pub(crate) const fn key() -> Self {
        Self::new(c"key", ArgumentKind::Key)
    }

    /// Text.
    pub(crate) const fn text(name: &'static CStr) -> Self {
        Self::new(name, ArgumentKind::Text)
    }

    /// Text that SLOWLOG and MONITOR do not show.
    pub(crate) const fn secret(name: &'static CStr) -> Self {
        Self {
            is_secret: true,
            ..Self::text(name)
        }
    }

    /// An integer.
    pub(crate) const fn integer(name: &'static CStr) -> Self {
        Self::new(name, ArgumentKind::Integer)
    }

    /// An optional token.
    pub(crate) const fn word(name: &'static CStr, token: &'static CStr) -> Self {
        Self {
            token: Some(token),
            optional: true,
            ..Self::new(name, ArgumentKind::Word)
        }
    }

    /// Several values, after the token that [`after`](Self::after) sets.
    pub(crate) const fn block(name: &'static CStr, parts: &'static [Self]) -> Self {
        Self {
            parts,
            ..Self::new(name, ArgumentKind::Block)
        }
    }

    /// One of these arguments, or none.
    pub(crate) const fn either(name: &'static CStr, alternatives: &'static [Self]) -> Self {
        Self {
            parts: alternatives,
            optional: true,
            ..Self::new(name, ArgumentKind::Either)
        }
    }

    /// Its alternatives, for the reference pages; an argument of any other kind is its only one.
    #[cfg(test)]
    pub(crate) const fn alternatives(&self) -> &[Self] {
        match self.kind {
            ArgumentKind::Either => self.parts,
            _ => std::slice::from_ref(self),
        }
    }

    /// Its token or that of an alternative, if it is this word in either case.
    #[inline]
    pub(crate) fn token_like(&self, word: &[u8]) -> Option<&'static CStr> {
        let alternatives = match self.kind {
            ArgumentKind::Either => self.parts,
            _ => std::slice::from_ref(self),
        };
        for alternative in alternatives {
            if let Some(token) = alternative.token
                && word.eq_ignore_ascii_case(token.to_bytes())
            {
                return Some(token);
            }
        }
        None
    }

    /// The same after a token.
    pub(crate) const fn after(self, token: &'static CStr) -> Self {
        Self {
            token: Some(token),
            ..self
        }
    }

    /// The same, optional.
    pub(crate) const fn optional(self) -> Self {
        Self {
            optional: true,
            ..self
        }
    }

    /// The same, once or more often.
    pub(crate) const fn multiple(self) -> Self {
        Self {
            multiple: true,
            ..self
        }
    }

    /// Appends the argument's grammar to the line.
    pub(crate) fn usage(&self, line: &mut String) {
        let name = self.name.to_string_lossy();
        let token = self.token.map(CStr::to_string_lossy);
        let mut own = String::new();
        match (&token, self.kind) {
            (Some(token), ArgumentKind::Word) => own.push_str(token),
            (Some(token), ArgumentKind::Block) => {
                own.push_str(token);
                for part in self.parts {
                    part.usage(&mut own);
                }
            }
            (Some(token), _) => {
                own.push_str(token);
                own.push(' ');
                own.push_str(&name);
            }
            (None, ArgumentKind::Either) => {
                let alternatives = self.parts.iter().map(|part| {
                    let mut usage = String::new();
                    part.usage(&mut usage);
                    usage.trim_start().to_owned()
                });
                own.push_str(&alternatives.collect::<Vec<_>>().join("|"));
            }
            (None, _) => own.push_str(&name),
        }
        let (open, close) = if self.optional { ("[", "]") } else { ("", "") };
        let again = if self.multiple { " ..." } else { "" };
        for piece in [" ", open, &own, close, again] {
            line.push_str(piece);
        }
    }
}

impl CommandSpec {
    /// `session` or `worker`: the name before the dot, which is also an ACL category.
    pub(crate) fn family(&self) -> &'static str {
        let name = self.name.to_str().unwrap_or_default();
        name.split_once('.').map_or(name, |(family, _)| family)
    }

    /// The command's grammar in one line.
    pub(crate) fn usage(&self) -> String {
        let mut line = self.name.to_string_lossy().to_uppercase();
        for argument in self.arguments {
            argument.usage(&mut line);
        }
        line
    }
}
