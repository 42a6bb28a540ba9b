//! Whether personal data is replaced by tokens, and which: the defaults of `[code]`, and what a server's own
//! `tokenization` says in their place.

use std::path::PathBuf;

use regex::Regex;

use super::patterns::compile;
use crate::paths::absolute_file;
use crate::reader::{Reader, Reason};
use crate::setting::{Choice, ChoiceOption, Disclosure, List, Setting, SettingInfo, Switch, Text};

/// Most patterns of one server.
const PATTERNS_MAX: usize = 32;
/// Longest category in bytes.
const CATEGORY_BYTES_MAX: usize = 24;

const ENABLED: &str = "Whether personal data in what tools answer and in what runs print is replaced by tokens, and tokens in \
                       the arguments of tools by the data.";

const ENABLED_STANDARD: Switch = Switch {
    about: SettingInfo::new("code.default_tokenization_enabled", ENABLED)
        .seed("CODE_EXECUTION_DEFAULT_TOKENIZATION_ENABLED"),
    default: false,
};

const ENABLED_OWN: Switch = Switch {
    about: SettingInfo::new("servers.tokenization.enabled", ENABLED)
        .unset("as `code.default_tokenization_enabled` says"),
    default: false,
};

const TYPES: &str = "Which personal data is replaced: e-mail addresses, telephone numbers, social security numbers, card \
                     numbers with a right check digit, and the texts under keys that are or end with `name`.";

const TYPES_STANDARD: List = types(
    SettingInfo::new("code.default_tokenization_types", TYPES)
        .seed("CODE_EXECUTION_DEFAULT_TOKENIZATION_TYPES")
        .unset("all of them"),
);

const TYPES_OWN: List = types(
    SettingInfo::new("servers.tokenization.types", TYPES)
        .unset("as `code.default_tokenization_types` says"),
);

const fn types(about: SettingInfo) -> List {
    List {
        about,
        shape: "email, phone, ssn, credit_card and name",
        items_max: 5,
        item_bytes_max: 16,
        disclosure: Disclosure::Open,
    }
}

const STRATEGY: &str = "Which way data is replaced.";

const STRATEGY_STANDARD: Choice<()> = strategy(
    SettingInfo::new("code.default_tokenization_strategy", STRATEGY)
        .seed("CODE_EXECUTION_DEFAULT_TOKENIZATION_STRATEGY"),
);

const STRATEGY_OWN: Choice<()> =
    strategy(SettingInfo::new("servers.tokenization.strategy", STRATEGY));

const fn strategy(about: SettingInfo) -> Choice<()> {
    Choice {
        about,
        default: ChoiceOption {
            name: "bidirectional",
            value: (),
            meaning: "on the way out, and back on the way to a tool",
        },
        others: &[],
        later: &[],
    }
}

const PATTERNS: &str = "Further data that is replaced: what a regular expression finds, by the category that its tokens have. \
                        Patterns win over the built-in types.";

const PATTERNS_STANDARD: List =
    custom(SettingInfo::new("code.default_tokenization_patterns", PATTERNS).unset("none"));

const PATTERNS_OWN: List = custom(
    SettingInfo::new("servers.tokenization.patterns", PATTERNS)
        .unset("as `code.default_tokenization_patterns` says"),
);

const fn custom(about: SettingInfo) -> List {
    List {
        about,
        shape: "CATEGORY=regular expression, the category 1 to 24 capital letters, digits and _ with a letter at the start \
                and behind each _, the expression of at most 512 bytes without look-around and back-references, such as IBAN=\\bDE[0-9]{20}\\b",
        items_max: PATTERNS_MAX,
        item_bytes_max: CATEGORY_BYTES_MAX + 1 + 512,
        disclosure: Disclosure::Open,
    }
}

const TOKENS_KEY_FILE: Text = Text {
    about: SettingInfo::new(
        "code.tokens_key_file",
        "The file with the key that the sessions' maps of tokens are encrypted with, the same at every gateway: 32 bytes, \
         as 64 hexadecimal digits or in base64. Nobody but the gateway may read it.",
    )
    .unset("maps are not encrypted; only the gateway's user can read them"),
    default: None,
    shape: "an absolute path of a file",
    bytes_max: 4096,
    disclosure: Disclosure::Open,
};

