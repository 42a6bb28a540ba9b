//! A real identity provider, npm's `oidc-provider`, run by `tests/servers/provider.mjs`: the clients `ada`, in the team
//! `dev`, and `bob` get access tokens from it, signed with a key that can be replaced. `gateway` gets tokens for them in
//! exchange for theirs, and people sign in by the authorization code flow with `page`.

use std::process::Command;

use anyhow::{Context, ensure};
use bytes::Bytes;
use http::Request;
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::client::HttpClient;
use crate::paths;
use crate::port::free_port;
use crate::process::Process;

/// The audience of tokens for any resource at 127.0.0.1.
pub const AUDIENCE: &str = "urn:mooring";

/// A running identity provider.
#[derive(Debug)]
pub struct IdentityProvider {
    process: Process,
    port: u16,
    directory: TempDir,
    client: HttpClient,
}

impl IdentityProvider {
    /// Starts one and waits until it answers.
    pub async fn start() -> anyhow::Result<Self> {
        let directory = TempDir::with_prefix("mooring-provider-").context("make a directory")?;
        let port = free_port()?;
        let mut provider = Self {
            process: spawn(port, &directory)?,
            port,
            directory,
            client: HttpClient::default(),
        };
        provider.ready().await?;
        Ok(provider)
    }

    /// Kills the process if it runs, and starts it again on the same port, with another key.
    pub async fn restart(&mut self) -> anyhow::Result<()> {
        self.kill()?;
        self.process = spawn(self.port, &self.directory)?;
        self.ready().await
    }

    /// Kills the process.
    pub fn kill(&mut self) -> anyhow::Result<()> {
        self.process.kill_now()
    }

    /// The issuer of its tokens.
    #[must_use]
    pub fn issuer(&self) -> String {
        format!("http://127.0.0.1:{}", self.port)
    }

    /// The lines of `[auth]` for a gateway that takes its tokens; more lines may follow.
    #[must_use]
    pub fn auth_toml(&self) -> String {
        format!(
            "[auth]\nmode = \"jwt\"\nissuer = {:?}\naudiences = [{AUDIENCE:?}]\n",
            self.issuer()
        )
    }

    /// The same. Everybody may use servers without rules.
    #[must_use]
    pub fn toml(&self) -> String {
        self.auth_toml() + "grants = [{ rights = [\"servers.use\"] }]\n"
    }

    /// A new token of this user for this resource, with these scopes.
    pub async fn token(&self, user: &str, resource: &str, scope: &str) -> anyhow::Result<String> {
        self.token_with(user, resource, scope, None).await
    }

    /// The same, bound to the key of this holder (RFC 9449).
    pub async fn bound_token(
        &self,
        user: &str,
        resource: &str,
        scope: &str,
        holder: &str,
    ) -> anyhow::Result<String> {
        let claims = json!({"htm": "POST", "htu": format!("{}/token", self.issuer())});
        let proof = self.prove(holder, None, &json!({}), &claims).await?;
        let token = self.token_with(user, resource, scope, Some(&proof));
        token.await
    }

    /// A proof for a request with this token, signed with the key of this holder, which is made at first. Header and claims
    /// replace its own; `htm` and `htu` are to be among them.
    pub async fn prove(
        &self,
        holder: &str,
        token: Option<&str>,
        header: &Value,
        claims: &Value,
    ) -> anyhow::Result<String> {
        let asked = json!({"holder": holder, "token": token, "header": header, "claims": claims});
        let answer = self.control("prove", &asked).await?;
        let proof = answer.get("proof").and_then(Value::as_str);
        Ok(proof.context("a proof")?.to_owned())
    }

    async fn token_with(
        &self,
        user: &str,
        resource: &str,
        scope: &str,
        proof: Option<&str>,
    ) -> anyhow::Result<String> {
        // None of these has characters that a form would read otherwise.
        let form = format!(
            "grant_type=client_credentials&client_id={user}&client_secret=secret&resource={resource}&scope={}",
            scope.replace(' ', "+")
        );
        let mut request = Request::post(format!("{}/token", self.issuer()))
            .header("content-type", "application/x-www-form-urlencoded");
        if let Some(proof) = proof {
            request = request.header("dpop", proof);
        }
        let request = request.body(Bytes::from(form))?;
        let answer = self.client.send(request).await?.json().await?;
        let token = answer.get("access_token").and_then(Value::as_str);
        Ok(token
            .with_context(|| format!("a token: {answer}"))?
            .to_owned())
    }

    /// A token of `ada` for the gateway, with these changes of header and claims (null: left out), signed with the key, or
    /// with its public half as the secret of an HMAC.
    pub async fn sign(
        &self,
        header: &Value,
        changed_claims: &Value,
        with: &str,
    ) -> anyhow::Result<String> {
        let with_changes = |mut whole: Value, changes: &Value| {
            let (whole_fields, changes) = (whole.as_object_mut()?, changes.as_object()?);
            whole_fields.extend(changes.clone());
            Some(whole)
        };
        let header = with_changes(json!({"alg": "RS256", "typ": "at+jwt"}), header);
        let claims = json!({"sub": "ada", "aud": AUDIENCE, "exp": 4_102_444_800_u64});
        let claims = with_changes(claims, changed_claims);
        let answer = self
            .control(
                "sign",
                &json!({"header": header, "claims": claims, "with": with}),
            )
            .await?;
        Ok(answer
            .get("token")
            .and_then(Value::as_str)
            .context("a token")?
            .to_owned())
    }

    /// Replaces the key.
    pub async fn rotate(&self) -> anyhow::Result<()> {
        self.control("rotate", &Value::Null).await.map(drop)
    }

    /// Lets people sign in with the client `page`, and lets that lead them back to these URLs. Replaces the key.
    pub async fn allow_redirects(&self, urls: &[String]) -> anyhow::Result<()> {
        self.control("redirects", &json!(urls)).await.map(drop)
    }

    /// How often its key set was fetched.
    pub async fn fetches(&self) -> anyhow::Result<u64> {
        self.count("fetches").await
    }

    /// How many tokens were asked for, since its process was started.
    pub async fn tokens(&self) -> anyhow::Result<u64> {
        self.count("tokens").await
    }

    /// How many of them in exchange for another one.
    pub async fn exchanges(&self) -> anyhow::Result<u64> {
        self.count("exchanges").await
    }

    async fn count(&self, of: &str) -> anyhow::Result<u64> {
        let answer = self.control("fetches", &Value::Null).await?;
        answer.get(of).and_then(Value::as_u64).context("a count")
    }

    async fn control(&self, action: &str, body: &Value) -> anyhow::Result<Value> {
        let request = Request::post(format!("{}/control/{action}", self.issuer()));
        let reply = self
            .client
            .send(request.body(Bytes::from(body.to_string()))?)
            .await?;
        ensure!(reply.status == 200, "{action}: {}", reply.status);
        reply.json().await
    }

    async fn ready(&mut self) -> anyhow::Result<()> {
        let (client, url) = (self.client.clone(), self.issuer());
        self.process
            .ready(async || client.get(&url).await.map(drop))
            .await
    }
}

fn spawn(port: u16, directory: &TempDir) -> anyhow::Result<Process> {
    let mut command = Command::new(paths::tool("node")?);
    command.arg(paths::test_file("servers/provider.mjs")?);
    command.args(["--port", &port.to_string()]);
    Process::start(
        "provider",
        &mut command,
        &directory.path().join("provider.log"),
    )
}
