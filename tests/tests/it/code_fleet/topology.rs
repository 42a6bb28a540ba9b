//! The arrangement of docker-compose.yml, started by its own settings as processes: three gateways on one volume and
//! one Redis, behind a real nginx with deploy/nginx.conf. Only addresses and directories are other ones.

use std::path::Path;

use anyhow::{Context, ensure};
use mooring_tests::code::{CodeVolume, Coder, SERVER};
use mooring_tests::compose::Compose;
use mooring_tests::gateway::{Gateway, Settings};
use mooring_tests::nginx::Nginx;
use mooring_tests::paths;
use mooring_tests::redis::{Module, Redis};

use crate::recovery::counted;

const GATEWAYS: [&str; 3] = ["gateway-1", "gateway-2", "gateway-3"];
const BASE_DIRECTORY: &str = "/tmp/mcpgateway_code_execution";
/// With those after the kill still fewer than the runs that a minute allows by default.
const REQUESTS: u64 = 12;

/// Every process but nginx.
struct Composed {
    volume: CodeVolume,
    gateways: Vec<Gateway>,
    _redis: Redis,
}

impl Composed {
    async fn start() -> anyhow::Result<Self> {
        let compose = Compose::read()?;
        let redis = redis(&compose).await?;
        let volume = CodeVolume::new()?;
        let mut gateways = Vec::new();
        for name in GATEWAYS {
            let settings = settings(&compose, name, &redis, volume.path())?;
            gateways.push(Gateway::start(name, settings).await?);
        }
        Ok(Self {
            volume,
            gateways,
            _redis: redis,
        })
    }
}

/// The server by the arguments of its container, as far as they do not name where it listens and what it loads.
async fn redis(compose: &Compose) -> anyhow::Result<Redis> {
    let command = compose.service("redis")?.get("command");
    let command = command
        .and_then(|command| command.as_str())
        .context("a command")?;
    let words: Vec<&str> = command.split_whitespace().collect();
    let mut arguments = Vec::new();
    for pair in words.chunks(2) {
        if !["--bind", "--loadmodule"].contains(&pair[0]) {
            arguments.extend(pair);
        }
    }
    Redis::start_with(Module::Loaded, &arguments).await
}

/// The environment of one gateway. A setting that is not known here has to be looked at before it is passed on.
fn settings(
    compose: &Compose,
    gateway: &str,
    redis: &Redis,
    base_directory: &Path,
) -> anyhow::Result<Settings> {
    let mut settings = Settings::default();
    for (name, value) in compose.environment(gateway)? {
        let value = match (name.as_str(), value.as_str()) {
            // The harness chooses the port.
            ("MOORING_LISTEN_ADDRESS", "0.0.0.0:4444") => continue,
            ("MOORING_STORE_URL", "redis://redis:6379") => redis.url(),
            ("MOORING_AUTH_TRUSTED_PEERS", _) => "127.0.0.1".to_owned(),
            ("CODE_EXECUTION_BASE_DIR", BASE_DIRECTORY) => base_directory.display().to_string(),
            ("MOORING_AUTH_MODE" | "MOORING_AFFINITY_ENABLED" | "MOORING_CODE_RUNS_AT_ONCE", _) => {
                value
            }
            _ => anyhow::bail!("{name}={value} is new in docker-compose.yml"),
        };
        settings = settings.env(&name, &value);
    }
    Ok(settings)
}

/// deploy/nginx.conf with other addresses, in one process, and with its temporary files in the directory.
async fn nginx(gateways: &[Gateway]) -> anyhow::Result<Nginx> {
    let deployed = paths::workspace().join("deploy");
    Nginx::start_configured(|directory, port| {
        for included in ["gateways.conf", "principal.conf"] {
            std::fs::copy(deployed.join(included), directory.join(included))?;
        }
        let mut text = std::fs::read_to_string(deployed.join("nginx.conf"))?;
        let mut replace = |from: &str, to: String| {
            ensure!(
                text.matches(from).count() == 1,
                "{from:?} stands once in nginx.conf"
            );
            text = text.replace(from, &to);
            Ok(())
        };
        for (name, gateway) in GATEWAYS.iter().zip(gateways) {
            replace(
                &format!("{name}:4444"),
                format!("127.0.0.1:{}", gateway.port()),
            )?;
        }
        replace("listen 8080;", format!("listen 127.0.0.1:{port};"))?;
        replace(
            "worker_processes auto;",
            "daemon off; master_process off;".to_owned(),
        )?;
        let directory = directory.display();
        let temporary: String = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"]
            .map(|user| format!("    {user}_temp_path {directory}/{user};\n"))
            .concat();
        replace(
            "\nhttp {\n",
            format!("\npid {directory}/pid;\nhttp {{\n{temporary}"),
        )?;
        Ok(text)
    })
    .await
}

#[tokio::test]
async fn the_composed_gateways_share_one_session_behind_nginx() -> anyhow::Result<()> {
    let mut composed = Composed::start().await?;
    let nginx = nginx(&composed.gateways).await?;
    let endpoint = [nginx.url(&format!("/servers/{SERVER}/mcp"))];
    // What a client says about who it is does not get through: everybody is who nginx says.
    let mut ada = Coder::open_at(&endpoint, "ada@example.org").await?;
    let mut eve = Coder::open_at(&endpoint, "eve@example.org").await?;
    ada.write("/scratch/n", "0").await?;
    let count =
        "n = int(open('/scratch/n').read()) + 1; open('/scratch/n', 'w').write(str(n)); print(n)";
    for request in 1..=REQUESTS {
        let client = if request % 2 == 0 { &mut ada } else { &mut eve };
        assert_eq!(client.python(count).await?, request.to_string());
    }
    assert_eq!(composed.volume.sessions()?.len(), 1);
    let runs = "mooring_code_run_duration_seconds_count";
    assert_eq!(counted(&composed.gateways, runs, &[]).await?, REQUESTS);
    for gateway in &composed.gateways {
        assert!(
            gateway.metric(runs, &[]).await? > 0.0,
            "nginx shares them out"
        );
    }
    // Nothing but the MCP endpoints is reached through it.
    let client = mooring_tests::client::HttpClient::default();
    for path in ["/metrics", "/readyz", "/healthz", "/servers/sandbox/mcp/x"] {
        assert_eq!(client.get(&nginx.url(path)).await?.status, 404, "{path}");
    }

    composed.gateways[1].process().kill_now()?;
    for request in REQUESTS + 1..=REQUESTS + 4 {
        assert_eq!(ada.python(count).await?, request.to_string());
    }
    assert_eq!(composed.volume.sessions()?.len(), 1);
    Ok(())
}
