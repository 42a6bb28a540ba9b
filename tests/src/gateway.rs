//! `mooring serve` as a process, alone or as one of a fleet.
//!
//! Invariant: the environment of the test run does not reach the gateway. It gets only its configuration file, the
//! variables named here, and the port that the harness chose.

use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus};
use std::time::Duration;

use anyhow::{Context, ensure};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::json;
use tempfile::TempDir;

use crate::certificates::Certificate;
use crate::client::HttpClient;
use crate::paths;
use crate::port::free_port;
use crate::process::Process;
use crate::redis::is_without_module;

/// How long a gateway with invalid settings may take to exit.
const REFUSED_WITHIN: Duration = Duration::from_secs(60);

/// How to start a gateway.
#[derive(Clone, Debug, Default)]
pub struct Settings {
    toml: String,
    environment: Vec<(String, String)>,
    state_home: Option<PathBuf>,
    is_niced: bool,
    open_files: Option<u32>,
    program: Option<PathBuf>,
    errors: Option<PathBuf>,
    /// The client that the harness asks it with, where it speaks TLS.
    tls_client: Option<Box<HttpClient>>,
}

impl Settings {
    /// The configuration file's text. `[listen] address` is set by the harness and may be left out.
    #[must_use]
    pub fn toml(text: impl Into<String>) -> Self {
        Self {
            toml: text.into(),
            ..Self::default()
        }
    }

    /// The same with further text at the end of the configuration file.
    #[must_use]
    pub fn more_toml(mut self, text: &str) -> Self {
        self.toml.push_str(text);
        self
    }

    /// One environment variable.
    #[must_use]
    pub fn env(mut self, name: &str, value: &str) -> Self {
        self.environment.push((name.to_owned(), value.to_owned()));
        self
    }

