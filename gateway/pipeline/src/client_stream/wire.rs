//! How a message is framed on a stream.

use std::sync::Arc;

use bytes::Bytes;

use mooring_protocol::Event;
use mooring_protocol::held::held_bytes;
use mooring_usage::HeldMemory;

/// The framing of a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wire {
    /// One event per message: HTTP+SSE of MCP 2024-11-05.
    Events,
    /// One line per message: standard input and output.
    Lines,
}

impl Wire {
    /// The framed bytes of one message, which keep the memory that it takes.
    pub(crate) fn message(self, message: &str, held: Option<Arc<HeldMemory>>) -> Bytes {
        match self {
            Self::Events => Event {
                event: Some("message".into()),
                held,
                ..Event::message(message.to_owned())
            }
            .encode(),
            Self::Lines => held_bytes(line(message), held.as_ref()),
        }
    }
}

/// Replaces line feeds by spaces: JSON has unescaped ones only between tokens.
fn line(message: &str) -> Bytes {
    let mut line = message.replace(['\n', '\r'], " ");
    line.push('\n');
    line.into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_is_one_line_however_it_was_written() {
        let pretty = "{\r\n  \"a\": \"b\\n\"\n}";
        assert_eq!(
            Wire::Lines.message(pretty, None),
            "{    \"a\": \"b\\n\" }\n"
        );
    }

    #[test]
    fn an_event_says_that_it_is_a_message() {
        let event = Wire::Events.message("{}", None);
        assert_eq!(event, "event: message\ndata: {}\n\n");
    }
}
