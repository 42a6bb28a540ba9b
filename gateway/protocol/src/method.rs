//! The methods that the gateway handles specially, and a bounded set of names for metrics.
//!
//! Invariant: [`Method::label`] never returns text from a client or an upstream.

/// A JSON-RPC method that the gateway distinguishes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Method {
    /// `initialize`
    Initialize,
    /// `notifications/initialized`
    Initialized,
    /// `ping`, in either direction.
    Ping,
    /// `notifications/cancelled`, in either direction.
    Cancelled,
    /// `notifications/progress`, in either direction.
    Progress,
    /// `tools/call`
    ToolsCall,
    /// `tools/list`
    ToolsList,
    /// `prompts/get`
    PromptsGet,
    /// `prompts/list`
    PromptsList,
    /// `resources/read`
    ResourcesRead,
    /// `resources/list`
    ResourcesList,
    /// `resources/templates/list`
    ResourceTemplatesList,
    /// `resources/subscribe`
    ResourcesSubscribe,
    /// `resources/unsubscribe`
    ResourcesUnsubscribe,
    /// `completion/complete`
    CompletionComplete,
    /// `logging/setLevel`
    LoggingSetLevel,
    /// `notifications/message`
    LogMessage,
    /// `sampling/createMessage`
    SamplingCreateMessage,
    /// `elicitation/create`
    ElicitationCreate,
    /// `roots/list`
    RootsList,
    /// `server/discover` (2026-07-28).
    ServerDiscover,
    /// Every other method; forwarded unchanged.
    Other,
}

/// All distinguished methods.
const NAMES: [(Method, &str); 21] = [
    (Method::ToolsCall, "tools/call"),
    (Method::Initialize, "initialize"),
    (Method::Initialized, "notifications/initialized"),
    (Method::Ping, "ping"),
    (Method::Cancelled, "notifications/cancelled"),
    (Method::Progress, "notifications/progress"),
    (Method::ToolsList, "tools/list"),
    (Method::PromptsGet, "prompts/get"),
    (Method::PromptsList, "prompts/list"),
    (Method::ResourcesRead, "resources/read"),
    (Method::ResourcesList, "resources/list"),
    (Method::ResourceTemplatesList, "resources/templates/list"),
    (Method::ResourcesSubscribe, "resources/subscribe"),
    (Method::ResourcesUnsubscribe, "resources/unsubscribe"),
    (Method::CompletionComplete, "completion/complete"),
    (Method::LoggingSetLevel, "logging/setLevel"),
    (Method::LogMessage, "notifications/message"),
    (Method::SamplingCreateMessage, "sampling/createMessage"),
    (Method::ElicitationCreate, "elicitation/create"),
    (Method::RootsList, "roots/list"),
    (Method::ServerDiscover, "server/discover"),
];

impl Method {
    /// The method with this name; [`Method::Other`] for a name that is not in the table.
    #[must_use]
    pub fn named(name: &str) -> Self {
        NAMES
            .iter()
            .find(|(_, known)| *known == name)
            .map_or(Self::Other, |(method, _)| *method)
    }

    /// The name for logs and metric labels: the method's own, or `other`.
    #[must_use]
    pub fn label(self) -> &'static str {
        NAMES
            .iter()
            .find(|(method, _)| *method == self)
            .map_or("other", |(_, name)| name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_name_leads_to_its_method_and_back() {
        for (method, name) in NAMES {
            assert_eq!(Method::named(name), method);
            assert_eq!(method.label(), name);
        }
        assert_eq!(Method::named("vendor/secret-name").label(), "other");
    }
}
