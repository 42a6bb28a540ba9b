//! Which sessions an operator looks for. What the store has an index for is part of its query; the rest is compared here.
//!
//! Invariant: a word is found here exactly if the store finds it in the names of a session, or if it is part of a state.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use mooring_session::names::{InstanceName, NameError, Principal, ServerName, WorkerId};
use mooring_session::record::SessionState;
use mooring_session::session_digest::DIGEST_DIGITS_MIN;
use mooring_session::view::{BindingView, RecordView};

use crate::words::SessionKind;
use mooring_secrets::digest::SHORT_DIGITS;
use mooring_store::{Family, Order, SessionKey, SessionQuery, literal_pattern};

/// Most bytes of the text to search for.
const TEXT_BYTES_MAX: usize = 512;
/// Most words in it.
const WORDS_MAX: usize = 16;
/// Words for the states of sessions and bindings. The store searches names only.
const STATE_WORDS: [&str; 6] = ["active", "expired", "ended", "claimed", "bound", "orphaned"];

/// Selects sessions. What is not set matches every session; all that is set must match.
#[derive(Clone, Debug, Default)]
pub struct SessionFilter {
    /// The owner of the session.
    pub principal: Option<Principal>,
    /// Sessions at this server.
    pub server: Option<ServerName>,
    /// Sessions with a binding on this instance.
    pub instance: Option<InstanceName>,
    /// Sessions with a connection that this gateway owns.
    pub owner: Option<WorkerId>,
    /// Sessions in this state.
    pub state: Option<SessionState>,
    /// Sessions of these kinds; all if empty.
    pub kinds: Vec<SessionKind>,
    /// Sessions with this label.
    pub label: Option<LabelFilter>,
    /// Sessions with a binding of at least this epoch.
    pub epoch_min: Option<u64>,
    /// Sessions that have all words of this text in their names and states.
    pub text: Option<SearchText>,
}

/// A filter as texts: the parameters of a query, the arguments of a tool, the flags of a command.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct SessionSearch {
    /// The owner of the session: the user's whole name.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub user: Option<String>,
    /// The id of a server that the session is at.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub server: Option<String>,
    /// An instance that the session is bound to.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub instance: Option<String>,
    /// The id of a gateway that owns a connection of the session.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub owner: Option<String>,
    /// active, expired, ended or any; active if it is left out.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub state: Option<String>,
    /// mcp, code or agent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kind: Option<String>,
    /// A label of the session, as name or name=value.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub label: Option<String>,
    /// The lowest epoch that a binding of the session has.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub epoch: Option<String>,
    /// Words to find in the names of the session: user, server, instance, owner, gateway and place; in its states, and at
    /// the beginning of its digest; user:, server:, instance:, owner:, state:, kind:, label: and epoch:
    /// before a word set the field of that name.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub text: Option<String>,
}

impl SessionSearch {
    /// The names of the fields.
    pub const FIELDS: [&str; 9] = [
        "user", "server", "instance", "owner", "state", "kind", "label", "epoch", "text",
    ];

    /// The field of this name.
    #[must_use]
    pub fn field(&self, name: &str) -> Option<&str> {
        let value = match name {
            "user" => &self.user,
            "server" => &self.server,
            "instance" => &self.instance,
            "owner" => &self.owner,
            "state" => &self.state,
            "kind" => &self.kind,
            "label" => &self.label,
            "epoch" => &self.epoch,
            "text" => &self.text,
            _ => &None,
        };
        value.as_deref()
    }

    /// Whether it selects every session.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// What it asks for, in the form of the free text: for an audit line.
    #[must_use]
    pub fn to_text(&self) -> String {
        let named = Self::FIELDS.iter().filter_map(|name| {
            let value = self.field(name)?;
            Some(match *name {
                "text" => value.to_owned(),
                name => format!("{name}:{value}"),
            })
        });
        named.collect::<Vec<_>>().join(" ")
    }

    /// The filter, of active sessions unless a state is named.
    ///
    /// # Errors
    /// See [`FilterError`].
    pub fn filter(&self) -> Result<SessionFilter, FilterError> {
        let mut filter = SessionFilter {
            state: Some(SessionState::Active),
            ..SessionFilter::default()
        };
        for name in Self::FIELDS {
            match (name, self.field(name)) {
                (_, None) => {}
                ("text", Some(text)) => filter.search(text)?,
                (name, Some(value)) => {
                    filter.set(name, value)?;
                }
            }
        }
        Ok(filter)
    }
}

