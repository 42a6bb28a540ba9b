//! The functions for operators as tools of servers of kind `admin`: made from the same table as the REST interface, and served
//! by the same handlers, with the rights, audit lines and bodies of these.
//!
//! Invariant: a call gets what the REST interface would give to its caller. An act that is not confirmed is a preview.

mod call;
mod tool;

#[cfg(test)]
mod tests;

use std::sync::{Arc, Weak};

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use serde_json::{Value, json};

use self::call::RestRequest;
use self::tool::RestTool;
use super::app::App;
use super::rest::{RestRoute, ToolCaller};
use mooring_admin::OperatorIdentity;
use mooring_identity::Identity;
use mooring_pipeline::policy::AccessPolicy;
use mooring_pipeline::{OperatorToolCall, OperatorTools};

/// The tools of one state of the gateway.
#[derive(Debug)]
pub struct RestTools {
    /// What serves their calls. It holds these tools, and a request that calls one holds it.
    app: Weak<App>,
    tools: Vec<Arc<RestTool>>,
}

impl RestTools {
    /// The tools of every route that is one.
    #[must_use]
    pub fn new(app: Weak<App>) -> Self {
        Self::of_routes(app, super::rest_routes())
    }

    fn of_routes(app: Weak<App>, routes: Vec<RestRoute>) -> Self {
        let tools = routes.into_iter().filter_map(RestTool::of);
        Self {
            app,
            tools: tools.map(Arc::new).collect(),
        }
    }
}

impl OperatorTools for RestTools {
    fn list(&self, policy: &AccessPolicy, caller: &Identity) -> String {
        let has_right = |tool: &&Arc<RestTool>| {
            let right = tool.right;
            right.is_none_or(|right| policy.has_right(caller, right))
        };
        let tools = self.tools.iter().filter(has_right);
        let listed: Vec<&Value> = tools.map(|tool| &tool.listed).collect();
        json!({ "tools": listed }).to_string()
    }

    fn call(&self, call: OperatorToolCall) -> Option<BoxFuture<'static, String>> {
        let mut tools = self.tools.iter();
        let tool = Arc::clone(tools.find(|tool| tool.name == &*call.tool)?);
        let app = self.app.upgrade()?;
        let caller = ToolCaller {
            operator: OperatorIdentity {
                identity: call.caller,
                request_id: call.request_id.to_str().unwrap_or_default().into(),
            },
            is_from_foreign_page: call.is_from_foreign_page,
        };
        let arguments = call.arguments;
        let serving = async move {
            let result = match RestRequest::of(&tool, arguments) {
                Ok(call) => call.serve(&tool, app, caller).await,
                Err(problem) => call::failed(&problem),
            };
            result.to_string()
        };
        Some(serving.boxed())
    }
}
