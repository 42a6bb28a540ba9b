//! What the table of settings is made of: each row states its name, its help text and its shape, and is read by the
//! parser and by the generated documents alike. A setting that is not in the table can neither be set nor be documented.

use std::ops::RangeInclusive;

/// What every setting states, whatever its shape.
#[derive(Debug)]
pub(crate) struct SettingInfo {
    /// `<section>.<name>`, the last part carrying the unit.
    pub(crate) key: &'static str,
    /// The name that an existing ContextForge environment file uses for the same thing.
    pub(crate) contextforge_name: Option<&'static str>,
    /// Other names of the same key in the file; like the name itself, with dots that lead into tables.
    pub(crate) aliases: &'static [&'static str],
    /// The command-line flag of `mooring serve` that sets it.
    pub(crate) flag: Option<&'static str>,
    /// What it does, in sentences.
    pub(crate) meaning: &'static str,
    /// What leaving it out means, where the default value does not say it by itself.
    pub(crate) unset: Option<&'static str>,
    /// Whether error messages may repeat its value.
    pub(crate) disclosure: Disclosure,
}

impl SettingInfo {
    /// A setting that only the file, the environment and the default can set. The meaning may be the lines of a doc
    /// comment, which begin with a space.
    pub(crate) const fn new(key: &'static str, meaning: &'static str) -> Self {
        let meaning = match meaning.as_bytes() {
            [b' ', ..] => meaning.split_at(1).1,
            _ => meaning,
        };
        Self {
            key,
            contextforge_name: None,
            aliases: &[],
            flag: None,
            meaning,
            unset: None,
            disclosure: Disclosure::Open,
        }
    }

    pub(crate) const fn contextforge_name(mut self, name: &'static str) -> Self {
        self.contextforge_name = Some(name);
        self
    }

    pub(crate) const fn aliases(mut self, names: &'static [&'static str]) -> Self {
        self.aliases = names;
        self
    }

    pub(crate) const fn flag(mut self, name: &'static str) -> Self {
        self.flag = Some(name);
        self
    }

    pub(crate) const fn unset(mut self, meaning: &'static str) -> Self {
        self.unset = Some(meaning);
        self
    }

    pub(crate) const fn disclosure(mut self, disclosure: Disclosure) -> Self {
        self.disclosure = disclosure;
        self
    }

    /// The part before the first dot.
    pub(crate) fn section(&self) -> &'static str {
        self.key.split_once('.').map_or("", |(section, _)| section)
    }

    /// The part after it; further dots lead into tables.
    pub(crate) fn name(&self) -> &'static str {
        self.key.split_once('.').map_or(self.key, |(_, name)| name)
    }

    /// Every name in the file, its own first.
    pub(crate) fn names(&self) -> impl Iterator<Item = &'static str> {
        std::iter::once(self.name()).chain(self.aliases.iter().copied())
    }

    /// `MOORING_<SECTION>_<NAME>`.
    pub(crate) fn environment_name(&self) -> String {
        format!("MOORING_{}", self.key.replace('.', "_").to_uppercase())
    }
}

/// Whether a value may be repeated in an error message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Disclosure {
    /// Anybody may read it.
    Open,
    /// It may carry a password in front of an `@`, which is blotted out.
    Credentials,
    /// All of it may be a secret.
    Hidden,
}

/// What rows of every shape have.
pub(crate) trait Row: 'static {
    /// Name and meaning.
    fn about(&self) -> &SettingInfo;
}

