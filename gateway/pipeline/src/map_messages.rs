//! Replies whose messages are changed on their way to the client.

use bytes::Bytes;
use futures_util::TryStreamExt;

use mooring_protocol::held::held_bytes;
use mooring_protocol::{Event, HeldText, Reply, ReplyBody, ReplyError};

/// A reply with each of its messages as `map` makes it. A JSON text is read whole first, and may then have at most
/// `bytes_max` bytes.
///
/// # Errors
/// [`ReplyError`]: the text cannot be read.
pub(crate) async fn map_messages<F>(
    reply: Reply,
    bytes_max: usize,
    map: impl Fn(Bytes) -> F + Clone + Send + 'static,
) -> Result<Reply, ReplyError>
where
    F: Future<Output = Bytes> + Send,
{
    let memory = reply.memory.clone();
    let body = match reply.body {
        body @ (ReplyBody::Json(_) | ReplyBody::JsonStream(_)) => {
            let read = Reply {
                memory,
                ..Reply::new(reply.status, body)
            };
            let HeldText { text, held } = read.read_text(bytes_max).await?;
            let text = match text.is_empty() {
                true => text,
                false => map(text).await,
            };
            // Its memory is reserved already and must not be reserved twice.
            let body = ReplyBody::Json(held_bytes(text, held.as_ref()));
            return Ok(Reply {
                memory: None,
                body,
                ..reply
            });
        }
        ReplyBody::Events(events) => {
            let map_event = move |mut event: Event| {
                let map = map.clone();
                async move {
                    if event.as_message().is_some()
                        && let Some(text) = event.data.take()
                    {
                        event.data = Some(map(text).await);
                    }
                    Ok(event)
                }
            };
            ReplyBody::Events(Box::pin(events.and_then(map_event)))
        }
        body @ (ReplyBody::Empty | ReplyBody::Text(_)) => body,
    };
    Ok(Reply { body, ..reply })
}
