//! What people see of code servers and decide about them: over the REST interface of three gateways on one volume, and
//! by the commands that ask it.

mod command;
mod document;
mod events;
mod lost;
mod replay;
mod runs;
mod scopes;
mod skills;

use std::time::Duration;

use anyhow::Context;
use bytes::Bytes;
use http::{Method, Request, StatusCode};
use mooring_tests::client::HttpClient;
use mooring_tests::code::{Coder, SERVER, USER};
use mooring_tests::gateway::{Gateway, Settings};
use serde_json::{Value, json};

use crate::governed_fleet::GovernedFleet;

/// A request that runs code waits for it.
const ANSWERED_WITHIN: Duration = Duration::from_secs(90);

/// Who asks.
#[derive(Clone, Copy)]
struct Who {
    user: &'static str,
    teams: &'static str,
    roles: &'static str,
}

const ADA: Who = Who {
    user: "ada@example.org",
    teams: "red",
    roles: "skills.create",
};
const BOB: Who = Who {
    user: "bob@example.org",
    teams: "blue",
    roles: "",
};
const EVE: Who = Who {
    user: "eve@example.org",
    teams: "red",
    roles: "skills.approve,skills.revoke",
};
const AUDITOR: Who = Who {
    user: "auditor@example.org",
    teams: "",
    roles: "servers.read",
};
const ADMIN: Who = Who {
    user: "root@example.org",
    teams: "",
    roles: "admin",
};

/// Three gateways on one volume and one store, with one code server.
struct Scene {
    fleet: GovernedFleet,
    client: HttpClient,
}

impl Scene {
    /// `of_code` is TOML that the code server says besides its id and kind.
    async fn start(of_code: &str) -> anyhow::Result<Self> {
        Self::start_with("", of_code, |settings| settings).await
    }

    /// `tables` is TOML of other servers.
    async fn start_with(
        tables: &str,
        of_code: &str,
        change: impl FnOnce(Settings) -> Settings,
    ) -> anyhow::Result<Self> {
        Ok(Self {
            fleet: GovernedFleet::start(tables, of_code, change).await?,
            client: HttpClient::new(ANSWERED_WITHIN),
        })
    }

    /// A client of the code server, whose every request goes to another gateway.
    async fn coder(&self, who: Who) -> anyhow::Result<Coder> {
        let gateways: Vec<&Gateway> = self.fleet.gateways.iter().collect();
        Coder::open(&gateways, who.user).await
    }

    /// Asks a gateway: status and answer.
    async fn ask(
        &self,
        gateway: usize,
        method: Method,
        path: &str,
        who: Who,
        body: Option<&Value>,
    ) -> anyhow::Result<(StatusCode, Value)> {
        let url = self.fleet.gateways[gateway].url(&format!("/servers/{SERVER}/{path}"));
        let mut request = Request::builder()
            .method(method)
            .uri(url)
            .header(USER, who.user)
            .header("x-mooring-teams", who.teams)
            .header("x-mooring-roles", who.roles);
        if body.is_some() {
            request = request.header("content-type", "application/json");
        }
        let body = body.map(ToString::to_string).unwrap_or_default();
        let reply = self.client.send(request.body(Bytes::from(body))?).await?;
        Ok((reply.status, reply.json().await?))
    }

    /// GET that has to succeed.
    async fn get(&self, gateway: usize, path: &str, who: Who) -> anyhow::Result<Value> {
        let (status, answer) = self.ask(gateway, Method::GET, path, who, None).await?;
        anyhow::ensure!(status == StatusCode::OK, "{path}: {status}: {answer}");
        Ok(answer)
    }

    /// POST that has to succeed.
    async fn post(
        &self,
        gateway: usize,
        path: &str,
        who: Who,
        body: Value,
    ) -> anyhow::Result<Value> {
        let (status, answer) = self
            .ask(gateway, Method::POST, path, who, Some(&body))
            .await?;
        anyhow::ensure!(status.is_success(), "{path}: {status}: {answer}");
        Ok(answer)
    }

    /// A request that has to be refused: status and code.
    async fn refused(
        &self,
        method: Method,
        path: &str,
        who: Who,
        body: Option<&Value>,
    ) -> anyhow::Result<(u16, String)> {
        let (status, answer) = self.ask(0, method, path, who, body).await?;
        let code = answer.pointer("/error/code").and_then(Value::as_str);
        let code = code.with_context(|| format!("{path} is refused: {status}: {answer}"))?;
        Ok((status.as_u16(), code.to_owned()))
    }

    /// The runs that somebody sees.
    async fn runs(&self, gateway: usize, who: Who, query: &str) -> anyhow::Result<Vec<Value>> {
        let answer = self.get(gateway, &format!("code/runs{query}"), who).await?;
        Ok(answer["runs"].as_array().context("runs")?.clone())
    }

    /// The events that somebody sees.
    async fn events(&self, gateway: usize, who: Who, query: &str) -> anyhow::Result<Vec<Value>> {
        let path = format!("code/security-events{query}");
        let answer = self.get(gateway, &path, who).await?;
        Ok(answer["events"].as_array().context("events")?.clone())
    }

    /// Makes a Python skill.
    async fn create(&self, who: Who, name: &str, source: &str) -> anyhow::Result<Value> {
        let body = json!({"name": name, "source_code": source, "language": "python"});
        self.post(0, "skills", who, body).await
    }
}

fn text(value: &Value, field: &str) -> String {
    let text = value[field].as_str();
    text.unwrap_or_else(|| panic!("a text {field}: {value}"))
        .to_owned()
}