/// The rows of `[code]`.
pub(super) const INHERITED_SETTINGS: &[Setting] = &[
    Setting::Switch(&ENABLED_STANDARD),
    Setting::List(&TYPES_STANDARD),
    Setting::Choice(&STRATEGY_STANDARD),
    Setting::List(&PATTERNS_STANDARD),
    Setting::Text(&TOKENS_KEY_FILE),
];

/// The rows of a server's `tokenization`.
pub(super) const OWN_SETTINGS: &[Setting] = &[
    Setting::Switch(&ENABLED_OWN),
    Setting::List(&TYPES_OWN),
    Setting::Choice(&STRATEGY_OWN),
    Setting::List(&PATTERNS_OWN),
];

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

    /// Its word in the settings.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Email => "email",
            Self::Phone => "phone",
            Self::Ssn => "ssn",
            Self::CreditCard => "credit_card",
            Self::Name => "name",
        }
    }

    /// The category of its tokens.
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
#[derive(Debug, Clone)]
pub struct TokenizationSettings {
    /// The types, each once.
    pub types: Vec<PersonalDataType>,
    /// What else is, by category: 1 to 24 capital letters, digits and `_`, a letter first and behind
    /// each `_`.
    pub patterns: Vec<(String, Regex)>,
}

/// The same, before it is known whether it is wanted.
#[derive(Debug, Clone)]
pub(super) struct TokensDraft {
    is_enabled: bool,
    settings: TokenizationSettings,
}

impl TokensDraft {
    /// What `[code]` says for every server.
    pub(super) fn parse_defaults(reader: &mut Reader<'_>) -> Self {
        reader.choice(&STRATEGY_STANDARD);
        let types = reader.list(&TYPES_STANDARD, parse_type);
        let patterns = reader.list(&PATTERNS_STANDARD, parse_pattern);
        Self {
            is_enabled: reader.switch(&ENABLED_STANDARD),
            settings: TokenizationSettings {
                types: types.map_or(PersonalDataType::ALL.to_vec(), distinct),
                patterns: patterns.unwrap_or_default(),
            },
        }
    }

    /// What a server says, and the standard where it says nothing.
    pub(super) fn parse_overrides(reader: &mut Reader<'_>, standard: &Self) -> Self {
        reader.choice(&STRATEGY_OWN);
        let settings = &standard.settings;
        let types = reader.list(&TYPES_OWN, parse_type).map(distinct);
        let patterns = reader.list(&PATTERNS_OWN, parse_pattern);
        let is_enabled = reader.switch_or(&ENABLED_OWN, standard.is_enabled);
        if !is_enabled && !reader.is_written(&ENABLED_OWN.about) {
            refuse_idle(reader);
        }
        Self {
            is_enabled,
            settings: TokenizationSettings {
                types: types.unwrap_or_else(|| settings.types.clone()),
                patterns: patterns.unwrap_or_else(|| settings.patterns.clone()),
            },
        }
    }

    /// What is replaced; none where nothing is.
    pub(super) fn settings(&self) -> Option<TokenizationSettings> {
        self.is_enabled.then(|| self.settings.clone())
    }
}

/// The file of the key, where the maps are encrypted.
pub(super) fn parse_key_file(reader: &mut Reader<'_>) -> Option<PathBuf> {
    reader.text(&TOKENS_KEY_FILE, absolute_file)
}

/// Who names data and switches nothing on most likely believes that it is protected.
fn refuse_idle(reader: &mut Reader<'_>) {
    for about in [&TYPES_OWN.about, &PATTERNS_OWN.about] {
        if reader.is_written(about) && !reader.was_refused(about) {
            reader.refuse(
                about,
                String::new(),
                "nothing is replaced, as tokenization.enabled does not say true".to_owned(),
                "enabled = true or enabled = false beside it".to_owned(),
            );
        }
    }
}

fn parse_type(text: &str) -> Result<PersonalDataType, Reason> {
    PersonalDataType::ALL
        .into_iter()
        .find(|known| known.as_str() == text)
        .ok_or_else(String::new)
}

fn distinct(mut types: Vec<PersonalDataType>) -> Vec<PersonalDataType> {
    types.sort_unstable();
    types.dedup();
    types
}

fn parse_pattern(text: &str) -> Result<(String, Regex), Reason> {
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