    /// Users are named in `x-mooring-user` by everybody at 127.0.0.1, and may use every server that has no rules.
    #[must_use]
    pub fn users_by_header(self) -> Self {
        self.env("MOORING_AUTH_MODE", "trusted-header")
            .env("MOORING_AUTH_TRUSTED_PEERS", "127.0.0.1")
            .env("MOORING_AUTH_GRANTS", r#"[{"rights":["servers.use"]}]"#)
    }

    /// The directory of the embedded store. Gateways with the same directory share their sessions; by default each has
    /// its own, which survives [`Gateway::restart`].
    #[must_use]
    pub fn state_home(mut self, directory: &Path) -> Self {
        self.state_home = Some(directory.to_owned());
        self
    }

    /// Runs its processes, and those that they start, at low priority: for many at once, so that concurrent tests are
    /// not starved.
    #[must_use]
    pub fn niced(mut self) -> Self {
        self.is_niced = true;
        self
    }

    /// Another build of the gateway than the one that is tested, such as an optimized one.
    #[must_use]
    pub fn program(mut self, file: &Path) -> Self {
        self.program = Some(file.to_owned());
        self
    }

    /// The soft limit of open files that it starts with, as a shell or a service manager sets it. The hard one stays.
    #[must_use]
    pub fn open_files(mut self, soft_limit: u32) -> Self {
        self.open_files = Some(soft_limit);
        self
    }

    /// The file, such as a pipe, that gets its stderr; the directory of the test has it otherwise.
    #[must_use]
    pub fn stderr(mut self, file: &Path) -> Self {
        self.errors = Some(file.to_owned());
        self
    }

    /// TLS with these certificates; `client` is one that may speak to it.
    #[must_use]
    pub fn tls(self, certificates: &[&Certificate], client: &HttpClient) -> Self {
        let tables: Vec<_> = (certificates.iter())
            .map(|files| json!({"cert_file": files.certificate, "key_file": files.key}))
            .collect();
        self.asked_over_tls(client)
            .env("MOORING_LISTEN_TLS", &json!(tables).to_string())
    }

    /// The configuration file has certificates; `client` is one that may speak to it.
    #[must_use]
    pub fn asked_over_tls(mut self, client: &HttpClient) -> Self {
        self.tls_client = Some(Box::new(client.clone()));
        self
    }

    /// `mooring` with these settings and this `subcommand`. Its own files are in `directory`.
    pub fn command(&self, subcommand: &str, directory: &Path) -> anyhow::Result<Command> {
        let file = directory.join("mooring.toml");
        std::fs::write(&file, &self.toml).context("write the configuration file")?;
        let binary = match &self.program {
            Some(program) => program.clone(),
            None => paths::binary("mooring")?,
        };
        let mut command = if self.is_niced {
            let mut command = Command::new("nice");
            command.args(["-n", "19"]).arg(binary);
            command
        } else if let Some(soft_limit) = self.open_files {
            let mut command = Command::new("sh");
            let script = format!("ulimit -S -n {soft_limit} && exec \"$0\" \"$@\"");
            command.args(["-c", &script]).arg(binary);
            command
        } else if let Some(errors) = &self.errors {
            let mut command = Command::new("sh");
            let script = "errors=\"$0\"; exec \"$@\" 2>\"$errors\"";
            command.args(["-c", script]).arg(errors).arg(binary);
            command
        } else {
            Command::new(binary)
        };
        let given = self.environment.iter().map(|(name, value)| (name, value));
        command
            .args([subcommand, "--config"])
            .arg(&file)
            .env_clear()
            .env("PATH", std::env::var_os("PATH").unwrap_or_default())
            .env("HOME", directory)
            .env(
                "XDG_STATE_HOME",
                self.state_home.as_deref().unwrap_or(directory),
            )
            .envs(is_without_module().then_some(("MOORING_STORE_MODULE", "none")))
            .envs(given);
        Ok(command)
    }
}

/// Whether the gateway of this build has a setting, such as `affinity.enabled`.
pub fn has_setting(name: &str) -> anyhow::Result<bool> {
    let output = Command::new(paths::binary("mooring")?)
        .args(["config", "reference"])
        .env_clear()
        .output()
        .context("run mooring config reference")?;
    ensure!(output.status.success(), "config reference: {output:?}");
    let heading = format!("`{name}`");
    Ok(String::from_utf8_lossy(&output.stdout).contains(&heading))
}

/// A running gateway.
#[derive(Debug)]
pub struct Gateway {
    process: Process,
    name: String,
    port: u16,
    settings: Settings,
    directory: TempDir,
}

impl Gateway {
    /// Starts one gateway and waits until `/readyz` answers 200.
    pub async fn start(name: &str, settings: Settings) -> anyhow::Result<Self> {
        let directory = TempDir::with_prefix("mooring-gateway-").context("make a directory")?;
        let port = free_port()?;
        let process = spawn(name, port, &settings, directory.path())?;
        let mut gateway = Self {
            process,
            name: name.to_owned(),
            port,
            settings,
            directory,
        };
        gateway.ready().await?;
        Ok(gateway)
    }

    /// Starts `count` gateways with the same settings, named `gateway-1` and so on.
    pub async fn fleet(count: usize, settings: &Settings) -> anyhow::Result<Vec<Self>> {
        let mut gateways = Vec::with_capacity(count);
        for number in 1..=count {
            gateways.push(Self::start(&format!("gateway-{number}"), settings.clone()).await?);
        }
        Ok(gateways)
    }

    /// Starts a gateway that is expected to exit: its exit status and its output.
    pub async fn refused(settings: Settings) -> anyhow::Result<(ExitStatus, String)> {
        let directory = TempDir::with_prefix("mooring-gateway-").context("make a directory")?;
        let mut process = spawn("refused-gateway", free_port()?, &settings, directory.path())?;
        let status = process.ended(REFUSED_WITHIN).await?;
        Ok((status, process.log_text()))
    }

    /// Kills the process if it runs, and starts it again with the same settings on the same port.
    pub async fn restart(&mut self) -> anyhow::Result<()> {
        self.process.kill_now()?;
        self.process = spawn(&self.name, self.port, &self.settings, self.directory.path())?;
        self.ready().await
    }

    /// Writes another configuration file, which a reload or a restart reads.
    pub fn write_settings(&mut self, toml: &str) -> anyhow::Result<()> {
        toml.clone_into(&mut self.settings.toml);
        std::fs::write(self.directory.path().join("mooring.toml"), toml)
            .context("write the configuration file")
    }

    /// The directory with its configuration file.
    #[must_use]
    pub fn directory(&self) -> &Path {
        self.directory.path()
    }

