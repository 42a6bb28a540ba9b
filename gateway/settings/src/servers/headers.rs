//! The extra headers of requests to one server, mostly credentials. Their values come from the file or, better,
//! from environment variables that the file names, and are never logged.

use std::fmt;

use http::{HeaderMap, HeaderName, HeaderValue};

use crate::reader::{Reader, Reason};
use crate::setting::Map;
use crate::source::Environment;

/// Longest value in bytes.
const VALUE_BYTES_MAX: usize = 8192;

/// Headers that the gateway or the connection itself decides about.
const RESERVED: &str = "\
    accept connection content-encoding content-length content-type expect host keep-alive \
    last-event-id mcp-protocol-version mcp-session-id proxy-connection te trailer transfer-encoding \
    upgrade x-mcp-session-id";

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

pub(crate) fn parse(reader: &mut Reader<'_>, row: &'static Map) -> UpstreamHeaders {
    let environment = reader.environment;
    let mut map = HeaderMap::new();
    reader.map(row, |name, text| {
        let name = parse_header_name(name)?;
        if map.contains_key(&name) {
            return Err("the header is a duplicate: names differ only in case".to_owned());
        }
        map.insert(name, parse_value(text, environment)?);
        Ok(())
    });
    UpstreamHeaders(map)
}

/// The name of a header that may be set for a server.
pub(super) fn parse_header_name(name: &str) -> Result<HeaderName, Reason> {
    let key = HeaderName::try_from(name)
        .map_err(|_| "it cannot be the name of an HTTP header".to_owned())?;
    if RESERVED.split(' ').any(|reserved| reserved == key.as_str()) {
        return Err("this header is the gateway's own".to_owned());
    }
    Ok(key)
}

/// The reason never repeats the value.
fn parse_value(text: &str, environment: &Environment) -> Result<HeaderValue, Reason> {
    let text = environment.resolve(text)?;
    if text.len() > VALUE_BYTES_MAX {
        return Err(format!("its value has {} bytes", text.len()));
    }
    let mut value = HeaderValue::try_from(text)
        .map_err(|_| "its value has a control character or a line break".to_owned())?;
    value.set_sensitive(true);
    Ok(value)
}
