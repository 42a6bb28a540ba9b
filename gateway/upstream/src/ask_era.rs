//! Asks servers with `server/discover` whether they serve requests without sessions (MCP 2026-07-28).
//!
//! Invariant: only an answer that a server of one era alone gives is evidence. A refused credential, a status of 500 or
//! above, and silence are none.

use std::time::Duration;

use http::{HeaderValue, StatusCode};
use mooring_session::rules::Ownership;
use serde::Deserialize;

use super::{
    Answer, Caller, Client, ExchangeError, InstanceTransport, Outgoing, Server, ServerEra,
    Statefulness, ask_statefulness, read_answer, within,
};
use mooring_protocol::envelope::{Kind, MODERN_VERSION_KEY};
use mooring_protocol::header::MCP_METHOD;
use mooring_protocol::{Method, Revision};
use mooring_settings::{Affinity, EraChoice};

/// The era in which a server serves clients without sessions, for a request of this caller.
///
/// A server whose sessions are kept serves them in its sessions alone: without one, it would answer each request from an
/// empty state, without an error.
///
/// # Errors
/// It could not be asked. `Ok(None)`: it answered with a status that is no evidence.
pub async fn era_of(
    client: &Client,
    server: &Server,
    caller: &Caller<'_>,
    next_id: impl Fn() -> String,
    limit: Duration,
) -> Result<Option<ServerEra>, ExchangeError> {
    match server.era {
        EraChoice::Legacy => return Ok(Some(ServerEra::Legacy)),
        EraChoice::Modern => return Ok(Some(ServerEra::Modern)),
        EraChoice::Auto => {}
    }
    let keeps_sessions = || {
        server.affinity == Affinity::On
            || server.affinity == Affinity::ByServer
                && server.statefulness() == Statefulness::Stateful
    };
    if server.ownership == Ownership::Owned || keeps_sessions() {
        return Ok(Some(ServerEra::Legacy));
    }
    if let Some(found) = server.era_log.get() {
        return Ok(found);
    }
    let _asking = server.era_log.asking.lock().await;
    if let Some(found) = server.era_log.get() {
        return Ok(found);
    }
    if server.affinity == Affinity::ByServer && server.statefulness() == Statefulness::Unknown {
        ask_statefulness(client, server, &next_id, limit).await;
        if keeps_sessions() {
            return Ok(Some(ServerEra::Legacy));
        }
    }
    let asked = Box::pin(ask(client, server, caller, &next_id, limit)).await;
    let found = asked.as_ref().ok().copied().flatten();
    let era = found.map(|found| found.era);
    // The status may be about the credential of this user, and the server another one for others.
    let is_of_user =
        || server.user_secret.is_some() || server.exchanged_token_digest(caller).is_some();
    if !(found.is_some_and(|found| found.is_of_status) && is_of_user()) {
        server.era_log.set(era);
    }
    if let Some(era) = era {
        tracing::info!(server = %server.id, ?era, "asked which era of MCP the server serves");
    }
    asked.map(|_| era)
}

/// What an answer shows.
#[derive(Clone, Copy, Debug)]
struct Evidence {
    era: ServerEra,
    /// Whether nothing but a status that refuses the request shows it.
    is_of_status: bool,
}

impl Evidence {
    const fn of(era: ServerEra) -> Self {
        Self {
            era,
            is_of_status: false,
        }
    }
}

/// Asks the instances in turn, until one gives evidence.
async fn ask(
    client: &Client,
    server: &Server,
    caller: &Caller<'_>,
    next_id: &impl Fn() -> String,
    limit: Duration,
) -> Result<Option<Evidence>, ExchangeError> {
    let mut last = Ok(None);
    for instance in server.in_turn() {
        let request = discovery(&next_id());
        let outgoing = Outgoing::post(server, request.into())
            .on_behalf_of(server, caller)
            .revision(Revision::MODERN.as_str())
            .header(MCP_METHOD, DISCOVER);
        let transport = InstanceTransport { client, instance };
        let exchange = async {
            let reply = client.send_once(instance, &outgoing).await?;
            let status = reply.status;
            match read_answer(reply, &outgoing, &transport).await {
                Ok(answer) => Ok(evidence(&answer)),
                // A server may refuse what it does not know with any text.
                Err(ExchangeError::Invalid(_) | ExchangeError::NoResponse) => {
                    Ok(evidence_of_status(status))
                }
                Err(error) => Err(error),
            }
        };
        last = within(limit, exchange).await;
        if let Ok(Some(_)) = last {
            break;
        }
    }
    last
}

const DISCOVER: HeaderValue = HeaderValue::from_static("server/discover");

fn discovery(id_json: &str) -> String {
    let method = Method::ServerDiscover.label();
    let revision = Revision::MODERN.as_str();
    let version = env!("CARGO_PKG_VERSION");
    format!(
        r#"{{"jsonrpc":"2.0","id":{id_json},"method":"{method}","params":{{"_meta":{{"{MODERN_VERSION_KEY}":"{revision}","io.modelcontextprotocol/clientCapabilities":{{}},"io.modelcontextprotocol/clientInfo":{{"name":"mooring","version":"{version}"}}}}}}}}"#
    )
}

