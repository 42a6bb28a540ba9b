//! What client and server negotiated in `initialize`.
//!
//! Invariant: only capabilities that the client declared are allowed.

use std::borrow::Cow;

use serde::Deserialize;
use serde_json::Value;

use mooring_protocol::{Message, Method, Revision};

/// What a client declared that a server may ask it for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ClientCapabilities {
    sampling: bool,
    roots: bool,
    elicitation_form: bool,
    elicitation_url: bool,
}

impl ClientCapabilities {
    /// Reads the params of `initialize`. What cannot be read is not declared.
    #[must_use]
    pub fn declared_in(initialize_params: &str) -> Self {
        let params: Value = serde_json::from_str(initialize_params).unwrap_or_default();
        let capability = |name: &str| {
            let value = params.get("capabilities")?.get(name)?;
            value.as_object()
        };
        let elicitation = capability("elicitation");
        let mode = |name: &str| {
            elicitation.is_some_and(|modes| modes.get(name).is_some_and(|mode| !mode.is_null()))
        };
        Self {
            sampling: capability("sampling").is_some(),
            roots: capability("roots").is_some(),
            // Without a mode, forms are meant (MCP 2025-11-25, elicitation, capabilities).
            elicitation_form: elicitation.is_some() && (mode("form") || !mode("url")),
            elicitation_url: mode("url"),
        }
    }

    /// Whether it opens addresses for its user (MCP 2025-11-25, elicitation in URL mode).
    #[must_use]
    pub fn opens_addresses(self) -> bool {
        self.elicitation_url
    }
}

/// The client's capabilities, and the revision.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct NegotiatedCapabilities {
    client: ClientCapabilities,
    revision: Option<Revision>,
}

impl NegotiatedCapabilities {
    /// Reads the client's `initialize` request.
    pub(super) fn by_client(initialize: &Message<'_>) -> Self {
        let client = initialize.raw_params();
        Self {
            client: client.map_or_else(Default::default, ClientCapabilities::declared_in),
            revision: None,
        }
    }

    /// Adds the server's answer to `initialize`.
    pub(super) fn answered(&mut self, answer: &Message<'_>) {
        #[derive(Deserialize)]
        #[serde(rename_all = "camelCase")]
        struct Answer<'a> {
            #[serde(borrow)]
            protocol_version: Cow<'a, str>,
        }
        let answer = answer.outcome().map(serde_json::from_str::<Answer<'_>>);
        if let Some(Ok(answer)) = answer {
            self.revision = Revision::named(&answer.protocol_version);
        }
    }

    /// Whether streams start with an event that has an id and no data (MCP 2025-11-25, transports). Clients of earlier
    /// revisions may reject such an event.
    pub(super) fn has_priming_events(&self) -> bool {
        self.revision
            .is_some_and(|revision| revision >= Revision::V2025_11_25)
    }

    /// Whether the client's capabilities allow this request. Unknown methods are allowed.
    pub(super) fn allows(&self, request: &Message<'_>) -> bool {
        match request.method() {
            Method::SamplingCreateMessage => self.client.sampling,
            Method::RootsList => self.client.roots,
            Method::ElicitationCreate if is_by_url(request) => self.client.elicitation_url,
            Method::ElicitationCreate => self.client.elicitation_form,
            _ => true,
        }
    }
}

fn is_by_url(elicitation: &Message<'_>) -> bool {
    #[derive(Deserialize)]
    struct Params<'a> {
        #[serde(borrow)]
        mode: Option<Cow<'a, str>>,
    }
    elicitation
        .raw_params()
        .and_then(|params| serde_json::from_str::<Params<'_>>(params).ok())
        .and_then(|params| params.mode)
        .is_some_and(|mode| mode == "url")
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "test code")]
    use super::*;
    use mooring_protocol::Sender;

    fn declared(capabilities: &str) -> NegotiatedCapabilities {
        let text = format!(
            r#"{{"jsonrpc":"2.0","id":1,"method":"initialize","params":{{"capabilities":{capabilities}}}}}"#
        );
        NegotiatedCapabilities::by_client(&Message::parse(text.as_bytes(), Sender::Client).unwrap())
    }

    fn allows(negotiated: &NegotiatedCapabilities, method: &str, params: &str) -> bool {
        let text = format!(r#"{{"jsonrpc":"2.0","id":1,"method":"{method}","params":{params}}}"#);
        negotiated.allows(&Message::parse(text.as_bytes(), Sender::Upstream).unwrap())
    }

    #[test]
    fn only_declared_capabilities_are_allowed() {
        let form = ("elicitation/create", r#"{"message":"?"}"#);
        let url = ("elicitation/create", r#"{"mode":"url"}"#);
        let sampling = ("sampling/createMessage", "{}");
        let roots = ("roots/list", "{}");
        let rows: [(&str, &[(&str, &str)]); 7] = [
            ("{}", &[]),
            (r#"{"elicitation":{}}"#, &[form]),
            (r#"{"elicitation":{"form":{}}}"#, &[form]),
            (r#"{"elicitation":{"url":{}}}"#, &[url]),
            (r#"{"elicitation":{"form":{},"url":{}}}"#, &[form, url]),
            (
                r#"{"sampling":{},"roots":{"listChanged":true}}"#,
                &[sampling, roots],
            ),
            (r#"{"sampling":null,"roots":true}"#, &[]),
        ];
        for (capabilities, allowed) in rows {
            let negotiated = declared(capabilities);
            for request in [form, url, sampling, roots] {
                let expected = allowed.contains(&request);
                assert_eq!(
                    allows(&negotiated, request.0, request.1),
                    expected,
                    "{capabilities} {request:?}"
                );
            }
            assert!(allows(&negotiated, "vendor/ask", "{}"));
        }
    }

    #[test]
    fn streams_are_primed_from_2025_11_25_on() {
        let answered = |revision: &str| {
            let text = format!(
                r#"{{"jsonrpc":"2.0","id":1,"result":{{"protocolVersion":"{revision}"}}}}"#
            );
            let mut negotiated = NegotiatedCapabilities::default();
            negotiated.answered(&Message::parse(text.as_bytes(), Sender::Upstream).unwrap());
            negotiated.has_priming_events()
        };
        assert!(answered("2025-11-25"));
        assert!(!answered("2025-06-18"));
        assert!(!answered("nonsense"));
        assert!(!NegotiatedCapabilities::default().has_priming_events());
    }
}
