//! The id of a response that cannot be read whole: it is too long, or no valid JSON.
//!
//! Invariant: only a member of the outermost object is taken, and only of what may be a response.

/// The JSON text of the id of the response that begins and ends with these bytes; none if it cannot be read there. Servers
/// write the id first, or last.
#[must_use]
pub fn response_id<'a>(beginning: &'a [u8], end: &'a [u8]) -> Option<&'a str> {
    match first_members(beginning) {
        FirstMembers::Id(id) => Some(id),
        FirstMembers::NoResponse => None,
        FirstMembers::Unknown => last_member(end),
    }
}

/// What the members before the first object, array or cut say.
enum FirstMembers<'a> {
    Id(&'a str),
    /// It is a request, a notification or no object.
    NoResponse,
    Unknown,
}

fn first_members(text: &[u8]) -> FirstMembers<'_> {
    let Some(mut rest) = text.trim_ascii_start().strip_prefix(b"{") else {
        return FirstMembers::NoResponse;
    };
    let mut id = None;
    loop {
        let member = (|| {
            let (key, after) = string(rest.trim_ascii_start())?;
            let value = after.trim_ascii_start().strip_prefix(b":")?;
            Some((key, value.trim_ascii_start()))
        })();
        let Some((key, value)) = member else { break };
        match key {
            b"\"method\"" => return FirstMembers::NoResponse,
            b"\"result\"" | b"\"error\"" if id.is_some() => break,
            _ => {}
        }
        let Some((value, after)) = scalar(value) else {
            break;
        };
        let Some(next) = after.trim_ascii_start().strip_prefix(b",") else {
            break;
        };
        if key == b"\"id\"" {
            id = std::str::from_utf8(value).ok();
        }
        rest = next;
    }
    id.map_or(FirstMembers::Unknown, FirstMembers::Id)
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
}
