//! One frame of the program: a call, or what is wrong with it.
//!
//! The envelope is parsed first, without its values and without recursion; the arguments are parsed only once their
//! depth is known.

use serde::Deserialize;
use serde_json::value::RawValue;

use super::depth;
use super::violation::Violation;
use crate::calls::{CallError, CallErrorKind, NestedCall};

/// The greatest number that every language here has exactly.
const ID_MAX: u64 = (1 << 53) - 1;

/// Longest name of a server or a tool. Names are part of records.
const NAME_BYTES_MAX: usize = 1024;

/// A frame that can be answered.
pub(super) struct Request<'a> {
    /// The id that the answer must have.
    pub(super) id: u64,
    envelope: Envelope<'a>,
}

#[derive(Deserialize)]
struct Envelope<'a> {
    #[serde(borrow)]
    id: Option<&'a RawValue>,
    #[serde(borrow)]
    server: Option<&'a RawValue>,
    #[serde(borrow)]
    tool: Option<&'a RawValue>,
    #[serde(borrow)]
    arguments: Option<&'a RawValue>,
}

impl<'a> Request<'a> {
    /// Understands as much of a frame as an answer needs.
    pub(super) fn parse(frame: &'a [u8]) -> Result<Self, Violation> {
        let text = std::str::from_utf8(frame).map_err(not_an_object)?;
        // The parser would take an array for the envelope's fields in their order.
        if !text.trim_ascii_start().starts_with('{') {
            return Err(Violation::NotAnObject("it begins otherwise".to_owned()));
        }
        let envelope: Envelope<'_> = serde_json::from_str(text).map_err(not_an_object)?;
        let id = envelope
            .id
            .and_then(|id| serde_json::from_str(id.get()).ok())
            .filter(|id| *id <= ID_MAX)
            .ok_or(Violation::NoId)?;
        Ok(Self { id, envelope })
    }

    /// The call itself. An error of kind `limit` says that its arguments are deeper than they may be.
    pub(super) fn call(&self, depth_max: usize) -> Result<NestedCall, CallError> {
        let server = name("server", self.envelope.server)?;
        let tool = name("tool", self.envelope.tool)?;
        let arguments = match self.envelope.arguments {
            None => serde_json::Map::new(),
            Some(arguments) if depth::is_within(arguments.get(), depth_max) => {
                serde_json::from_str(arguments.get()).map_err(|error| {
                    CallErrorKind::Invalid.error(format!("the arguments are no object: {error}"))
                })?
            }
            Some(_) => {
                let why = format!("the arguments are nested deeper than {depth_max}");
                return Err(CallErrorKind::Limit.error(why));
            }
        };
        Ok(NestedCall {
            server,
            tool,
            arguments,
        })
    }
}

/// The error says where and what, and holds nothing of the text.
fn not_an_object(error: impl std::fmt::Display) -> Violation {
    Violation::NotAnObject(error.to_string())
}

fn name(field: &'static str, value: Option<&RawValue>) -> Result<Box<str>, CallError> {
    let name: Option<Box<str>> = value.and_then(|value| serde_json::from_str(value.get()).ok());
    let Some(name) = name else {
        return Err(CallErrorKind::Invalid.error(format!("{field} is no string")));
    };
    if name.is_empty() || name.len() > NAME_BYTES_MAX {
        let why = format!(
            "{field} has {} bytes, it has to have from 1 to {NAME_BYTES_MAX}",
            name.len()
        );
        return Err(CallErrorKind::Invalid.error(why));
    }
    Ok(name)
}
