//! Which languages are advertised: those whose runtime is installed here and allowed by the policy.
//!
//! An agent cannot install a runtime, so a language that only fails is not worth its words.

use mooring_sandbox::{Runtimes, TOOLS};

use mooring_settings::{CodePolicy, CodeRuntime, Language, OnDenoAbsent};

/// What code can be written in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct LanguageOffer {
    /// The words that `language` may be. Where no language works, all are named, and a call says what is missing.
    pub(super) names: Vec<&'static str>,
    /// What code without a language is run as.
    pub(super) default: Language,
    /// The tools of the one-line shell; none where it is not allowed.
    pub(super) shell_tools: Vec<&'static str>,
}

impl LanguageOffer {
    /// What this policy and the runtimes of this machine offer; `runtimes` is none where there is no sandbox.
    pub(super) fn new(
        policy: &CodePolicy,
        runtimes: Option<&Runtimes>,
        on_deno_absent: OnDenoAbsent,
    ) -> Self {
        let is_installed = |language| {
            runtimes.is_none_or(|runtimes| match language {
                Language::Python => runtimes.python.path().is_some(),
                Language::TypeScript => runtimes.deno.path().is_some(),
            })
        };
        let works = |language: &Language| {
            policy.runtimes.contains(&CodeRuntime::of(*language)) && is_installed(*language)
        };
        let named = Language::ALL.into_iter().filter(works).flat_map(names_of);
        let mut names: Vec<_> = named.copied().collect();
        if names.is_empty() {
            names = Language::ALL
                .into_iter()
                .flat_map(names_of)
                .copied()
                .collect();
        }
        let is_shown = |name: &&str| {
            runtimes.is_none_or(|runtimes| {
                runtimes
                    .tool(name)
                    .is_some_and(|tool| tool.path().is_some())
            })
        };
        Self {
            names,
            default: default_language(
                policy.language,
                is_installed(Language::TypeScript),
                on_deno_absent,
            ),
            shell_tools: match policy.runtimes.contains(&CodeRuntime::Shell) {
                true => TOOLS.into_iter().filter(is_shown).collect(),
                false => Vec::new(),
            },
        }
    }

    /// Whether code can be written in this language.
    pub(super) fn has(&self, language: Language) -> bool {
        names_of(language)
            .iter()
            .any(|name| self.names.contains(name))
    }

    /// The languages in a sentence, such as "Python, TypeScript or JavaScript".
    pub(super) fn in_words(&self) -> String {
        let titles: Vec<_> = self.names.iter().map(|name| title(name)).collect();
        match titles.split_last() {
            Some((last, [])) => (*last).to_owned(),
            Some((last, others)) => format!("{} or {last}", others.join(", ")),
            None => String::new(),
        }
    }
}

/// What code that names no language is run as.
pub(super) const fn default_language(
    language: Language,
    has_deno: bool,
    on_deno_absent: OnDenoAbsent,
) -> Language {
    match (language, on_deno_absent) {
        (Language::TypeScript, OnDenoAbsent::RunPython) if !has_deno => Language::Python,
        (language, _) => language,
    }
}

const fn names_of(language: Language) -> &'static [&'static str] {
    match language {
        Language::Python => &["python"],
        Language::TypeScript => &["typescript", "javascript"],
    }
}

fn title(name: &str) -> &'static str {
    match name {
        "python" => "Python",
        "typescript" => "TypeScript",
        _ => "JavaScript",
    }
}
