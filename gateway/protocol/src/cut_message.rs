//! A message that cannot be read whole, because it is too long or no valid JSON: what is kept of it, and its id.
//!
//! Invariants: what is kept has a limit; only a member of the outermost object is taken as the id, and only of what may be
//! such a message.

/// How much of the beginning and of the end is kept.
const SHOWN_BYTES: usize = 1024;

/// The beginning and the end of a message that is too long. Both are the whole of a short one.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CutMessage {
    /// Its beginning, 1 KiB at most.
    pub beginning: Vec<u8>,
    /// Its end, 1 KiB at most; as far as it was read.
    pub end: Vec<u8>,
    /// Its length in bytes, as far as it was read.
    pub bytes: usize,
}

impl CutMessage {
    /// The next part of the message.
    pub fn push(&mut self, part: &[u8]) {
        let missing = SHOWN_BYTES.saturating_sub(self.beginning.len());
        let first = part.get(..missing).unwrap_or(part);
        self.beginning.extend_from_slice(first);
        let last = part.len().saturating_sub(SHOWN_BYTES);
        self.end
            .extend_from_slice(part.get(last..).unwrap_or_default());
        let excess = self.end.len().saturating_sub(SHOWN_BYTES);
        self.end.drain(..excess);
        self.bytes = self.bytes.saturating_add(part.len());
    }
}

/// The JSON text of the id of the response that begins and ends with these bytes; none if it cannot be read there. Servers
/// write the id first, or last.
#[must_use]
pub fn response_id<'a>(beginning: &'a [u8], end: &'a [u8]) -> Option<&'a str> {
    let first = FirstMembers::read(beginning)?;
    match first.id {
        _ if first.has_method => None,
        Some(id) => Some(id),
        None => last_member(end),
    }
}

/// The same of a request. Clients write the params after the method, and the id before or after both.
#[must_use]
pub fn request_id<'a>(beginning: &'a [u8], end: &'a [u8]) -> Option<&'a str> {
    let first = FirstMembers::read(beginning)?;
    match first.id {
        _ if !first.has_method => None,
        Some(id) => Some(id),
        None => last_member(end),
    }
}

/// What the members before the first object, array or cut say.
#[derive(Debug, Default)]
struct FirstMembers<'a> {
    id: Option<&'a str>,
    has_method: bool,
}

impl<'a> FirstMembers<'a> {
    /// None if the text begins no object.
    fn read(text: &'a [u8]) -> Option<Self> {
        let mut rest = text.trim_ascii_start().strip_prefix(b"{")?;
        let mut first = Self::default();
        loop {
            let member = (|| {
                let (key, after) = string(rest.trim_ascii_start())?;
                let value = after.trim_ascii_start().strip_prefix(b":")?;
                Some((key, value.trim_ascii_start()))
            })();
            let Some((key, value)) = member else { break };
            first.has_method |= key == b"\"method\"";
            let Some((value, after)) = scalar(value) else {
                break;
            };
            let Some(next) = after.trim_ascii_start().strip_prefix(b",") else {
                break;
            };
            if key == b"\"id\"" {
                first.id = std::str::from_utf8(value).ok();
            }
            rest = next;
        }
        Some(first)
    }
}

/// The id if it is the last member: no bracket closes between it and the end of the outermost object.
fn last_member(text: &[u8]) -> Option<&str> {
    const KEY: &[u8] = b"\"id\"";
    let inside = text.trim_ascii_end().strip_suffix(b"}")?;
    let at = memchr::memmem::rfind(inside, KEY)?;
    let (before, member) = inside.split_at_checked(at)?;
    // A quote within a string is escaped, so this is a key.
    let is_key = matches!(before.trim_ascii_end().last(), Some(b',' | b'{'));
    let value = member.get(KEY.len()..)?.trim_ascii_start();
    let value = value.strip_prefix(b":")?.trim_ascii();
    let (id, after) = scalar(value)?;
    let is_whole = is_key && after.is_empty();
    is_whole.then(|| std::str::from_utf8(id).ok()).flatten()
}