/// Why a filter cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FilterError {
    /// A name is invalid.
    #[error(transparent)]
    Name(#[from] NameError),
    /// The text to search for is too long.
    #[error("the text to search for has at most {TEXT_BYTES_MAX} bytes and {WORDS_MAX} words")]
    TooLong,
    /// A number is invalid.
    #[error("epoch is a number from 1")]
    Epoch,
    /// A word after a colon is none of its kind.
    #[error("{name} is one of {words}")]
    Word {
        /// Before the colon.
        name: &'static str,
        /// The words that are known.
        words: String,
    },
}

/// A label: its name, and its value if that matters.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LabelFilter {
    name: Box<str>,
    value: Option<Box<str>>,
}

impl LabelFilter {
    /// Parses `name` or `name=value`.
    #[must_use]
    pub fn parse(text: &str) -> Self {
        match text.split_once('=') {
            Some((name, value)) => Self {
                name: name.into(),
                value: Some(value.into()),
            },
            None => Self {
                name: text.into(),
                value: None,
            },
        }
    }

    fn matches(&self, record: &RecordView) -> bool {
        record.labels.iter().any(|(name, value)| {
            let is_value = |wanted: &str| wanted == value.as_str();
            name.as_str() == &*self.name && self.value.as_deref().is_none_or(is_value)
        })
    }
}

/// Words to look for in the names and states of a session and at the beginning of its digest, in any order and case.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SearchText(Vec<Box<str>>);

impl SearchText {
    fn matches(&self, key: &SessionKey, record: &RecordView) -> bool {
        let (digest, names) = (key.digest(), names_and_states(key, record));
        self.0.iter().all(|word| {
            names.contains(&**word)
                || (word.len() >= DIGEST_DIGITS_MIN && digest.starts_with(&**word))
        })
    }

    /// The word that the store looks for: the longest that is not that of a state.
    fn stored_word(&self) -> Option<&str> {
        let words = self.0.iter().map(|word| &**word);
        let names = words.filter(|word| !STATE_WORDS.iter().any(|state| state.contains(word)));
        names.max_by_key(|word| word.len())
    }

    /// The digest that it is, if it is nothing else.
    fn digest(&self) -> Option<&str> {
        match &*self.0 {
            [word] if word.len() == SHORT_DIGITS && word.bytes().all(|b| b.is_ascii_hexdigit()) => {
                Some(word)
            }
            _ => None,
        }
    }
}

impl SessionFilter {
    /// Adds what a person types to look for: words, of which `user:`, `server:`, `instance:`, `owner:`, `state:`, `kind:`,
    /// `label:` and `epoch:` set the field of that name.
    ///
    /// # Errors
    /// See [`FilterError`].
    pub fn search(&mut self, text: &str) -> Result<(), FilterError> {
        if text.len() > TEXT_BYTES_MAX {
            return Err(FilterError::TooLong);
        }
        let mut words = Vec::new();
        for word in text.split_whitespace() {
            match word.split_once(':') {
                Some((name, value)) if self.set(name, value)? => {}
                _ => words.push(word.to_ascii_lowercase().into_boxed_str()),
            }
        }
        if words.len() > WORDS_MAX {
            return Err(FilterError::TooLong);
        }
        self.text = (!words.is_empty()).then_some(SearchText(words));
        Ok(())
    }

    /// Sets the field of this name; false if there is none.
    fn set(&mut self, name: &str, value: &str) -> Result<bool, FilterError> {
        match name {
            "user" => self.principal = Some(Principal::parse(value.as_bytes())?),
            "server" => self.server = Some(ServerName::parse(value.as_bytes())?),
            "instance" => self.instance = Some(InstanceName::parse(value.as_bytes())?),
            "owner" => self.owner = Some(WorkerId::parse(value.as_bytes())?),
            "state" => self.state = parse_state(value)?,
            "kind" => self.kinds = vec![parse_word("kind", value)?],
            "label" => self.label = Some(LabelFilter::parse(value)),
            "epoch" => {
                let epoch = value.parse().ok().filter(|epoch| *epoch > 0);
                self.epoch_min = Some(epoch.ok_or(FilterError::Epoch)?);
            }
            _ => return Ok(false),
        }
        Ok(true)
    }

