//! Names of hash fields as strings of the server, created once, so that the hot path allocates none.

use mooring_session::codec::{self, letter};
use mooring_session::names::ServerName;

use crate::failure::Failure;
use crate::ffi::{OwnedText, Text};

/// The cache of field names.
pub(crate) struct FieldNames {
    lifetime: OwnedText,
    principal: OwnedText,
    /// The other fields that do not depend on a server.
    others: [(&'static str, OwnedText); 2],
    /// Ordered by server.
    by_server: Vec<(ServerName, BindingFields)>,
}

/// A fleet has a handful of servers. A client that invents more names only costs the time to create them again.
const SERVERS_REMEMBERED_MAX: usize = 1_024;

impl FieldNames {
    /// The names that every record has.
    pub(crate) fn new() -> Self {
        Self {
            lifetime: OwnedText::new(codec::LIFETIME_FIELD.as_bytes()),
            principal: OwnedText::new(codec::PRINCIPAL_FIELD.as_bytes()),
            others: [codec::IDENTITY_FIELD, codec::CLEANING_FIELD]
                .map(|name| (name, OwnedText::new(name.as_bytes()))),
            by_server: Vec::new(),
        }
    }

    /// The name of any field; those that every record may have are cached.
    pub(crate) fn named(&self, name: &str) -> FieldName<'_> {
        let known = match name {
            codec::LIFETIME_FIELD => Some(&self.lifetime),
            codec::PRINCIPAL_FIELD => Some(&self.principal),
            name => {
                let other = self.others.iter().find(|(other, _)| *other == name);
                other.map(|(_, text)| text)
            }
        };
        known.map_or_else(
            || FieldName::Made(OwnedText::new(name.as_bytes())),
            |known| FieldName::Known(known.text()),
        )
    }

    /// The names of a record's lifetime and of its principal.
    pub(crate) fn of_use(&self) -> [Text<'_>; 2] {
        [self.lifetime.text(), self.principal.text()]
    }

    /// The names of one server's fields. A cached server has a valid name.
    ///
    /// # Errors
    /// `ERR` for an invalid name.
    pub(crate) fn of(&mut self, server: &[u8]) -> Result<RouteFields<'_>, Failure> {
        let found = self
            .by_server
            .binary_search_by(|(known, _)| known.as_str().as_bytes().cmp(server));
        let place = match found {
            Ok(place) => place,
            Err(place) => self.insert(place, ServerName::parse(server)?),
        };
        let (server, binding) = self.by_server.get(place).ok_or(Failure::Internal)?;
        Ok(RouteFields {
            lifetime: self.lifetime.text(),
            principal: self.principal.text(),
            server,
            binding,
        })
    }

    fn insert(&mut self, mut place: usize, server: ServerName) -> usize {
        if self.by_server.len() >= SERVERS_REMEMBERED_MAX {
            self.by_server.clear();
            place = 0;
        }
        let fields = BindingFields::new(server.as_str());
        self.by_server.insert(place, (server, fields));
        place
    }
}

/// The name of a field to write.
pub(crate) enum FieldName<'a> {
    /// A cached name.
    Known(Text<'a>),
    /// A name that was created for this write.
    Made(OwnedText),
}

impl FieldName<'_> {
    /// The string, to pass to the server.
    pub(crate) fn text(&self) -> Text<'_> {
        match self {
            Self::Known(text) => *text,
            Self::Made(made) => made.text(),
        }
    }
}

/// The fields that ROUTE reads.
pub(crate) struct RouteFields<'a> {
    /// The record's lifetime.
    pub(crate) lifetime: Text<'a>,
    /// Its principal.
    pub(crate) principal: Text<'a>,
    /// The server.
    pub(crate) server: &'a ServerName,
    /// Its binding.
    pub(crate) binding: &'a BindingFields,
}

/// The fields of one server's binding that ROUTE reads.
pub(crate) struct BindingFields {
    /// Phase, epoch, times, count and names.
    pub(crate) head: OwnedText,
    /// The loss that is still to be reported. Read if the head says that there is one.
    pub(crate) unreported_loss: OwnedText,
    /// Why it was last moved. Read with the loss.
    pub(crate) reason: OwnedText,
}

impl BindingFields {
    fn new(server: &str) -> Self {
        let name = |letter| OwnedText::new(codec::field_name(letter, server).as_bytes());
        Self {
            head: name(letter::HEAD),
            unreported_loss: name(letter::UNREPORTED_LOSS),
            reason: name(letter::REASON),
        }
    }
}
