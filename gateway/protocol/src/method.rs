//! The methods that the gateway handles specially, and a bounded set of names for metrics.
//!
//! Invariant: [`Method::label`] never returns text from a client or an upstream.

use strum::{EnumString, IntoStaticStr, VariantArray};

use super::keys::is_same_but_for_case;

/// A JSON-RPC method that the gateway distinguishes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, EnumString, IntoStaticStr, VariantArray)]
#[non_exhaustive]
pub enum Method {
    /// `initialize`
    #[strum(serialize = "initialize")]
    Initialize,
    /// `notifications/initialized`
    #[strum(serialize = "notifications/initialized")]
    Initialized,
    /// `ping`, in either direction.
    #[strum(serialize = "ping")]
    Ping,
    /// `notifications/cancelled`, in either direction.
    #[strum(serialize = "notifications/cancelled")]
    Cancelled,
    /// `notifications/progress`, in either direction.
    #[strum(serialize = "notifications/progress")]
    Progress,
    /// `tools/call`
    #[strum(serialize = "tools/call")]
    ToolsCall,
    /// `tools/list`
    #[strum(serialize = "tools/list")]
    ToolsList,
    /// `prompts/get`
    #[strum(serialize = "prompts/get")]
    PromptsGet,
    /// `prompts/list`
    #[strum(serialize = "prompts/list")]
    PromptsList,
    /// `resources/read`
    #[strum(serialize = "resources/read")]
    ResourcesRead,
    /// `resources/list`
    #[strum(serialize = "resources/list")]
    ResourcesList,
    /// `resources/templates/list`
    #[strum(serialize = "resources/templates/list")]
    ResourceTemplatesList,
    /// `resources/subscribe`
    #[strum(serialize = "resources/subscribe")]
    ResourcesSubscribe,
    /// `resources/unsubscribe`
    #[strum(serialize = "resources/unsubscribe")]
    ResourcesUnsubscribe,
    /// `completion/complete`
    #[strum(serialize = "completion/complete")]
    CompletionComplete,
    /// `logging/setLevel`
    #[strum(serialize = "logging/setLevel")]
    LoggingSetLevel,
    /// `notifications/message`
    #[strum(serialize = "notifications/message")]
    LogMessage,
    /// `sampling/createMessage`
    #[strum(serialize = "sampling/createMessage")]
    SamplingCreateMessage,
    /// `elicitation/create`
    #[strum(serialize = "elicitation/create")]
    ElicitationCreate,
    /// `roots/list`
    #[strum(serialize = "roots/list")]
    RootsList,
    /// `server/discover` (2026-07-28).
    #[strum(serialize = "server/discover")]
    ServerDiscover,
    /// `subscriptions/listen` (2026-07-28).
    #[strum(serialize = "subscriptions/listen")]
    SubscriptionsListen,
    /// Every other method; forwarded unchanged.
    #[strum(serialize = "other")]
    Other,
}

impl Method {
    /// The method with this name; [`Method::Other`] for an unknown one.
    #[must_use]
    pub fn named(name: &str) -> Self {
        name.parse().unwrap_or(Self::Other)
    }

    /// The method whose name differs from this one only in case, which some servers would take for it.
    #[must_use]
    pub fn in_another_case(name: &str) -> Option<Self> {
        let mut known = Self::VARIANTS.iter().copied();
        known.find(|method| {
            *method != Self::Other
                && method.label() != name
                && is_same_but_for_case(method.label(), name)
        })
    }

    /// Whether the method is one of requests: a message with it and without an id is neither a request nor a
    /// notification. Of [`Method::Other`] it is not known.
    #[must_use]
    pub fn is_of_requests(self) -> bool {
        self != Self::Other && !self.label().starts_with("notifications/")
    }

    /// The name for logs and metric labels: the method's own, or `other`.
    #[must_use]
    pub fn label(self) -> &'static str {
        self.into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_name_leads_to_its_method_and_back() {
        for &method in Method::VARIANTS {
            assert_eq!(Method::named(method.label()), method);
        }
        assert_eq!(Method::ToolsCall.label(), "tools/call");
        assert_eq!(Method::named("vendor/secret-name").label(), "other");
    }

    #[test]
    fn a_method_in_another_case_is_known() {
        for other in ["Tools/Call", "TOOLS/CALL", "tool\u{17f}/call"] {
            assert_eq!(Method::in_another_case(other), Some(Method::ToolsCall));
        }
        for name in [
            "tools/call",
            "tools/calls",
            "Other",
            "vendor/secret-name",
            "",
        ] {
            assert_eq!(Method::in_another_case(name), None, "{name}");
        }
    }

    #[test]
    fn methods_of_requests_are_told_from_those_of_notifications() {
        assert!(Method::ToolsCall.is_of_requests() && Method::Ping.is_of_requests());
        assert!(!Method::Initialized.is_of_requests() && !Method::LogMessage.is_of_requests());
        assert!(!Method::Other.is_of_requests());
    }
}
