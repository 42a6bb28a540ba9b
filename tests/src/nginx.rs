//! nginx as a minimal load balancer: each request to the next upstream, not sticky.

use std::fmt::Write as _;
use std::path::Path;
use std::process::Command;

use anyhow::Context;
use tempfile::TempDir;

use crate::client::HttpClient;
use crate::port::free_port;
use crate::process::Process;

/// Idle connections that nginx keeps to its upstreams; at least as many as the tests have sessions.
const KEEPALIVE_CONNECTIONS: usize = 128;

/// Requests per connection, on both sides: more than any test makes. At nginx's default of 1000 a client with a single
/// connection would have to reopen it.
const KEEPALIVE_REQUESTS: usize = 1_000_000_000;

/// A running nginx.
#[derive(Debug)]
pub struct Nginx {
    process: Process,
    port: u16,
    _directory: TempDir,
}

impl Nginx {
    /// Proxies to these ports of 127.0.0.1 in turn, paths unchanged.
    pub async fn start(upstream_ports: &[u16]) -> anyhow::Result<Self> {
        let servers = "max_fails=1 fail_timeout=1s";
        Self::start_configured(|directory, port| {
            configuration(directory, port, upstream_ports, servers)
        })
        .await
    }

    /// The same, where a gateway that was away is tried again at once: with two that are stopped in turn, nginx would
    /// otherwise take both for dead.
    pub async fn start_trying_all(upstream_ports: &[u16]) -> anyhow::Result<Self> {
        Self::start_configured(|directory, port| {
            configuration(directory, port, upstream_ports, "max_fails=0")
        })
        .await
    }

    /// Starts with a configuration of the caller's for this directory and this port. It answers `/nginx-is-up`, names
    /// no file outside the directory, and keeps to one process in the foreground.
    pub async fn start_configured(
        configuration: impl FnOnce(&Path, u16) -> anyhow::Result<String>,
    ) -> anyhow::Result<Self> {
        let directory = TempDir::with_prefix("mooring-nginx-").context("make a directory")?;
        let port = free_port()?;
        let file = directory.path().join("nginx.conf");
        std::fs::write(&file, configuration(directory.path(), port)?)
            .context("write the configuration file")?;
        let mut command = Command::new("nginx");
        // Debian installs nginx in root's path only.
        command.env(
            "PATH",
            format!("{}:/usr/sbin", std::env::var("PATH").unwrap_or_default()),
        );
        command
            .arg("-p")
            .arg(directory.path())
            .arg("-c")
            .arg(&file)
            .args(["-e", "stderr"]);
        let process = Process::start("nginx", &mut command, &directory.path().join("nginx.log"))?;
        let mut nginx = Self {
            process,
            port,
            _directory: directory,
        };
        let (client, url) = (HttpClient::default(), nginx.url("/nginx-is-up"));
        nginx
            .process
            .ready(async || client.get(&url).await.map(drop))
            .await?;
        Ok(nginx)
    }

    /// The process, to kill, stop or read the log of.
    pub fn process(&mut self) -> &mut Process {
        &mut self.process
    }

    /// A URL behind the proxy; `path` begins with a slash.
    #[must_use]
    pub fn url(&self, path: &str) -> String {
        format!("http://127.0.0.1:{}{path}", self.port)
    }
}

/// One process, so that one signal ends all of it. `$http_host` keeps the Host that the client sent.
fn configuration(
    directory: &Path,
    port: u16,
    upstream_ports: &[u16],
    server_options: &str,
) -> anyhow::Result<String> {
    let mut upstreams = String::new();
    for upstream in upstream_ports {
        writeln!(upstreams, "server 127.0.0.1:{upstream} {server_options};")?;
    }
    let directory = directory.display();
    Ok(format!(
        "daemon off;
master_process off;
pid {directory}/nginx.pid;
error_log stderr warn;
events {{ worker_connections 4096; }}
http {{
    access_log off;
    client_body_temp_path {directory}/body;
    client_max_body_size 0;
    client_body_buffer_size 2m;
    proxy_temp_path {directory}/proxy;
    fastcgi_temp_path {directory}/fastcgi;
    uwsgi_temp_path {directory}/uwsgi;
    scgi_temp_path {directory}/scgi;
    upstream gateways {{
        {upstreams}
        keepalive {KEEPALIVE_CONNECTIONS};
        keepalive_requests {KEEPALIVE_REQUESTS};
    }}
    server {{
        listen 127.0.0.1:{port};
        tcp_nodelay on;
        keepalive_requests {KEEPALIVE_REQUESTS};
        location = /nginx-is-up {{ return 204; }}
        location / {{
            proxy_pass http://gateways;
            proxy_http_version 1.1;
            proxy_set_header Connection \"\";
            proxy_set_header Host $http_host;
            proxy_buffering off;
            proxy_read_timeout 1h;
            proxy_next_upstream error timeout;
        }}
    }}
}}
"
    ))
}
