//! Numbers and texts as bytes, with one way to write each: what is signed.

use bytes::{BufMut, Bytes, BytesMut};
use http::{HeaderMap, HeaderName, HeaderValue};

/// Most header fields in one head.
const HEADERS_MAX: u16 = 128;

/// The bytes are not what the writer makes.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Malformed;

/// Writes fields one after another. Lengths that do not fit are cut, and make the whole larger than any limit, so whoever
/// checks the limit refuses them.
pub(super) struct Writer(BytesMut);

impl Writer {
    pub(super) fn with_capacity(bytes: usize) -> Self {
        Self(BytesMut::with_capacity(bytes))
    }

    pub(super) fn u8(&mut self, value: u8) -> &mut Self {
        self.0.put_u8(value);
        self
    }

    pub(super) fn u16(&mut self, value: u16) -> &mut Self {
        self.0.put_u16(value);
        self
    }

    pub(super) fn u64(&mut self, value: u64) -> &mut Self {
        self.0.put_u64(value);
        self
    }

    /// Bytes whose number the reader knows.
    pub(super) fn exactly(&mut self, bytes: &[u8]) -> &mut Self {
        self.0.put_slice(bytes);
        self
    }

    /// Bytes after their number.
    pub(super) fn bytes(&mut self, bytes: &[u8]) -> &mut Self {
        self.0
            .put_u32(u32::try_from(bytes.len()).unwrap_or(u32::MAX));
        self.exactly(bytes)
    }

    /// Header fields, in the map's order.
    ///
    /// # Errors
    /// More than [`HEADERS_MAX`].
    pub(super) fn headers(&mut self, headers: &HeaderMap) -> Result<&mut Self, Malformed> {
        let count = u16::try_from(headers.len()).map_err(|_| Malformed)?;
        if count > HEADERS_MAX {
            return Err(Malformed);
        }
        self.u16(count);
        for (name, value) in headers {
            self.bytes(name.as_str().as_bytes()).bytes(value.as_bytes());
        }
        Ok(self)
    }

    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    pub(super) fn written(&self) -> &[u8] {
        &self.0
    }

    pub(super) fn freeze(self) -> Bytes {
        self.0.freeze()
    }
}

/// Reads what [`Writer`] wrote.
pub(super) struct Reader<'b>(&'b [u8]);

impl<'b> Reader<'b> {
    pub(super) const fn new(bytes: &'b [u8]) -> Self {
        Self(bytes)
    }

    pub(super) fn array<const N: usize>(&mut self) -> Result<[u8; N], Malformed> {
        let (array, rest) = self.0.split_first_chunk::<N>().ok_or(Malformed)?;
        self.0 = rest;
        Ok(*array)
    }

    pub(super) fn u8(&mut self) -> Result<u8, Malformed> {
        self.array().map(u8::from_be_bytes)
    }

    pub(super) fn u16(&mut self) -> Result<u16, Malformed> {
        self.array().map(u16::from_be_bytes)
    }

    pub(super) fn u64(&mut self) -> Result<u64, Malformed> {
        self.array().map(u64::from_be_bytes)
    }

    pub(super) fn bytes(&mut self) -> Result<&'b [u8], Malformed> {
        let length = self.array().map(u32::from_be_bytes)?;
        let length = usize::try_from(length).map_err(|_| Malformed)?;
        let (bytes, rest) = self.0.split_at_checked(length).ok_or(Malformed)?;
        self.0 = rest;
        Ok(bytes)
    }

    pub(super) fn text(&mut self) -> Result<&'b str, Malformed> {
        std::str::from_utf8(self.bytes()?).map_err(|_| Malformed)
    }

    pub(super) fn headers(&mut self) -> Result<HeaderMap, Malformed> {
        let count = self.u16()?;
        if count > HEADERS_MAX {
            return Err(Malformed);
        }
        let mut headers = HeaderMap::with_capacity(usize::from(count));
        for _ in 0..count {
            let name = HeaderName::from_bytes(self.bytes()?).map_err(|_| Malformed)?;
            let value = HeaderValue::from_bytes(self.bytes()?).map_err(|_| Malformed)?;
            headers.append(name, value);
        }
        Ok(headers)
    }

    /// Nothing may be left.
    pub(super) const fn end(self) -> Result<(), Malformed> {
        if self.0.is_empty() {
            Ok(())
        } else {
            Err(Malformed)
        }
    }
}
