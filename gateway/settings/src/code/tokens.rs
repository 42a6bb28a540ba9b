//! Whether personal data is replaced by tokens, and which: the defaults of `[code]`, and what a server's own
//! `tokenization` says in their place.

use super::patterns::{TextPattern, compile};
use crate::reader::{Reader, Reason, list};
use crate::rows::{inherited, words};

/// Most patterns of one server.
const PATTERNS_MAX: usize = 32;
/// Longest category in bytes.
const CATEGORY_BYTES_MAX: usize = 24;

inherited! {
    /// What is written of tokens.
    pub(super) struct TokensDraft {
        /// Whether personal data in the results of tools and the output of runs is replaced by tokens, and tokens in
        /// the arguments of tools by the original data.
        is_enabled: bool = Switch("code.default_tokenization_enabled" / "tokenization.enabled", false)
            .contextforge_name("CODE_EXECUTION_DEFAULT_TOKENIZATION_ENABLED"),
        /// Which personal data is replaced: e-mail addresses, telephone numbers, social security numbers, card numbers
        /// with a right check digit, and the texts under keys that are or end with `name`.
        types: Vec<PersonalDataType> = List(
            "code.default_tokenization_types" / "tokenization.types",
            5, 16, "email, phone, ssn, credit_card and name")
            .contextforge_name("CODE_EXECUTION_DEFAULT_TOKENIZATION_TYPES").unset("all of them")
            => |reader, row| reader.list(row, parse_type).map_or(PersonalDataType::ALL.to_vec(), distinct),
        /// The direction of the replacement.
        strategy: TokenizationStrategy = Choice("code.default_tokenization_strategy" / "tokenization.strategy")
            .contextforge_name("CODE_EXECUTION_DEFAULT_TOKENIZATION_STRATEGY"),
        /// Further data that is replaced: what a regular expression finds, by the category that its tokens have.
        /// Patterns win over the built-in types.
        patterns: Vec<(String, TextPattern)> = List(
            "code.default_tokenization_patterns" / "tokenization.patterns",
            PATTERNS_MAX,
            CATEGORY_BYTES_MAX + 1 + 512,
            "CATEGORY=regular expression, the category 1 to 24 capital letters, digits and _ with a letter at the start and \
             behind each _, the expression of at most 512 bytes without look-around and back-references, such as \
             IBAN=\\bDE[0-9]{20}\\b").unset("none") => list(parse_pattern),
    }
}

words! {
    /// The direction of the replacement.
    pub(super) enum TokenizationStrategy {
        /// on the way out, and back on the way to a tool
        Bidirectional = "bidirectional",
    }
}

/// Personal data that is known without a pattern.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum PersonalDataType {
    /// An e-mail address.
    Email,
    /// A telephone number.
    Phone,
    /// A social security number of the United States.
    Ssn,
    /// The number of a payment card, its check digit right.
    CreditCard,
    /// The text under a key that is or ends with `name`.
    Name,
}

impl PersonalDataType {
    /// Every one, in the order of the settings.
    pub const ALL: [Self; 5] = [
        Self::Email,
        Self::Phone,
        Self::Ssn,
        Self::CreditCard,
        Self::Name,
    ];

    /// The category of its tokens; in small letters, its word in the settings.
    #[must_use]
    pub const fn category(self) -> &'static str {
        match self {
            Self::Email => "EMAIL",
            Self::Phone => "PHONE",
            Self::Ssn => "SSN",
            Self::CreditCard => "CREDIT_CARD",
            Self::Name => "NAME",
        }
    }
}

/// Which personal data is replaced by tokens.
#[derive(Debug, Clone, PartialEq)]
pub struct TokenizationSettings {
    /// The types, each once.
    pub types: Vec<PersonalDataType>,
    /// What else is, by category: 1 to 24 capital letters, digits and `_`, a letter first and behind
    /// each `_`.
    pub patterns: Vec<(String, TextPattern)>,
}

impl TokensDraft {
    /// The server's own settings, with the defaults for those that it does not set.
    pub(super) fn of_server(reader: &mut Reader<'_>, standard: &Self) -> Self {
        let draft = Self::read(reader, Some(standard));
        let own = Self::is_enabled.own.as_ref();
        let says_whether = own.is_some_and(|row| reader.is_written(row));
        if !draft.is_enabled && !says_whether {
            refuse_idle(reader);
        }
        draft
    }

    /// The data to replace; none if tokenization is off.
    pub(super) fn settings(&self) -> Option<TokenizationSettings> {
        let TokenizationStrategy::Bidirectional = self.strategy;
        self.is_enabled.then(|| TokenizationSettings {
            types: self.types.clone(),
            patterns: self.patterns.clone(),
        })
    }
}

/// Refuses settings that name data while tokenization is off: the operator probably assumes that it is protected.
fn refuse_idle(reader: &mut Reader<'_>) {
    for row in [&TokensDraft::types.own, &TokensDraft::patterns.own]
        .into_iter()
        .flatten()
    {
        if reader.is_written(row) && !reader.was_refused(row) {
            reader.refuse(
                row,
                "",
                "nothing is replaced, as tokenization.enabled does not say true",
                "enabled = true or enabled = false beside it",
            );
        }
    }
}

fn parse_type(text: &str) -> Result<PersonalDataType, Reason> {
    PersonalDataType::ALL
        .into_iter()
        .find(|known| known.category().to_ascii_lowercase() == text)
        .ok_or_else(String::new)
}

fn distinct(mut types: Vec<PersonalDataType>) -> Vec<PersonalDataType> {
    types.sort_unstable();
    types.dedup();
    types
}

fn parse_pattern(text: &str) -> Result<(String, TextPattern), Reason> {
    let (category, pattern) = text
        .split_once('=')
        .ok_or("it has no category in front of an equals sign")?;
    if !is_category(category) {
        return Err(format!("{category:?} is no category"));
    }
    let compiled = compile(pattern)?;
    if compiled.is_match("") {
        return Err("it matches the empty text".to_owned());
    }
    Ok((category.to_owned(), compiled))
}

/// The number of a token follows the last `_`, so no digit may follow another one.
fn is_category(text: &str) -> bool {
    let known =
        |letter: char| letter.is_ascii_uppercase() || letter.is_ascii_digit() || letter == '_';
    let is_word = |word: &str| word.starts_with(|first: char| first.is_ascii_uppercase());
    text.len() <= CATEGORY_BYTES_MAX && text.chars().all(known) && text.split('_').all(is_word)
}
