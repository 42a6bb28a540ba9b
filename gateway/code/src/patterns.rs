//! The scan for dangerous patterns: a run that the sandbox would stop is refused at once, with the reason.
//!
//! It is advice and no isolation: a caller can evade it, and the sandbox is what protects. So it errs on the side of
//! harmless code. Of the 19 Python patterns of the system that the seeds describe, eight block; `eval`, `exec` and
//! `__import__` only warn, and `compile`, `globals`, `getattr`, `setattr`, `delattr`, `vars`, `dir` and `__class__.` are not
//! here, because ordinary code uses them and inside the sandbox they reach nothing. Of its six for TypeScript all block
//! but `eval`, which warns.
//!
//! Patterns look at code without its comments and, but for those about what a string says, without the text of its
//! strings: the text of a string does not run. (What an f-string or a template literal computes counts as text.)
//!
//! There is this one list, for runs and for skills alike. Settings, examples and charts repeat none of it: it applies
//! where they set no patterns.
//!
//! Invariant: the time of a scan is linear in the length of the code, whatever the patterns.

mod mask;

use mooring_settings::TextPattern;
use regex::Regex;

use self::mask::{MaskedCode, mask_code};
use mooring_settings::Language;

/// The reading of the code that a pattern is matched against.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum PatternScope {
    /// Code without comments and without the text of strings.
    Code,
    /// Code without comments.
    Strings,
}

/// The effect of a pattern on code that matches it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum PatternAction {
    /// It does not run.
    Block,
    /// It runs, and a security event says so.
    Warn,
}

/// The patterns that a server has unless its settings name others: name, action, scope, expression.
type DefaultPattern = (&'static str, PatternAction, PatternScope, &'static str);

/// A name that is called, and that is no attribute of something else.
macro_rules! call {
    ($name:literal) => {
        concat!(r"(?:^|[^.\w$])", $name, r"\s*\(")
    };
}

