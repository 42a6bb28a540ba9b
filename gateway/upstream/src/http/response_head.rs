//! The head of a response (RFC 9112), and where its body ends.

use std::mem::MaybeUninit;

use bytes::{Buf, BytesMut};
use http::header::{
    CONNECTION, CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_TYPE, LOCATION, RETRY_AFTER,
    TRANSFER_ENCODING,
};
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode};
use httparse::{Header, ParserConfig, Response, Status};

use super::round_trip_error::{HEAD_BYTES_MAX, HEADERS_MAX, RoundTripError};
use mooring_protocol::header::MCP_SESSION_ID;

/// How much of the name of a content coding is shown, in bytes.
const CODING_SHOWN_BYTES: usize = 32;

/// The headers of responses that the gateway reads. No other is kept.
const KEPT_HEADERS: [HeaderName; 4] = [CONTENT_TYPE, LOCATION, MCP_SESSION_ID, RETRY_AFTER];

/// The head of a response.
#[derive(Debug)]
pub(super) struct ResponseHead {
    pub(super) status: StatusCode,
    /// Those of [`KEPT_HEADERS`].
    pub(super) headers: HeaderMap,
    pub(super) framing: BodyFraming,
    /// Whether the connection stays open after the response, and what follows can only be the next one.
    pub(super) keeps_alive: bool,
}

/// Where a body ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum BodyFraming {
    /// After so many bytes.
    Length(u64),
    /// In chunks, the last of which is empty.
    Chunked,
    /// With the connection.
    UntilClose,
}

impl ResponseHead {
    /// Whether the response comes later. 101 is one: no request asks to switch protocols.
    pub(super) fn is_interim(&self) -> bool {
        self.status.is_informational() && self.status != StatusCode::SWITCHING_PROTOCOLS
    }
}

/// Takes a head off the bytes that were received. `None` if it is not complete.
pub(super) fn parse(received: &mut BytesMut) -> Result<Option<ResponseHead>, RoundTripError> {
    let mut room = [const { MaybeUninit::uninit() }; HEADERS_MAX];
    let mut response = Response::new(&mut []);
    let parsed = ParserConfig::default().parse_response_with_uninit_headers(
        &mut response,
        received,
        &mut room,
    )?;
    let length = match parsed {
        Status::Complete(length) if length <= HEAD_BYTES_MAX => length,
        Status::Partial if received.len() <= HEAD_BYTES_MAX => return Ok(None),
        Status::Complete(_) | Status::Partial => return Err(RoundTripError::HeadTooLarge),
    };
    let status = response.code.unwrap_or_default();
    let status = StatusCode::from_u16(status).map_err(|_| httparse::Error::Status)?;
    let fields = HeadFields::read(response.headers)?;
    let head = fields.into_head(status, response.version == Some(1))?;
    received.advance(length);
    Ok(Some(head))
}

/// What the headers of a response say.
#[derive(Default)]
struct HeadFields<'a> {
    kept: HeaderMap,
    length: ContentLength,
    /// Whether the last of several transfer codings marks the end of the body.
    is_chunked: Option<bool>,
    content_coding: Option<&'a [u8]>,
    connection: ConnectionOptions,
}

