//! The fields of a client's request that go on to upstream servers.
//!
//! Invariant: the client's credentials, cookies and session id are none of them.

use http::{HeaderMap, HeaderName, HeaderValue};

use mooring_protocol::Revision;
use mooring_protocol::header::{
    LAST_EVENT_ID, MCP_PROTOCOL_VERSION, TRACEPARENT, TRACESTATE, X_REQUEST_ID,
};
use mooring_traces::RemoteContext;

/// Fields that are forwarded because they are useful and not sensitive: trace context (W3C) and language.
static UNCHANGED: [HeaderName; 4] = [
    TRACEPARENT,
    TRACESTATE,
    HeaderName::from_static("baggage"),
    http::header::ACCEPT_LANGUAGE,
];
/// Tool arguments mirrored into headers, forwarded unchanged (MCP 2026-07-28, `x-mcp-header`).
const PARAM_PREFIX: &str = "mcp-param-";

/// What a client's request says that upstream servers get too. Cheap to clone: most requests have no other fields.
#[derive(Clone, Debug, Default)]
pub struct ForwardedFields {
    /// The id of the request.
    pub request_id: Option<HeaderValue>,
    /// The revision that the client names.
    pub revision: Option<Revision>,
    /// The event after which the client resumes a stream.
    pub last_event_id: Option<HeaderValue>,
    others: Vec<(HeaderName, HeaderValue)>,
}

impl ForwardedFields {
    /// Those of these headers, but for the revision, which may be invalid.
    #[must_use]
    pub fn of(headers: &HeaderMap) -> Self {
        let unchanged = UNCHANGED
            .iter()
            .filter_map(|name| Some((name, headers.get(name)?)));
        let params = headers.iter().filter(|(name, _)| is_param(name));
        let others = unchanged.chain(params);
        Self {
            request_id: headers.get(X_REQUEST_ID).cloned(),
            revision: None,
            last_event_id: headers.get(LAST_EVENT_ID).cloned(),
            others: others
                .map(|(name, value)| (name.clone(), value.clone()))
                .collect(),
        }
    }

    /// The trace of the client; none if it names none.
    #[must_use]
    pub fn trace_context(&self) -> Option<RemoteContext> {
        let value = |wanted: &HeaderName| {
            let mut others = self.others.iter();
            let (_, value) = others.find(|(name, _)| name == wanted)?;
            value.to_str().ok()
        };
        RemoteContext::parse(value(&TRACEPARENT)?, value(&TRACESTATE))
    }

    /// Adds them to the headers of another request.
    pub fn add_to(&self, headers: &mut HeaderMap) {
        if let Some(revision) = self.revision {
            let name = HeaderValue::from_static(revision.as_str());
            headers.insert(MCP_PROTOCOL_VERSION, name);
        }
        if let Some(id) = &self.last_event_id {
            headers.insert(LAST_EVENT_ID, id.clone());
        }
        if let Some(id) = &self.request_id {
            headers.insert(X_REQUEST_ID, id.clone());
        }
        for (name, value) in &self.others {
            if is_param(name) {
                headers.append(name, value.clone());
            } else {
                headers.insert(name, value.clone());
            }
        }
    }
}

fn is_param(name: &HeaderName) -> bool {
    name.as_str().starts_with(PARAM_PREFIX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secrets_of_the_client_do_not_go_on() {
        let sent = [
            ("authorization", "Bearer secret"),
            ("cookie", "secret"),
            ("x-api-key", "secret"),
            ("mcp-session-id", "secret"),
            ("traceparent", "00-1-1-01"),
            ("x-request-id", "r1"),
            ("last-event-id", "7"),
            ("mcp-param-city", "Oslo"),
            ("mcp-param-city", "Bergen"),
        ];
        let mut headers = HeaderMap::new();
        for (name, value) in sent {
            headers.append(name, HeaderValue::from_static(value));
        }
        let mut gone_on = HeaderMap::new();
        ForwardedFields::of(&headers).add_to(&mut gone_on);
        let of = |name: &str| -> Vec<_> { gone_on.get_all(name).iter().collect() };
        assert_eq!(of("mcp-param-city"), ["Oslo", "Bergen"]);
        for (name, value) in [
            ("traceparent", "00-1-1-01"),
            ("x-request-id", "r1"),
            ("last-event-id", "7"),
        ] {
            assert_eq!(of(name), [value]);
        }
        assert_eq!(gone_on.len(), 5, "{gone_on:?}");
    }
}
