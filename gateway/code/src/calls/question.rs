//! Questions that a tool asks during a call: they go to the client of the run, whose answer may reach any gateway.
//!
//! A code server keeps no MCP session, so the id of the question says where the answer belongs:
//! `n:<language>:<server>:<id>`, where `<id>` is the one that the server's own client would be given, sealed where the fleet
//! has keys. Whose session it is follows from who answers.

use bytes::Bytes;
use mooring_session::names::ServerName;
use tokio::sync::mpsc;

use mooring_protocol::{Message, with_id};
use mooring_settings::Language;

/// Questions and their like that may wait to be sent to one client.
const WAITING_MAX: usize = 64;
/// The prefix of the id of a question.
const PREFIX: &str = "n:";

/// The client of a run, as far as it can be spoken to.
#[derive(Clone, Debug)]
pub struct RunClient {
    /// None if it does not support requests.
    questions: Option<mpsc::Sender<Box<str>>>,
}

impl RunClient {
    /// One that cannot be asked anything.
    pub const fn silent() -> Self {
        Self { questions: None }
    }

    /// A client that can be asked, and the receiver of its questions.
    pub fn asked() -> (Self, mpsc::Receiver<Box<str>>) {
        let (questions, asked) = mpsc::channel(WAITING_MAX);
        let questions = Some(questions);
        (Self { questions }, asked)
    }

    /// Sends the question. False if the receiver is gone.
    pub(super) fn ask(&self, message: Box<str>) -> bool {
        (self.questions.as_ref()).is_some_and(|questions| questions.try_send(message).is_ok())
    }
}

/// Where the answer to a question belongs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AnswerPlace {
    /// Which of the client's sessions.
    pub language: Language,
    /// The server that asked.
    pub server: ServerName,
    /// The id by which it asked, as JSON text.
    id_json: Box<str>,
}

impl AnswerPlace {
    /// The place that the id of an answer names; none where the id is no question's.
    pub fn read(id_json: &str) -> Option<Self> {
        let id: String = serde_json::from_str(id_json).ok()?;
        let mut parts = id.strip_prefix(PREFIX)?.splitn(3, ':');
        let (language, server, inner) = (parts.next()?, parts.next()?, parts.next()?);
        Some(Self {
            language: Language::parse(language)?,
            server: ServerName::parse(server.as_bytes()).ok()?,
            id_json: serde_json::to_string(inner).ok()?.into(),
        })
    }

    /// The answer as that server's own client would give it. None where it has no id, which it always has here.
    pub fn answer(&self, message: &Message<'_>) -> Option<Bytes> {
        with_id(message, &self.id_json).map(Bytes::from)
    }
}

/// A server's request with the id of a question. None where its id is no string, which it always is here.
pub(super) fn question(
    message: &Message<'_>,
    language: Language,
    server: &str,
) -> Option<Box<str>> {
    let id: String = serde_json::from_str(message.id()?.as_json()).ok()?;
    let id = serde_json::to_string(&format!("{PREFIX}{language}:{server}:{id}")).ok()?;
    with_id(message, &id).map(Into::into)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests fail by panicking")]
    use super::*;
    use mooring_protocol::Sender;

    #[test]
    fn an_answer_goes_back_to_where_the_question_came_from() {
        let asked = r#"{"jsonrpc":"2.0","id":"s:7.ab:\"x\"","method":"elicitation/create","params":{"n":1.00}}"#;
        let asked = Message::parse(asked.as_bytes(), Sender::Upstream).unwrap();
        let question = question(&asked, Language::Python, "tools").unwrap();
        assert!(question.contains(r#""params":{"n":1.00}"#), "{question}");
        let id: serde_json::Value = serde_json::from_str(&question).unwrap();
        let id = id.get("id").unwrap().to_string();
        assert_eq!(id, r#""n:python:tools:s:7.ab:\"x\"""#);
        let place = AnswerPlace::read(&id).unwrap();
        assert_eq!(place.language, Language::Python);
        assert_eq!(place.server.as_str(), "tools");
        let answer = format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{{"action":"accept"}}}}"#);
        let answer = Message::parse(answer.as_bytes(), Sender::Client).unwrap();
        assert_eq!(
            place.answer(&answer).unwrap(),
            r#"{"jsonrpc":"2.0","id":"s:7.ab:\"x\"","result":{"action":"accept"}}"#
        );
        for no_question in [
            "1",
            "\"s:1:2\"",
            "\"n:perl:tools:x\"",
            "\"n:python:\"",
            "null",
        ] {
            assert_eq!(AnswerPlace::read(no_question), None, "{no_question}");
        }
    }

    #[test]
    fn a_client_that_has_gone_or_takes_nothing_hears_nothing() {
        assert!(!RunClient::silent().ask("x".into()));
        let (client, asked) = RunClient::asked();
        for _ in 0..WAITING_MAX {
            assert!(client.ask("x".into()));
        }
        assert!(!client.ask("x".into()));
        drop(asked);
        let (client, asked) = RunClient::asked();
        drop(asked);
        assert!(!client.ask("x".into()));
    }
}