impl<'a> HeadFields<'a> {
    fn read(headers: &[Header<'a>]) -> Result<Self, RoundTripError> {
        let mut fields = Self::default();
        for header in headers {
            let is = |name: &HeaderName| header.name.eq_ignore_ascii_case(name.as_str());
            if is(&CONTENT_LENGTH) {
                fields.length = fields.length.and(header.value);
            } else if is(&TRANSFER_ENCODING) {
                fields.is_chunked = Some(is_chunked(header.value));
            } else if is(&CONTENT_ENCODING) {
                let coding = Some(header.value).filter(|value| !is_identity(value));
                fields.content_coding = fields.content_coding.or(coding);
            } else if is(&CONNECTION) {
                fields.connection.read(header.value);
            } else if let Some(name) = KEPT_HEADERS.iter().find(|name| is(name)) {
                let value = HeaderValue::from_bytes(header.value);
                let value = value.map_err(|_| httparse::Error::HeaderValue)?;
                fields.kept.append(name, value);
            }
        }
        Ok(fields)
    }

    fn into_head(self, status: StatusCode, is_1_1: bool) -> Result<ResponseHead, RoundTripError> {
        let has_no_body = status.is_informational()
            || matches!(status, StatusCode::NO_CONTENT | StatusCode::NOT_MODIFIED);
        // Such a body would be taken for the next response, if the server sends what its status forbids.
        let announces_body = self.is_chunked.is_some()
            || !matches!(
                self.length,
                ContentLength::Unknown | ContentLength::Known(0)
            );
        let framing = match (self.is_chunked, self.length) {
            _ if has_no_body => BodyFraming::Length(0),
            // HTTP/1.0 has no transfer codings, so a proxy on the way may not have understood it.
            (Some(_), _) if !is_1_1 => return Err(RoundTripError::Length),
            (Some(true), _) => BodyFraming::Chunked,
            (Some(false), _) => BodyFraming::UntilClose,
            (None, ContentLength::Known(length)) => BodyFraming::Length(length),
            (None, ContentLength::Unknown) => BodyFraming::UntilClose,
            (None, ContentLength::Invalid) => return Err(RoundTripError::Length),
        };
        // The body of an error may be unreadable: its status says enough.
        if let Some(coding) = self.content_coding
            && status.is_success()
            && framing != BodyFraming::Length(0)
        {
            return Err(RoundTripError::Encoded(shown_coding(coding)));
        }
        let ConnectionOptions { closes, keeps } = self.connection;
        let keeps_alive = match (is_1_1, self.is_chunked, self.length) {
            // A response with both may be an attempt to smuggle another one (RFC 9112, section 6.3).
            (_, Some(_), ContentLength::Known(_) | ContentLength::Invalid) => false,
            (true, ..) => !closes,
            (false, ..) => keeps && !closes,
        };
        Ok(ResponseHead {
            status,
            headers: self.kept,
            framing,
            keeps_alive: keeps_alive
                && framing != BodyFraming::UntilClose
                && !(has_no_body && announces_body)
                && status != StatusCode::SWITCHING_PROTOCOLS,
        })
    }
}

/// What the Content-Length headers say together.
#[derive(Clone, Copy, Default)]
enum ContentLength {
    #[default]
    Unknown,
    Known(u64),
    Invalid,
}

impl ContentLength {
    /// With another header, whose value may be a list. All have to be the same (RFC 9110, section 8.6).
    fn and(self, value: &[u8]) -> Self {
        let values = value.split(|byte| *byte == b',');
        values.fold(self, |sum, value| {
            let text = str::from_utf8(value.trim_ascii()).unwrap_or_default();
            let is_digits = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
            match (sum, text.parse()) {
                (Self::Unknown, Ok(length)) if is_digits => Self::Known(length),
                (Self::Known(earlier), Ok(length)) if is_digits && earlier == length => sum,
                _ => Self::Invalid,
            }
        })
    }
}

/// Whether the last of these transfer codings is `chunked`.
fn is_chunked(value: &[u8]) -> bool {
    let last = value.rsplit(|byte| *byte == b',').next();
    last.is_some_and(|last| last.trim_ascii().eq_ignore_ascii_case(b"chunked"))
}

/// Whether these content codings are none.
fn is_identity(value: &[u8]) -> bool {
    let value = value.trim_ascii();
    value.is_empty() || value.eq_ignore_ascii_case(b"identity")
}

fn shown_coding(value: &[u8]) -> Box<str> {
    let shown = value.trim_ascii().iter().take(CODING_SHOWN_BYTES);
    let is_shown = |byte: &u8| byte.is_ascii_alphanumeric() || b"-_, ".contains(byte);
    let shown = shown.map(|byte| if is_shown(byte) { *byte } else { b'?' });
    shown.map(char::from).collect::<String>().into()
}

/// What the Connection headers say (RFC 9112, section 9.3).
#[derive(Default)]
struct ConnectionOptions {
    closes: bool,
    keeps: bool,
}

impl ConnectionOptions {
    fn read(&mut self, value: &[u8]) {
        for option in value.split(|byte| *byte == b',') {
            let option = option.trim_ascii();
            self.closes |= option.eq_ignore_ascii_case(b"close");
            self.keeps |= option.eq_ignore_ascii_case(b"keep-alive");
        }
    }
}
