//! What the table of settings is made of: one constant per setting, read by the parser and by the three
//! generated documents alike. A setting that is not in the table can neither be set nor be documented.

/// What every setting states, whatever its type.
#[derive(Debug)]
pub struct SettingInfo {
    /// `<section>.<name>`, the last part carrying the unit.
    pub key: &'static str,
    /// The name that an existing ContextForge environment file uses for the same thing.
    pub seed: Option<&'static str>,
    /// Other names of the same key in the file; like the name itself, with dots that lead into tables.
    pub aliases: &'static [&'static str],
    /// The command-line flag of `mooring serve` that sets it.
    pub flag: Option<&'static str>,
    /// What it does, in sentences.
    pub meaning: &'static str,
    /// What leaving it out means, where the default value does not say it by itself.
    pub unset: Option<&'static str>,
}

impl SettingInfo {
    /// A setting that only the file, the environment and the default can set.
    pub(super) const fn new(key: &'static str, meaning: &'static str) -> Self {
        Self {
            key,
            seed: None,
            aliases: &[],
            flag: None,
            meaning,
            unset: None,
        }
    }

    pub(super) const fn seed(mut self, name: &'static str) -> Self {
        self.seed = Some(name);
        self
    }

    pub(super) const fn aliases(mut self, names: &'static [&'static str]) -> Self {
        self.aliases = names;
        self
    }

    pub(super) const fn flag(mut self, name: &'static str) -> Self {
        self.flag = Some(name);
        self
    }

    pub(super) const fn unset(mut self, meaning: &'static str) -> Self {
        self.unset = Some(meaning);
        self
    }

    /// The part before the first dot.
    pub fn section(&self) -> &'static str {
        self.key.split_once('.').map_or("", |(section, _)| section)
    }

    /// The part after it; further dots lead into tables.
    pub fn name(&self) -> &'static str {
        self.key.split_once('.').map_or(self.key, |(_, name)| name)
    }

    /// `MOORING_<SECTION>_<NAME>`.
    pub fn environment_name(&self) -> String {
        format!("MOORING_{}", self.key.replace('.', "_").to_uppercase())
    }
}

/// A whole number with a unit.
#[derive(Debug)]
pub struct Integer {
    /// Name and meaning.
    pub about: SettingInfo,
    /// The unit as it is spoken: `seconds`, `bytes`.
    pub unit: &'static str,
    /// Value when unset.
    pub default: u64,
    /// Smallest value allowed.
    pub least: u64,
    /// Largest value allowed.
    pub most: u64,
}

/// True or false.
#[derive(Debug)]
pub struct Switch {
    /// Name and meaning.
    pub about: SettingInfo,
    /// Value when unset.
    pub default: bool,
}

/// Whether a value may be repeated in an error message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Disclosure {
    /// Anybody may read it.
    Open,
    /// It may carry a password in front of an `@`, which is blotted out.
    Credentials,
    /// All of it may be a secret.
    Hidden,
}

/// Text with a shape that the subsystem's own parser checks.
#[derive(Debug)]
pub struct Text {
    /// Name and meaning.
    pub about: SettingInfo,
    /// Value when unset; `None` where leaving it out is a case of its own.
    pub default: Option<&'static str>,
    /// What is allowed, as the end of the sentence "allowed: ...".
    pub shape: &'static str,
    /// Longest value allowed, in bytes.
    pub bytes_max: usize,
    /// Whether error messages may repeat it.
    pub disclosure: Disclosure,
}

/// A list of texts; in the environment separated by commas.
#[derive(Debug)]
pub struct List {
    /// Name and meaning.
    pub about: SettingInfo,
    /// What one item may be, as the end of the sentence "allowed: a list of ...".
    pub shape: &'static str,
    /// Most items allowed.
    pub items_max: usize,
    /// Longest item allowed, in bytes.
    pub item_bytes_max: usize,
    /// Whether error messages may repeat an item.
    pub disclosure: Disclosure,
}

/// A table of names to texts; only the file can hold one.
#[derive(Debug)]
pub struct Map {
    /// Name and meaning.
    pub about: SettingInfo,
    /// What an entry may be, as the end of the sentence "allowed: ...".
    pub shape: &'static str,
    /// Most entries allowed.
    pub entries_max: usize,
}

/// One word out of a few, each with a typed value.
#[derive(Debug)]
pub struct Choice<T: 'static> {
    /// Name and meaning.
    pub about: SettingInfo,
    /// Value when unset.
    pub default: ChoiceOption<T>,
    /// The other words allowed.
    pub others: &'static [ChoiceOption<T>],
    /// Words that the contract knows and this version does not serve; refused with that reason.
    pub later: &'static [&'static str],
}