/// What an answer to `server/discover` shows.
fn evidence(answer: &Answer) -> Option<Evidence> {
    #[derive(Deserialize)]
    struct DiscoverResult {
        #[serde(rename = "supportedVersions")]
        versions: Vec<String>,
    }
    let message = answer.message();
    let outcome = message.as_ref().and_then(|message| {
        let outcome = message.outcome()?;
        Some((message.kind(), outcome))
    });
    match outcome {
        Some((Kind::Result, result)) if answer.status.is_success() => {
            let discovered = serde_json::from_str::<DiscoverResult>(result);
            let is_modern = discovered.is_ok_and(|discovered| {
                let mut versions = discovered.versions.iter();
                versions.any(|version| version == Revision::MODERN.as_str())
            });
            Some(Evidence::of(match is_modern {
                true => ServerEra::Modern,
                false => ServerEra::Legacy,
            }))
        }
        Some((Kind::Error, error)) if is_modern_error(error) => {
            Some(Evidence::of(ServerEra::Modern))
        }
        _ => evidence_of_status(answer.status),
    }
}

fn evidence_of_status(status: StatusCode) -> Option<Evidence> {
    match status {
        StatusCode::UNAUTHORIZED
        | StatusCode::FORBIDDEN
        | StatusCode::PROXY_AUTHENTICATION_REQUIRED
        | StatusCode::REQUEST_TIMEOUT
        | StatusCode::TOO_EARLY
        | StatusCode::TOO_MANY_REQUESTS => None,
        status if status.is_success() || status.is_client_error() => Some(Evidence {
            era: ServerEra::Legacy,
            is_of_status: status.is_client_error(),
        }),
        _ => None,
    }
}

/// Whether an error, given as JSON text, is one of 2026-07-28: of those codes only that for another revision can be that of
/// a server which does not serve it.
#[must_use]
pub fn is_modern_error(error: &str) -> bool {
    #[derive(Deserialize)]
    struct CodeOnly {
        code: i64,
        data: Option<SupportedVersions>,
    }
    #[derive(Deserialize)]
    struct SupportedVersions {
        #[serde(default)]
        supported: Vec<String>,
    }
    const UNSUPPORTED_VERSION: i64 = -32022;
    let Ok(error) = serde_json::from_str::<CodeOnly>(error) else {
        // Other errors have other data.
        #[derive(Deserialize)]
        struct AnyCode {
            code: i64,
        }
        let code = serde_json::from_str::<AnyCode>(error).map(|error| error.code);
        return code.is_ok_and(|code| (-32099..=-32020).contains(&code));
    };
    match error.code {
        UNSUPPORTED_VERSION => error.data.is_some_and(|data| {
            let mut supported = data.supported.iter();
            supported.any(|version| version == Revision::MODERN.as_str())
        }),
        code => (-32099..=-32020).contains(&code),
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;

    fn evidence_in(status: u16, text: &str) -> Option<Evidence> {
        evidence(&Answer {
            status: StatusCode::from_u16(status).unwrap_or_default(),
            upstream_session: None,
            text: Bytes::copy_from_slice(text.as_bytes()),
        })
    }

    fn seen(status: u16, text: &str) -> Option<ServerEra> {
        evidence_in(status, text).map(|seen| seen.era)
    }

    #[test]
    fn a_status_alone_may_be_about_the_credential() {
        let refused = r#"{"jsonrpc":"2.0","id":1,"error":{"code":-32601,"message":"m"}}"#;
        for (status, text, is_of_status) in [
            (400, "bad key", true),
            (404, "", true),
            (200, refused, false),
            (200, r#"{"jsonrpc":"2.0","id":1,"result":{}}"#, false),
        ] {
            let seen = evidence_in(status, text).map(|seen| seen.is_of_status);
            assert_eq!(seen, Some(is_of_status), "{status} {text}");
        }
    }

    #[test]
    fn only_answers_of_one_era_are_evidence() {
        use ServerEra::{Legacy, Modern};
        let error = |code: i32, data: &str| {
            format!(r#"{{"jsonrpc":"2.0","id":1,"error":{{"code":{code},"message":"m"{data}}}}}"#)
        };
        let discovered = |versions: &str| {
            format!(r#"{{"jsonrpc":"2.0","id":1,"result":{{"supportedVersions":{versions}}}}}"#)
        };
        for (status, text, expected) in [
            (200, discovered(r#"["2026-07-28"]"#), Some(Modern)),
            (200, discovered(r#"["2025-11-25"]"#), Some(Legacy)),
            (
                200,
                r#"{"jsonrpc":"2.0","id":1,"result":{}}"#.to_owned(),
                Some(Legacy),
            ),
            (400, error(-32020, ""), Some(Modern)),
            (
                400,
                error(-32021, r#","data":{"requiredCapabilities":{}}"#),
                Some(Modern),
            ),
            (
                400,
                error(-32022, r#","data":{"supported":["2026-07-28"]}"#),
                Some(Modern),
            ),
            (
                400,
                error(-32022, r#","data":{"supported":["2025-11-25"]}"#),
                Some(Legacy),
            ),
            (200, error(-32601, ""), Some(Legacy)),
            (400, error(-32000, ""), Some(Legacy)),
            (400, "Bad Request".to_owned(), Some(Legacy)),
            (404, String::new(), Some(Legacy)),
            (405, String::new(), Some(Legacy)),
            (401, error(-32001, ""), None),
            (403, String::new(), None),
            (429, String::new(), None),
            (500, error(-32603, ""), None),
            (502, String::new(), None),
            (503, String::new(), None),
        ] {
            assert_eq!(seen(status, &text), expected, "{status} {text}");
        }
    }
}