/// The shapes of rows: for each a struct with what its rows state besides name and meaning, and a variant of [`Setting`].
macro_rules! shapes {
    ($($(#[doc = $doc:literal])+ $shape:ident { $($(#[doc = $field_doc:literal])+ $field:ident: $type:ty,)+ })+) => {
        $(
            $(#[doc = $doc])+
            #[derive(Debug)]
            pub(crate) struct $shape {
                pub(crate) about: SettingInfo,
                $($(#[doc = $field_doc])+ pub(crate) $field: $type,)+
            }

            impl $shape {
                pub(crate) const fn new(about: SettingInfo, $($field: $type),+) -> Self {
                    Self { about, $($field),+ }
                }
            }

            impl Row for $shape {
                fn about(&self) -> &SettingInfo {
                    &self.about
                }
            }
        )+

        /// One row of the table.
        #[derive(Debug, Clone, Copy)]
        pub(crate) enum Setting {
            $($shape(&'static $shape),)+
        }

        impl Row for Setting {
            fn about(&self) -> &'static SettingInfo {
                match self {
                    $(Self::$shape(setting) => &setting.about,)+
                }
            }
        }
    };
}

shapes! {
    /// A whole number with a unit.
    Integer {
        /// The unit as it is spoken: `seconds`, `bytes`.
        unit: &'static str,
        /// Value when unset.
        default: u64,
        /// The values allowed.
        range: RangeInclusive<u64>,
    }
    /// True or false.
    Switch {
        /// Value when unset.
        default: bool,
    }
    /// Text with a shape that the subsystem's own parser checks.
    Text {
        /// Longest value allowed, in bytes.
        bytes_max: usize,
        /// What is allowed, as the end of the sentence "allowed: ...".
        shape: &'static str,
        /// Value when unset; `None` where leaving it out is a case of its own.
        default: Option<&'static str>,
    }
    /// A list of texts; in the environment separated by commas.
    List {
        /// Most items allowed.
        items_max: usize,
        /// Longest item allowed, in bytes.
        item_bytes_max: usize,
        /// What one item may be, as the end of the sentence "allowed: a list of ...".
        shape: &'static str,
    }
    /// A table of names to texts; only the file can hold one.
    Map {
        /// Most entries allowed.
        entries_max: usize,
        /// What an entry may be, as the end of the sentence "allowed: ...".
        shape: &'static str,
    }
    /// A list of tables with fields of their own; in the environment a JSON array of objects.
    Tables {
        /// Most tables allowed.
        tables_max: usize,
        /// The rows of one table; their keys begin with a name of their own, which stands in no file.
        fields: &'static [&'static [Setting]],
    }
    /// One word out of a few: the [`Words`] of a type.
    Choice {
        /// Each word with its meaning, the default first.
        words: fn() -> Vec<(&'static str, &'static str)>,
    }
}

/// One word of a [`Choice`]: how it is written, what the program sees, and what it means, in a few words.
pub(crate) type Word<T> = (&'static str, T, &'static str);

/// A type whose values are the words of a [`Choice`].
pub(crate) trait Words: Copy + 'static {
    /// The word that stands in for a missing one.
    const DEFAULT: Word<Self>;
    /// The other words allowed.
    const OTHERS: &'static [Word<Self>];

    /// The value of a word.
    fn of_word(word: &str) -> Option<Self> {
        let options = [Self::DEFAULT]
            .into_iter()
            .chain(Self::OTHERS.iter().copied());
        let mut values = options.filter_map(|(known, value, _)| (known == word).then_some(value));
        values.next()
    }
}

/// Each word of a type with its meaning, the default first.
pub(crate) fn words<T: Words>() -> Vec<(&'static str, &'static str)> {
    let options = [T::DEFAULT].into_iter().chain(T::OTHERS.iter().copied());
    options
        .map(|(word, _, meaning)| (word, meaning.trim_start()))
        .collect()
}

/// A row of `[code]` that says what is true of every server of kind `code`, and the row by which one server differs.
#[derive(Debug)]
pub(crate) struct InheritedSetting<S> {
    /// In `[code]`.
    pub(crate) standard: S,
    /// In `[[servers]]`; none where all servers are alike.
    pub(crate) own: Option<S>,
}

/// Rows by what they are about, and the kinds of servers that have them; none where every server does, and where they are
/// not of servers.
pub(crate) type Group = (&'static [&'static str], &'static [&'static [Setting]]);

/// A table of the file.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Section {
    /// Its name in the file.
    pub(crate) name: &'static str,
    /// What it is about.
    pub(crate) meaning: &'static str,
    /// Its rows.
    pub(crate) groups: &'static [Group],
}

impl Section {
    /// Its rows.
    pub(crate) fn settings(&self) -> impl Iterator<Item = &'static Setting> {
        let groups = self.groups.iter().flat_map(|(_, groups)| *groups);
        groups.copied().flatten()
    }
}

impl Setting {
    /// What is allowed, as the end of the sentence "allowed: ...".
    pub(crate) fn allowed(&self) -> String {
        match self {
            Self::Integer(Integer { unit, range, .. }) => format!(
                "a whole number of {unit} from {} to {}, without a unit after it",
                range.start(),
                range.end()
            ),
            Self::Switch(_) => "true or false".to_owned(),
            Self::Text(setting) => setting.shape.to_owned(),
            Self::List(setting) => setting.allowed(),
            Self::Map(setting) => setting.shape.to_owned(),
            Self::Tables(setting) => setting.allowed(),
            Self::Choice(setting) => quoted((setting.words)().into_iter().map(|(word, _)| word)),
        }
    }

    /// The default as a reader would write it; `None` where unset is a case of its own.
    pub(crate) fn default_text(&self) -> Option<String> {
        if self.about().unset.is_some() {
            return None;
        }
        match self {
            Self::Integer(setting) => Some(setting.default.to_string()),
            Self::Switch(setting) => Some(setting.default.to_string()),
            Self::Text(setting) => setting.default.map(str::to_owned),
            Self::List(_) | Self::Map(_) | Self::Tables(_) => None,
            Self::Choice(setting) => (setting.words)()
                .first()
                .map(|(word, _)| (*word).to_owned()),
        }
    }
}

impl List {
    /// What is allowed, as the end of the sentence "allowed: ...".
    pub(crate) fn allowed(&self) -> String {
        format!("a list of at most {} of: {}", self.items_max, self.shape)
    }
}

impl Tables {
    /// The rows of one table.
    pub(crate) fn rows(&self) -> impl Iterator<Item = &'static Setting> {
        self.fields.iter().copied().flatten()
    }

    /// What is allowed, as the end of the sentence "allowed: ...".
    pub(crate) fn allowed(&self) -> String {
        let names: Vec<&str> = self.rows().map(|row| row.about().name()).collect();
        format!(
            "a list of at most {} tables, each with any of {}",
            self.tables_max,
            names.join(", ")
        )
    }
}

/// `"a", "b" or "c"`.
pub(crate) fn quoted<'a>(words: impl Iterator<Item = &'a str>) -> String {
    let words: Vec<String> = words.map(|word| format!("{word:?}")).collect();
    match words.split_last() {
        None => String::new(),
        Some((last, [])) => last.clone(),
        Some((last, others)) => format!("{} or {last}", others.join(", ")),
    }
}