#[rustfmt::skip]
const PYTHON: [DefaultPattern; 11] = [
    ("os.system", PatternAction::Block, PatternScope::Code, r"\bos\s*\.\s*system\s*\("),
    ("subprocess", PatternAction::Block, PatternScope::Code, r"\bsubprocess\s*\.\s*\w"),
    ("open of a system path", PatternAction::Block, PatternScope::Strings,
        r#"(?:^|[^.\w])open\s*\(\s*[rRbBuUfF]{0,2}["']{1,3}/(?:etc|proc|sys)(?:/|["'])"#),
    ("__subclasses__", PatternAction::Block, PatternScope::Code, r"\b__subclasses__\b"),
    ("__bases__", PatternAction::Block, PatternScope::Code, r"\b__bases__\b"),
    ("__mro__", PatternAction::Block, PatternScope::Code, r"\b__mro__\b"),
    ("breakpoint", PatternAction::Block, PatternScope::Code, call!("breakpoint")),
    ("__builtins__", PatternAction::Block, PatternScope::Code, r"\b__builtins__\b"),
    ("eval", PatternAction::Warn, PatternScope::Code, call!("eval")),
    ("exec", PatternAction::Warn, PatternScope::Code, call!("exec")),
    ("__import__", PatternAction::Warn, PatternScope::Code, call!("__import__")),
];

#[rustfmt::skip]
const TYPESCRIPT: [DefaultPattern; 6] = [
    ("Deno.run", PatternAction::Block, PatternScope::Code, r"\bDeno\s*\.\s*run\b"),
    ("Deno.Command", PatternAction::Block, PatternScope::Code, r"\bDeno\s*\.\s*Command\b"),
    ("fetch", PatternAction::Block, PatternScope::Code, call!("fetch")),
    ("import from a URL", PatternAction::Block, PatternScope::Strings, r#"\bfrom\s*["']https?:"#),
    ("eval", PatternAction::Warn, PatternScope::Code, call!("eval")),
    ("dynamic import of a URL", PatternAction::Block, PatternScope::Strings, r#"\bimport\s*\(\s*["'`]https?:"#),
];

/// The first match of a pattern.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("blocked by the pattern {pattern:?} in line {line}, which code here may not use: {text}")]
pub struct PatternMatch {
    /// The pattern's name; of a configured one the expression itself.
    pub pattern: Box<str>,
    /// The line, from 1.
    pub line: usize,
    /// The line itself, trimmed, at most [`PatternMatch::TEXT_CHARS_MAX`] characters of it.
    pub text: Box<str>,
}

impl PatternMatch {
    /// How much of the line is shown.
    pub const TEXT_CHARS_MAX: usize = 120;
}

/// The patterns of one server.
#[derive(Debug, Clone)]
pub struct Patterns {
    python: Vec<Pattern>,
    typescript: Vec<Pattern>,
}

#[derive(Debug, Clone)]
struct Pattern {
    name: Box<str>,
    action: PatternAction,
    scope: PatternScope,
    expression: Regex,
}

impl Patterns {
    /// The patterns of the settings; none for the standard ones, an empty list for no scan.
    ///
    /// # Errors
    /// Never in practice: the standard expressions are tested.
    pub fn new(
        python: Option<&[TextPattern]>,
        typescript: Option<&[TextPattern]>,
    ) -> Result<Self, regex::Error> {
        Ok(Self {
            python: list(python, &PYTHON)?,
            typescript: list(typescript, &TYPESCRIPT)?,
        })
    }

    /// The same without those that name `fetch`, `curl` or `wget`: for a server whose policy lets code reach public addresses,
    /// which they would block.
    #[must_use]
    pub fn with_raw_http(&self) -> Self {
        let list = |patterns: &[Pattern]| {
            let kept = patterns.iter().filter(|pattern| {
                let mut words = ["fetch", "curl", "wget"].iter();
                !words.any(|word| pattern.expression.as_str().contains(word))
            });
            kept.cloned().collect()
        };
        Self {
            python: list(&self.python),
            typescript: list(&self.typescript),
        }
    }

    /// Looks through the code. Returns the first match of each pattern that only warns.
    ///
    /// # Errors
    /// [`PatternMatch`] of the first pattern that blocks, in the order of the lines. It is for the caller's eyes: the
    /// code is the caller's own.
    pub fn check(&self, language: Language, code: &str) -> Result<Vec<PatternMatch>, PatternMatch> {
        let patterns = match language {
            Language::Python => &self.python,
            Language::TypeScript => &self.typescript,
        };
        if patterns.is_empty() {
            return Ok(Vec::new());
        }
        let MaskedCode {
            without_comments,
            without_strings,
        } = mask_code(language, code);
        let matches = patterns.iter().filter_map(|pattern| {
            let text = match pattern.scope {
                PatternScope::Code => &without_strings,
                PatternScope::Strings => &without_comments,
            };
            // Most expressions include the character before the name; the last one matched is the pattern's.
            let found = pattern.expression.find(text)?;
            Some((found.end(), pattern))
        });
        let (blocking, warning): (Vec<_>, Vec<_>) =
            matches.partition(|(_, pattern)| pattern.action == PatternAction::Block);
        match blocking.into_iter().min_by_key(|(end, _)| *end) {
            Some((end, pattern)) => Err(match_at(pattern, code, end)),
            None => Ok((warning.into_iter())
                .map(|(end, pattern)| match_at(pattern, code, end))
                .collect()),
        }
    }
}

fn match_at(pattern: &Pattern, code: &str, end: usize) -> PatternMatch {
    let before = code.get(..end).unwrap_or(code).trim_end();
    let line = before.matches('\n').count();
    let text: String = code
        .split('\n')
        .nth(line)
        .unwrap_or("")
        .trim()
        .chars()
        .take(PatternMatch::TEXT_CHARS_MAX)
        .collect();
    PatternMatch {
        pattern: pattern.name.clone(),
        line: line.saturating_add(1),
        text: text.into(),
    }
}

fn list(
    configured: Option<&[TextPattern]>,
    standard: &[DefaultPattern],
) -> Result<Vec<Pattern>, regex::Error> {
    let Some(configured) = configured else {
        let standard = standard.iter().map(|(name, action, scope, expression)| {
            Ok(Pattern {
                name: (*name).into(),
                action: *action,
                scope: *scope,
                expression: Regex::new(expression)?,
            })
        });
        return standard.collect();
    };
    // Whether it means a string or code is unknown, so it is matched against both.
    let configured = configured.iter().map(|expression| Pattern {
        name: expression.as_str().into(),
        action: PatternAction::Block,
        scope: PatternScope::Strings,
        expression: Regex::clone(expression),
    });
    Ok(configured.collect())
}

#[cfg(test)]
mod tests;
