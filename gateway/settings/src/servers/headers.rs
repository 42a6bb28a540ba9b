//! The extra headers of requests to one server, mostly credentials. Their values come from the file or, better,
//! from environment variables that the file names, and are never logged.

use std::fmt;

use http::{HeaderMap, HeaderName, HeaderValue};

use super::super::reader::{Reader, Reason};
use super::super::setting::{Map, Setting, SettingInfo};
use super::super::source::{Environment, SourceValue};
use super::super::value::Value;
use super::borrowed;

/// Longest value in bytes.
const VALUE_BYTES_MAX: usize = 8192;

/// Headers that the gateway or the connection itself decides about.
const RESERVED: [&str; 17] = [
    "accept",
    "connection",
    "content-encoding",
    "content-length",
    "content-type",
    "expect",
    "host",
    "keep-alive",
    "last-event-id",
    "mcp-protocol-version",
    "mcp-session-id",
    "proxy-connection",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
    "x-mcp-session-id",
];

const HEADERS: Map = Map {
    about: SettingInfo::new(
        "servers.headers",
        "Headers that every request to this server carries, such as its credentials. A value `env:NAME` is \
         taken from the environment variable NAME. Values are never logged.",
    )
    .unset("none; a client's own credentials are never passed on"),
    shape: "a table of at most 32 header names, each with a text of at most 8192 printable characters or \
            \"env:NAME\"; not the headers of the connection and of MCP itself",
    entries_max: 32,
};

/// The field of every server that is reached over HTTP.
pub(super) const SETTINGS: &[Setting] = &[Setting::Map(&HEADERS)];

/// The extra headers of requests to one server. `Debug` shows names only.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct UpstreamHeaders(HeaderMap);

impl UpstreamHeaders {
    /// The headers, every value marked as sensitive.
    pub fn map(&self) -> &HeaderMap {
        &self.0
    }
}

impl fmt::Debug for UpstreamHeaders {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_list()
            .entries(self.0.keys().map(HeaderName::as_str))
            .finish()
    }
}

pub(super) fn parse(reader: &mut Reader<'_>, environment: &Environment) -> UpstreamHeaders {
    let mut map = HeaderMap::new();
    for (name, text) in reader.map(&HEADERS) {
        match parse_name(&name, &map).and_then(|key| Ok((key, parse_value(&text, environment)?))) {
            Ok((key, value)) => {
                map.insert(key, value);
            }
            Err(reason) => {
                let (written_as, place) = reader.position(&HEADERS.about);
                let written = SourceValue {
                    written_as: format!("{written_as}.{name}"),
                    place,
                    value: Value::Other(String::new()),
                };
                reader.note(Setting::Map(&HEADERS), &written, reason);
            }
        }
    }
    UpstreamHeaders(map)
}

fn parse_name(name: &str, seen: &HeaderMap) -> Result<HeaderName, Reason> {
    let key = HeaderName::try_from(name)
        .map_err(|_| "it cannot be the name of an HTTP header".to_owned())?;
    if RESERVED.contains(&key.as_str()) {
        return Err("this header is the gateway's own".to_owned());
    }
    if seen.contains_key(&key) {
        return Err("the header stands there twice, in other letters".to_owned());
    }
    Ok(key)
}

/// The reason never repeats the value.
fn parse_value(text: &str, environment: &Environment) -> Result<HeaderValue, Reason> {
    let text = borrowed::value(text, environment)?;
    if text.len() > VALUE_BYTES_MAX {
        return Err(format!("its value has {} bytes", text.len()));
    }
    let mut value = HeaderValue::try_from(text)
        .map_err(|_| "its value has a control character or a line break".to_owned())?;
    value.set_sensitive(true);
    Ok(value)
}