    /// Whether it selects active sessions by nothing but their state or epoch, or others than active ones: ending those is not
    /// meant.
    #[must_use]
    pub fn is_too_wide_to_end(&self) -> bool {
        let selects_any = self.principal.is_none()
            && self.server.is_none()
            && self.instance.is_none()
            && self.owner.is_none()
            && self.kinds.is_empty()
            && self.label.is_none()
            && self.text.is_none();
        selects_any || self.state != Some(SessionState::Active)
    }

    /// The kinds to list, in their order.
    pub(crate) fn families(&self) -> impl Iterator<Item = Family> {
        let is_listed = |kind: &SessionKind| self.kinds.is_empty() || self.kinds.contains(kind);
        let kinds = SessionKind::ALL.into_iter().filter(is_listed);
        kinds.map(SessionKind::family)
    }

    /// Whether the store's query does not select all that is asked for.
    pub(crate) fn needs_comparison(&self) -> bool {
        let has_more_words = |text: &SearchText| text.0.len() > 1 || text.stored_word().is_none();
        self.label.is_some()
            || self.epoch_min.is_some()
            || self.text.as_ref().is_some_and(has_more_words)
    }

    /// The same for the session with this digest, if the text is a whole digest.
    pub(crate) fn by_digest(&self) -> Option<(Self, Box<str>)> {
        let digest = self.text.as_ref()?.digest()?;
        let filter = Self {
            text: None,
            ..self.clone()
        };
        Some((filter, digest.into()))
    }

    /// The store's query. A client's session is listed at the servers that it is bound to; any other at the one in its key.
    #[must_use]
    pub fn query(&self, family: Family, order: Order) -> SessionQuery {
        let server = self.server.as_ref();
        let named = |server: &ServerName| format!("{}:*", literal_pattern(server.as_str())).into();
        SessionQuery {
            family,
            principal: self.principal.clone(),
            server: server.filter(|_| family == Family::Mcp).cloned(),
            id_pattern: server.filter(|_| family != Family::Mcp).map(named),
            instance: self.instance.clone(),
            owner: self.owner.clone(),
            state: self.state,
            text: (self.text.as_ref())
                .and_then(SearchText::stored_word)
                .map(Into::into),
            order,
            ..SessionQuery::default()
        }
    }

    /// Whether a session that the query has selected is wanted.
    pub(crate) fn matches(&self, key: &SessionKey, record: &RecordView) -> bool {
        let has_epoch = |min: u64| record.bindings.iter().any(|binding| binding.epoch >= min);
        self.epoch_min.is_none_or(has_epoch)
            && self
                .label
                .as_ref()
                .is_none_or(|label| label.matches(record))
            && self
                .text
                .as_ref()
                .is_none_or(|text| text.matches(key, record))
    }
}

/// A state, or `any`.
fn parse_state(word: &str) -> Result<Option<SessionState>, FilterError> {
    match word {
        "any" => Ok(None),
        word => parse_word::<crate::words::SessionStatus>("state", word)
            .map(|status| Some(status.into())),
    }
}

fn parse_word<T: std::str::FromStr + strum::VariantNames>(
    name: &'static str,
    word: &str,
) -> Result<T, FilterError> {
    word.parse().map_err(|_| FilterError::Word {
        name,
        words: T::VARIANTS.join(", "),
    })
}

/// The names and states of a session, in lower case.
fn names_and_states(key: &SessionKey, record: &RecordView) -> String {
    let mut shown = String::with_capacity(512);
    let mut add = |part: &str| {
        shown.push_str(part);
        shown.push('\n');
    };
    add(record.principal.as_str());
    add(record.state.as_str());
    if key.family() != Family::Mcp {
        add(key.place());
    }
    for BindingView {
        server,
        state,
        instance,
        owner,
        driver,
        ..
    } in &record.bindings
    {
        add(server.as_str());
        add(state.as_str());
        add(instance.as_str());
        add(driver.as_str());
        if let Some(owner) = owner {
            add(owner.worker.as_str());
        }
    }
    shown.make_ascii_lowercase();
    shown
}
