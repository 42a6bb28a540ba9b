//! One question to a hook and its answer: the payload of version 1, which docs/hooks.md describes.
//!
//! Invariant: an answer that cannot be understood in full, or is that to another question, is a failure, never a consent.

use bytes::Bytes;
use http::header::{ACCEPT, CONTENT_TYPE, HeaderValue};
use http::{Method, Request, StatusCode};
use serde::{Deserialize, Serialize, Serializer};
use serde_json::value::RawValue;

use mooring_metrics as metrics;
use mooring_protocol::ReplyError;
use mooring_settings::{HookPhase, HookSettings};
use mooring_upstream::{HttpClient, HttpError};

/// The version of the payload.
pub(super) const VERSION: u32 = 1;
/// Maximum characters of a reason that the caller gets; the rest is cut off.
const REASON_CHARS_MAX: usize = 500;

/// A request to a hook.
#[derive(Debug, Serialize)]
pub(super) struct Question<'a> {
    pub(super) version: u32,
    #[serde(serialize_with = "phase_name")]
    pub(super) phase: HookPhase,
    pub(super) call_id: &'a str,
    pub(super) server: &'a str,
    pub(super) tool: Option<&'a str>,
    pub(super) user: &'a str,
    pub(super) teams: &'a [String],
    pub(super) roles: &'a [String],
    pub(super) session: Option<&'a str>,
    pub(super) arguments: Option<&'a RawValue>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) result: Option<&'a RawValue>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) error: Option<&'a RawValue>,
}

fn phase_name<S: Serializer>(phase: &HookPhase, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(phase.into())
}

/// A hook's answer. Unknown fields are refused: a misspelled one could let a call through unchanged.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Answer {
    call_id: Box<str>,
    allow: bool,
    reason: Option<String>,
    arguments: Option<Box<RawValue>>,
    result: Option<Box<RawValue>>,
}

/// A hook's decision.
#[derive(Debug)]
pub(super) enum Verdict {
    /// Forward it unchanged.
    Allowed,
    /// Forward it with these arguments, or with this result.
    Changed(Box<RawValue>),
    /// Refuse it, with the reason for the caller.
    Refused(Option<String>),
}