    /// Sends SIGHUP, by which it reloads its settings.
    pub fn hang_up(&self) -> anyhow::Result<()> {
        let id = Pid::from_raw(i32::try_from(self.process.id())?).context("a process id")?;
        kill_process(id, Signal::HUP).context("send SIGHUP")
    }

    /// The process, to kill, stop or read the log of.
    pub fn process(&mut self) -> &mut Process {
        &mut self.process
    }

    /// The port of 127.0.0.1.
    #[must_use]
    pub fn port(&self) -> u16 {
        self.port
    }

    /// A URL of this gateway; `path` begins with a slash.
    #[must_use]
    pub fn url(&self, path: &str) -> String {
        let scheme = match self.settings.tls_client {
            Some(_) => "https",
            None => "http",
        };
        format!("{scheme}://127.0.0.1:{}{path}", self.port)
    }

    /// The MCP endpoint of one server.
    #[must_use]
    pub fn mcp_url(&self, server: &str) -> String {
        self.url(&format!("/servers/{server}/mcp"))
    }

    /// The text of `/metrics`.
    pub async fn metrics(&self) -> anyhow::Result<String> {
        self.client().get(&self.url("/metrics")).await?.text().await
    }

    /// The sum of a metric over the label sets that contain all of `labels` (each written `name="value"`); 0 if there
    /// is none.
    pub async fn metric(&self, name: &str, labels: &[&str]) -> anyhow::Result<f64> {
        Ok(sum_of(&self.metrics().await?, name, labels))
    }

    fn client(&self) -> HttpClient {
        self.settings
            .tls_client
            .as_deref()
            .cloned()
            .unwrap_or_default()
    }

    async fn ready(&mut self) -> anyhow::Result<()> {
        let url = self.url("/readyz");
        let client = self.client();
        self.process
            .ready(async || {
                let reply = client.get(&url).await?;
                let status = reply.status;
                ensure!(
                    status == 200,
                    "/readyz answers {status}: {}",
                    reply.text().await?
                );
                Ok(())
            })
            .await
    }
}

/// The sum over the matching sample lines of Prometheus' text format.
fn sum_of(text: &str, name: &str, labels: &[&str]) -> f64 {
    let sample = |line: &str| {
        let (series, value) = line.rsplit_once(' ')?;
        let (series_name, series_labels) = series.split_once('{').unwrap_or((series, ""));
        let named = series_name == name && labels.iter().all(|label| series_labels.contains(label));
        named.then(|| value.parse::<f64>().ok()).flatten()
    };
    text.lines()
        .filter(|line| !line.starts_with('#'))
        .filter_map(sample)
        .sum()
}

fn spawn(name: &str, port: u16, settings: &Settings, directory: &Path) -> anyhow::Result<Process> {
    let mut command = settings.command("serve", directory)?;
    command
        .env("MOORING_LISTEN_ADDRESS", format!("127.0.0.1:{port}"))
        .env("MOORING_WORKER_NAME", name);
    // No load balancer of a test waits for a probe, and servers that follow a script expect none.
    for (setting, variable) in [
        ("leave_ms", "MOORING_WORKER_LEAVE_MS"),
        ("probe_interval_ms", "MOORING_UPSTREAM_PROBE_INTERVAL_MS"),
    ] {
        let is_given = settings
            .environment
            .iter()
            .any(|(name, _)| name == variable);
        if !is_given && !settings.toml.contains(setting) {
            command.env(variable, "0");
        }
    }
    Process::start(name, &mut command, &directory.join("gateway.log"))
}

#[cfg(test)]
mod tests {
    use super::sum_of;

    #[test]
    fn a_metric_is_summed_over_its_labels() {
        let text = concat!(
            "# TYPE hits counter\n",
            "hits{server=\"a\",era=\"x\"} 2\n",
            "hits{server=\"b\"} 3\n",
            "hits_total 9\n",
        );
        let check = |name, labels: &[&str], sum: f64| assert_eq!(sum_of(text, name, labels), sum);
        check("hits", &[], 5.0);
        check("hits", &["server=\"a\""], 2.0);
        check("hits_total", &[], 9.0);
        check("misses", &[], 0.0);
    }
}
