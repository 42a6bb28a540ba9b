//! A request, and its bytes on the wire (RFC 9112).

use bytes::buf::Chain;
use bytes::{Buf, BufMut, Bytes, BytesMut};
use http::header::ACCEPT_ENCODING;
use http::{HeaderMap, HeaderName, HeaderValue, Method, Request, Uri};

use super::connect::is_tls;
use crate::credential_header::CredentialHeader;
use crate::send_permit::SendPermit;

/// A body of up to this many bytes is written with its head, which costs less than a part of its own.
const BODY_IN_HEAD_BYTES_MAX: usize = 2 * 1024;
/// The usual size of a head.
const HEAD_BYTES: usize = 512;

/// A request to an `http` or `https` URI. Its Host and the length of its body are added.
#[derive(Clone, Copy, Debug)]
pub(crate) struct HttpRequest<'a> {
    pub(crate) method: &'a Method,
    pub(crate) uri: &'a Uri,
    pub(crate) headers: &'a HeaderMap,
    /// Replaces a header of the same name.
    pub(crate) credential: Option<&'a CredentialHeader>,
    pub(crate) body: &'a Bytes,
    /// Has to be valid when the request is written.
    pub(crate) permit: Option<&'a SendPermit>,
}

impl<'a> From<&'a Request<Bytes>> for HttpRequest<'a> {
    fn from(request: &'a Request<Bytes>) -> Self {
        Self {
            method: request.method(),
            uri: request.uri(),
            headers: request.headers(),
            credential: None,
            body: request.body(),
            permit: None,
        }
    }
}

impl HttpRequest<'_> {
    /// Its bytes.
    pub(super) fn encode(&self) -> Chain<Bytes, Bytes> {
        let body = self.body;
        let is_short = body.len() <= BODY_IN_HEAD_BYTES_MAX;
        let room = if is_short { body.len() } else { 0 };
        let mut head = BytesMut::with_capacity(HEAD_BYTES.saturating_add(room));
        head.put_slice(self.method.as_str().as_bytes());
        head.put_slice(b" ");
        put_target(&mut head, self.uri);
        head.put_slice(b" HTTP/1.1\r\nhost: ");
        put_host(&mut head, self.uri);
        head.put_slice(b"\r\n");
        let credential = self.credential;
        for (name, value) in self.headers {
            if credential.is_none_or(|credential| credential.name != name) {
                put_header(&mut head, name, value);
            }
        }
        if let Some(credential) = credential {
            put_header(&mut head, &credential.name, &credential.value);
        }
        // Without the header any coding is acceptable (RFC 9110, section 12.5.3), and nothing here decodes one.
        if !self.headers.contains_key(ACCEPT_ENCODING) {
            head.put_slice(b"accept-encoding: identity\r\n");
        }
        // A method for which content is usual always says how much there is (RFC 9110, section 8.6).
        if !body.is_empty() || self.method == Method::POST {
            head.put_slice(b"content-length: ");
            head.put_slice(itoa::Buffer::new().format(body.len()).as_bytes());
            head.put_slice(b"\r\n");
        }
        head.put_slice(b"\r\n");
        if is_short {
            head.put_slice(body);
        }
        let rest = if is_short { Bytes::new() } else { body.clone() };
        head.freeze().chain(rest)
    }
}

fn put_header(head: &mut BytesMut, name: &HeaderName, value: &HeaderValue) {
    head.put_slice(name.as_str().as_bytes());
    head.put_slice(b": ");
    head.put_slice(value.as_bytes());
    head.put_slice(b"\r\n");
}

/// Path and query (RFC 9112, section 3.2.1).
fn put_target(head: &mut BytesMut, uri: &Uri) {
    let target = uri.path_and_query().map_or("/", |target| target.as_str());
    if !target.starts_with('/') {
        head.put_slice(b"/");
    }
    head.put_slice(target.as_bytes());
}

/// The host, and the port unless it is the scheme's (RFC 9110, section 7.2).
fn put_host(head: &mut BytesMut, uri: &Uri) {
    head.put_slice(uri.host().unwrap_or_default().as_bytes());
    let usual = if is_tls(uri) { 443 } else { 80 };
    if let Some(port) = uri.port_u16().filter(|port| *port != usual) {
        head.put_slice(b":");
        head.put_slice(itoa::Buffer::new().format(port).as_bytes());
    }
}