/// Why a hook gave no valid answer.
#[derive(Debug, thiserror::Error)]
pub(super) enum HookError {
    /// The question cannot be written.
    #[error("the question cannot be written")]
    Question(#[source] serde_json::Error),
    /// It was not reached, or did not respond.
    #[error("the hook was not reached, or did not respond")]
    Send(#[from] HttpError),
    /// The time was over.
    #[error("no answer within {0} ms")]
    TimedOut(u128),
    /// Another status than 200.
    #[error("the answer has HTTP status {0}")]
    Status(StatusCode),
    /// Its body broke off, or is too long.
    #[error("the answer could not be read")]
    Body(#[from] ReplyError),
    /// Its body is no answer.
    #[error("the answer is not a JSON object of this version")]
    Answer(#[source] serde_json::Error),
    /// It is the answer to the question about another call.
    #[error("the answer has the call_id of another call")]
    OtherCall,
    /// A member that has no place in this answer.
    #[error("the answer has {0}")]
    Misplaced(&'static str),
}

/// Asks a hook, once more if the connection broke: it may have been closed while it was idle.
pub(super) async fn ask(
    client: &HttpClient,
    hook: &HookSettings,
    question: &Question<'_>,
    answer_bytes_max: usize,
) -> Result<Verdict, HookError> {
    let text = Bytes::from(serde_json::to_vec(question).map_err(HookError::Question)?);
    let asking = async {
        let request = request(hook, text);
        let reply = match client.request(&request).await {
            Err(HttpError::RoundTrip(error)) if !error.is_invalid_response() => {
                client.request(&request).await?
            }
            sent => sent?,
        };
        match reply.status {
            StatusCode::OK => Ok(reply.body.read_text(answer_bytes_max).await?),
            status => Err(HookError::Status(status)),
        }
    };
    let answer = tokio::time::timeout(hook.timeout, asking).await;
    let answer = answer.unwrap_or_else(|_| Err(HookError::TimedOut(hook.timeout.as_millis())))?;
    let verdict = read_answer(question, &answer);
    if let Err(HookError::OtherCall) = &verdict {
        metrics::reply_mismatched(metrics::ReplySource::Hook);
        client.distrust(&hook.url);
    }
    verdict
}

fn request(hook: &HookSettings, text: Bytes) -> Request<Bytes> {
    let mut request = Request::new(text);
    *request.method_mut() = Method::POST;
    *request.uri_mut() = hook.url.clone();
    let json = HeaderValue::from_static("application/json");
    let headers = request.headers_mut();
    headers.extend(hook.headers.map().clone());
    headers.insert(CONTENT_TYPE, json.clone());
    headers.insert(ACCEPT, json);
    request
}

fn read_answer(question: &Question<'_>, text: &[u8]) -> Result<Verdict, HookError> {
    let answer: Answer = serde_json::from_slice(text).map_err(HookError::Answer)?;
    if *answer.call_id != *question.call_id {
        return Err(HookError::OtherCall);
    }
    let changed = match (question.phase, answer.arguments, answer.result) {
        (HookPhase::Before, _, Some(_)) => {
            return Err(HookError::Misplaced("a result before the call"));
        }
        (HookPhase::After, Some(_), _) => {
            return Err(HookError::Misplaced("arguments after the call"));
        }
        (HookPhase::Before, changed, None) | (HookPhase::After, None, changed) => changed,
    };
    let is_object = |value: &RawValue| value.get().starts_with('{');
    match (answer.allow, changed) {
        (true, None) => Ok(Verdict::Allowed),
        (true, Some(value)) if is_object(&value) => Ok(Verdict::Changed(value)),
        (true, Some(_)) => Err(HookError::Misplaced("a value that is not an object")),
        (false, None) => {
            let shown = |reason: String| reason.chars().take(REASON_CHARS_MAX).collect();
            Ok(Verdict::Refused(answer.reason.map(shown)))
        }
        (false, Some(_)) => Err(HookError::Misplaced("both a refusal and a change")),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "test code")]
    use super::*;

    fn question(phase: HookPhase) -> Question<'static> {
        Question {
            version: VERSION,
            phase,
            call_id: "7",
            server: "tools",
            tool: None,
            user: "ada",
            teams: &[],
            roles: &[],
            session: None,
            arguments: None,
            result: None,
            error: None,
        }
    }

    fn read(phase: HookPhase, text: &str) -> String {
        match read_answer(&question(phase), text.as_bytes()) {
            Ok(Verdict::Allowed) => "allowed".to_owned(),
            Ok(Verdict::Changed(value)) => format!("changed to {value}"),
            Ok(Verdict::Refused(reason)) => format!("refused: {reason:?}"),
            Err(error) => format!("failed: {error}"),
        }
    }

    #[test]
    fn only_an_answer_that_is_understood_in_full_is_a_consent() {
        let not_an_answer = "failed: the answer is not a JSON object of this version";
        for (phase, text, verdict) in [
            (
                HookPhase::Before,
                r#"{"call_id":"7","allow":true}"#,
                "allowed",
            ),
            (
                HookPhase::After,
                r#"{"call_id":"7","allow":true,"reason":null}"#,
                "allowed",
            ),
            (
                HookPhase::Before,
                r#"{"call_id":"7","allow":true,"arguments":{"a": 1}}"#,
                r#"changed to {"a": 1}"#,
            ),
            (
                HookPhase::After,
                r#"{"call_id":"7","allow":true,"result":{"content":[]}}"#,
                r#"changed to {"content":[]}"#,
            ),
            (
                HookPhase::Before,
                r#"{"call_id":"7","allow":false}"#,
                "refused: None",
            ),
            (
                HookPhase::After,
                r#"{"call_id":"7","allow":false,"reason":"no"}"#,
                r#"refused: Some("no")"#,
            ),
            (
                HookPhase::Before,
                r#"{"call_id":"7","allow":true,"result":{}}"#,
                "failed: the answer has a result before the call",
            ),
            (
                HookPhase::After,
                r#"{"call_id":"7","allow":true,"arguments":{}}"#,
                "failed: the answer has arguments after the call",
            ),
            (
                HookPhase::Before,
                r#"{"call_id":"7","allow":true,"arguments":[]}"#,
                "failed: the answer has a value that is not an object",
            ),
            (
                HookPhase::Before,
                r#"{"call_id":"7","allow":false,"arguments":{}}"#,
                "failed: the answer has both a refusal and a change",
            ),
            (
                HookPhase::Before,
                r#"{"call_id":"7","allow":true,"argument":{}}"#,
                not_an_answer,
            ),
            (
                HookPhase::Before,
                r#"{"call_id":"7","allow":"true"}"#,
                not_an_answer,
            ),
            (
                HookPhase::Before,
                r#"{"call_id":"7","allow":true,"allow":false}"#,
                not_an_answer,
            ),
            (
                HookPhase::Before,
                r#"{"call_id":"8","allow":true}"#,
                "failed: the answer has the call_id of another call",
            ),
            (HookPhase::Before, r#"{"allow":true}"#, not_an_answer),
            (HookPhase::Before, r#"{}"#, not_an_answer),
            (HookPhase::Before, "", not_an_answer),
        ] {
            assert_eq!(read(phase, text), verdict, "{text}");
        }
        let long = format!(
            r#"{{"call_id":"7","allow":false,"reason":"{}"}}"#,
            "ä".repeat(REASON_CHARS_MAX + 1)
        );
        let Verdict::Refused(Some(reason)) =
            read_answer(&question(HookPhase::Before), long.as_bytes()).unwrap()
        else {
            unreachable!("it is a refusal");
        };
        assert_eq!(reason.chars().count(), REASON_CHARS_MAX);
    }
}