/// A string or number at the start, and what follows.
fn scalar(text: &[u8]) -> Option<(&[u8], &[u8])> {
    if text.first() == Some(&b'"') {
        return string(text);
    }
    let is_part = |byte: &u8| matches!(byte, b'0'..=b'9' | b'-' | b'+' | b'.' | b'e' | b'E');
    let length = text.iter().take_while(|byte| is_part(byte)).count();
    text.split_at_checked(length).filter(|_| length > 0)
}

/// A string at the start, with its quotes, and what follows.
fn string(text: &[u8]) -> Option<(&[u8], &[u8])> {
    let mut is_escaped = false;
    for (at, byte) in text.strip_prefix(b"\"")?.iter().enumerate() {
        match byte {
            _ if is_escaped => is_escaped = false,
            b'\\' => is_escaped = true,
            b'"' => return text.split_at_checked(at.checked_add(2)?),
            _ => {}
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_beginning_and_the_end_of_a_long_message_are_kept() {
        let text: Vec<u8> = b"0123456789"
            .iter()
            .copied()
            .cycle()
            .take(3 * SHOWN_BYTES)
            .collect();
        for piece in [1, 100, SHOWN_BYTES, SHOWN_BYTES + 1, text.len()] {
            let mut message = CutMessage::default();
            text.chunks(piece).for_each(|part| message.push(part));
            assert!(text.starts_with(&message.beginning), "{piece}");
            assert!(text.ends_with(&message.end), "{piece}");
            let kept = (message.beginning.len(), message.end.len(), message.bytes);
            assert_eq!(kept, (SHOWN_BYTES, SHOWN_BYTES, text.len()), "{piece}");
        }
    }

    #[test]
    fn the_id_is_read_where_servers_write_it_and_nowhere_else() {
        for (beginning, end, id) in [
            (
                r#"{"jsonrpc":"2.0","id":"c:1","result":{"id":2"#,
                "",
                Some("\"c:1\""),
            ),
            (r#" { "id" : -7 , "result" : {"#, "", Some("-7")),
            (r#"{"id":"a\"}","result":"#, "", Some(r#""a\"}""#)),
            (
                r#"{"result":{"id":1"#,
                r#"x"}]},"jsonrpc":"2.0","id":12}"#,
                Some("12"),
            ),
            (r#"{"result":{"#, ",\"id\" : \"c\" }\r", Some("\"c\"")),
            // Members of an inner object.
            (r#"{"jsonrpc":"2.0","result":{"id":1"#, r#","id":2}}"#, None),
            (r#"{"result":{"#, r#"},"id":2,"x":{}}"#, None),
            // Text that looks like a member.
            (r#"{"result":"#, r#"x\",\"id\":2}"#, None),
            (r#"{"result":"#, r#"x,\"id\":2}"}"#, None),
            // Requests and notifications.
            (r#"{"method":"x","id":1,"params":{"#, r#""id":1}"#, None),
            (r#"{"id":1,"method":"x","params":{"#, r#"}}"#, None),
            ("[", r#""id":1}"#, None),
            ("", "", None),
            (r#"{"id":1"#, "", None),
        ] {
            assert_eq!(
                response_id(beginning.as_bytes(), end.as_bytes()),
                id,
                "{beginning} {end}"
            );
        }
    }

    #[test]
    fn the_id_of_a_request_is_read_where_clients_write_it() {
        for (beginning, end, id) in [
            (
                r#"{"jsonrpc":"2.0","id":5,"method":"ping"   "#,
                "",
                Some("5"),
            ),
            (
                r#"{"id":"a","method":"x","params":{"id":1"#,
                r#"}}"#,
                Some("\"a\""),
            ),
            (
                r#"{"method":"x","params":{"id":1"#,
                r#"},"jsonrpc":"2.0","id":7}"#,
                Some("7"),
            ),
            // A notification, responses and nothing.
            (r#"{"method":"x","params":{"id":1"#, r#","id":2}}"#, None),
            (r#"{"id":1,"result":{"method":2"#, r#"}}"#, None),
            (r#"{"jsonrpc":"2.0","result":{"#, r#"},"id":1}"#, None),
            ("xxxx", "xxxx", None),
        ] {
            let found = request_id(beginning.as_bytes(), end.as_bytes());
            assert_eq!(found, id, "{beginning} {end}");
        }
    }
}