/// One word of a [`Choice`].
#[derive(Debug)]
pub struct ChoiceOption<T> {
    /// The word.
    pub name: &'static str,
    /// What the program sees.
    pub value: T,
    /// What it means, in a few words.
    pub meaning: &'static str,
}

impl<T> Choice<T> {
    /// Every word allowed, the default first.
    pub fn options(&self) -> impl Iterator<Item = &ChoiceOption<T>> {
        std::iter::once(&self.default).chain(self.others)
    }
}

/// A [`Choice`] without its type, as the generated documents see it.
pub trait Words: std::fmt::Debug {
    /// Name and meaning.
    fn about(&self) -> &SettingInfo;
    /// Words with their meanings, the default first.
    fn words(&self) -> Vec<(&'static str, &'static str)>;
}

impl<T: std::fmt::Debug> Words for Choice<T> {
    fn about(&self) -> &SettingInfo {
        &self.about
    }

    fn words(&self) -> Vec<(&'static str, &'static str)> {
        self.options()
            .map(|option| (option.name, option.meaning))
            .collect()
    }
}

/// One row of the table.
#[derive(Debug, Clone, Copy)]
pub enum Setting {
    /// A whole number.
    Integer(&'static Integer),
    /// True or false.
    Switch(&'static Switch),
    /// Shaped text.
    Text(&'static Text),
    /// A list of shaped texts.
    List(&'static List),
    /// A table of texts.
    Map(&'static Map),
    /// One word out of a few.
    Choice(&'static dyn Words),
}

/// A table of the file.
#[derive(Debug, Clone, Copy)]
pub struct Section {
    /// Its name in the file.
    pub name: &'static str,
    /// What it is about.
    pub meaning: &'static str,
    /// Its rows, by what they are about.
    pub groups: &'static [&'static [Setting]],
}

impl Section {
    /// Its rows.
    pub fn settings(&self) -> impl Iterator<Item = &'static Setting> {
        self.groups.iter().copied().flatten()
    }
}

impl Setting {
    /// Name and meaning.
    pub fn about(&self) -> &SettingInfo {
        match self {
            Self::Integer(setting) => &setting.about,
            Self::Switch(setting) => &setting.about,
            Self::Text(setting) => &setting.about,
            Self::List(setting) => &setting.about,
            Self::Map(setting) => &setting.about,
            Self::Choice(setting) => setting.about(),
        }
    }

    /// What is allowed, as the end of the sentence "allowed: ...".
    pub fn allowed(&self) -> String {
        match self {
            Self::Integer(setting) => setting.allowed(),
            Self::Switch(_) => Switch::ALLOWED.to_owned(),
            Self::Text(setting) => setting.shape.to_owned(),
            Self::List(setting) => setting.allowed(),
            Self::Map(setting) => setting.shape.to_owned(),
            Self::Choice(setting) => quoted(setting.words().into_iter().map(|(word, _)| word)),
        }
    }

    /// The default as a reader would write it; `None` where unset is a case of its own.
    pub fn default_text(&self) -> Option<String> {
        if self.about().unset.is_some() {
            return None;
        }
        match self {
            Self::Integer(setting) => Some(setting.default.to_string()),
            Self::Switch(setting) => Some(setting.default.to_string()),
            Self::Text(setting) => setting.default.map(str::to_owned),
            Self::List(_) | Self::Map(_) => None,
            Self::Choice(setting) => setting.words().first().map(|(word, _)| (*word).to_owned()),
        }
    }
}

impl Integer {
    /// What is allowed, as the end of the sentence "allowed: ...".
    pub fn allowed(&self) -> String {
        format!(
            "a whole number of {} from {} to {}, without a unit after it",
            self.unit, self.least, self.most
        )
    }
}

impl Switch {
    pub(super) const ALLOWED: &'static str = "true or false";
}

impl List {
    /// What is allowed, as the end of the sentence "allowed: ...".
    pub fn allowed(&self) -> String {
        format!("a list of at most {} of: {}", self.items_max, self.shape)
    }
}

/// `"a", "b" or "c"`.
pub(super) fn quoted<'a>(words: impl Iterator<Item = &'a str>) -> String {
    let words: Vec<String> = words.map(|word| format!("{word:?}")).collect();
    match words.split_last() {
        None => String::new(),
        Some((last, [])) => last.clone(),
        Some((last, others)) => format!("{} or {last}", others.join(", ")),
    }
}
