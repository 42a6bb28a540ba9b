//! The arrangement of docker-compose.yml, started by its own settings as processes: three gateways on one volume and
//! one Redis, behind a real nginx with deploy/nginx.conf. Only addresses and directories are other ones.

use std::path::Path;

use anyhow::{Context, ensure};
use mooring_tests::client::{HttpClient, Reply};
use mooring_tests::code::{CodeVolume, Coder, SERVER};
use mooring_tests::compose::Compose;
use mooring_tests::fixture::{Fixture, stdio_command};
use mooring_tests::gateway::{Gateway, Settings};
use mooring_tests::legacy::LegacySession;
use mooring_tests::nginx::Nginx;
use mooring_tests::pages::blocks;
use mooring_tests::paths;
use mooring_tests::redis::{Module, Redis};
use mooring_tests::session::McpSession;
use tempfile::TempDir;

use crate::console::Console;
use crate::recovery::counted;

const GATEWAYS: [&str; 3] = ["gateway-1", "gateway-2", "gateway-3"];
const BASE_DIRECTORY: &str = "/tmp/mcpgateway_code_execution";
const KEYS_DIRECTORY: &str = "/run/mooring";
const SETTINGS_FILE: &str = "/etc/mooring/mooring.toml";
/// With those after the kill still fewer than the runs that a minute allows by default.
const REQUESTS: u64 = 12;

/// Every process but nginx.
struct Composed {
    volume: CodeVolume,
    gateways: Vec<Gateway>,
    _redis: Redis,
    _keys: TempDir,
}

impl Composed {
    async fn start() -> anyhow::Result<Self> {
        Self::start_with("").await
    }

    /// With these lines after the settings file's own.
    async fn start_with(servers: &str) -> anyhow::Result<Self> {
        let compose = Compose::read()?;
        let redis = redis(&compose).await?;
        let volume = CodeVolume::new()?;
        let keys = TempDir::with_prefix("mooring-keys-")?;
        make_keys(&compose, keys.path())?;
        let file = settings_file(&compose)?;
        let mut gateways = Vec::new();
        for name in GATEWAYS {
            let toml = format!("{file}\n{servers}");
            let settings = settings(&compose, name, toml, &redis, (volume.path(), keys.path()))?;
            gateways.push(Gateway::start(name, settings).await?);
        }
        Ok(Self {
            volume,
            gateways,
            _redis: redis,
            _keys: keys,
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

/// The file that every gateway mounts at the path that its environment names.
fn settings_file(compose: &Compose) -> anyhow::Result<String> {
    let mount = format!("./deploy/mooring.toml:{SETTINGS_FILE}:ro");
    for name in GATEWAYS {
        let volumes = compose.service(name)?.get("volumes");
        let volumes = volumes.and_then(|volumes| volumes.as_array());
        let is_mounted = volumes.is_some_and(|all| all.iter().any(|volume| *volume == mount));
        ensure!(is_mounted, "{name} mounts the settings file");
    }
    Ok(std::fs::read_to_string(
        paths::workspace().join("deploy/mooring.toml"),
    )?)
}

/// What the service `volume` does, but for changing owners: the key of the fleet and the files of deploy/secrets are in the
/// directory afterwards.
fn make_keys(compose: &Compose, directory: &Path) -> anyhow::Result<()> {
    use std::os::unix::fs::PermissionsExt as _;
    let given = TempDir::with_prefix("mooring-secrets-")?;
    std::fs::write(given.path().join("vault.keys"), "a secret")?;
    let command = compose.service("volume")?.get("command");
    let script = command.and_then(|command| command[0].as_str());
    let script = script
        .context("a command")?
        .replace("chown -R 1001:1001", "test -e")
        .replace("chown 1001:1001", "test -e")
        .replace("/secrets ", &format!("{} ", given.path().display()))
        .replace(BASE_DIRECTORY, &directory.display().to_string())
        .replace(KEYS_DIRECTORY, &directory.display().to_string());
    let run = || {
        std::process::Command::new("sh")
            .args(["-c", &script])
            .status()
    };
    ensure!(run()?.success(), "{script}");
    let key = std::fs::read_to_string(directory.join("fleet.keys"))?;
    ensure!(run()?.success(), "{script}, once more");
    let after = std::fs::read_to_string(directory.join("fleet.keys"))?;
    ensure!(key == after, "a second start keeps the key");
    let secret = directory.join("secrets/vault.keys");
    let mode = std::fs::metadata(&secret)?.permissions().mode() & 0o777;
    ensure!(mode == 0o600, "{secret:?} has mode {mode:o}");
    Ok(())
}

/// The environment of one gateway. A setting that is not known here has to be looked at before it is passed on.
fn settings(
    compose: &Compose,
    gateway: &str,
    toml: String,
    redis: &Redis,
    (base_directory, keys): (&Path, &Path),
) -> anyhow::Result<Settings> {
    let mut settings = Settings::toml(toml);
    for (name, value) in compose.environment(gateway)? {
        let value = match (name.as_str(), value.as_str()) {
            // The harness chooses the port.
            ("MOORING_LISTEN_ADDRESS", "0.0.0.0:4444") => continue,
            // The harness names the file itself.
            ("MOORING_CONFIG", SETTINGS_FILE) => continue,
            ("MOORING_WORKER_PEER_LISTEN", _) => "127.0.0.1:0".to_owned(),
            ("MOORING_WORKER_FLEET_KEYS_FILE", file) => {
                file.replace(KEYS_DIRECTORY, &keys.display().to_string())
            }
            ("MOORING_STORE_URL", "redis://redis:6379") => redis.url(),
            ("MOORING_AUTH_TRUSTED_PEERS", _) => "127.0.0.1".to_owned(),
            ("CODE_EXECUTION_BASE_DIR", BASE_DIRECTORY) => base_directory.display().to_string(),
            ("MOORING_AUTH_MODE" | "MOORING_AFFINITY_ENABLED" | "MOORING_CODE_RUNS_AT_ONCE", _) => {
                value
            }
            // The operator adds none.
            ("MOORING_SERVERS_JSON", "") => continue,
            _ => anyhow::bail!("{name}={value} is new in docker-compose.yml"),
        };
        settings = settings.env(&name, &value);
    }
    Ok(settings)
}

/// deploy/nginx.conf with other addresses, in one process, and with its temporary files in the directory. `principal`
/// is another text of principal.conf, in whose place `USERS` is a file with the passwords of ada and eve.
async fn nginx(gateways: &[Gateway], principal: Option<&str>) -> anyhow::Result<Nginx> {
    let deployed = paths::workspace().join("deploy");
    Nginx::start_configured(|directory, port| {
        for included in ["gateways.conf", "principal.conf"] {
            std::fs::copy(deployed.join(included), directory.join(included))?;
        }
        if let Some(principal) = principal {
            let users = directory.join("users");
            std::fs::write(&users, "ada:{PLAIN}ada\neve:{PLAIN}eve\n")?;
            let principal = principal.replace("/etc/nginx/users", &users.display().to_string());
            std::fs::write(directory.join("principal.conf"), principal)?;
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

/// The commands of docs/docker-compose.md, with a stand-in for Docker: its clients go to this nginx.
fn follow_the_guide(url: &str) -> anyhow::Result<()> {
    let console = Console::new()?;
    console.stand_ins(&["docker"])?;
    let commands = blocks("docs/docker-compose.md", "console")?.concat();
    let printed = console.run(&commands.replace("http://127.0.0.1:4444", url), &[])?;
    ensure!(printed.contains("local"), "{printed}");
    ensure!(printed.contains("serverInfo"), "{printed}");
    ensure!(console.called()?.contains("compose up"), "{printed}");
    Ok(())
}

#[tokio::test]
async fn the_composed_gateways_share_one_session_behind_nginx() -> anyhow::Result<()> {
    let mut composed = Composed::start().await?;
    let nginx = nginx(&composed.gateways, None).await?;
    follow_the_guide(&nginx.url(""))?;
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
    let mut used = Vec::new();
    for (number, gateway) in composed.gateways.iter().enumerate() {
        if gateway.metric(runs, &[]).await? > 0.0 {
            used.push(number);
        }
    }
    assert!(
        used.len() <= 2,
        "each client stays at one gateway: {used:?}"
    );
    // Only what clients use is reached through it.
    let client = HttpClient::default();
    for path in ["/metrics", "/readyz", "/healthz", "/servers/sandbox/mcp/x"] {
        assert_eq!(client.get(&nginx.url(path)).await?.status, 404, "{path}");
    }

    composed.gateways[used[0]].process().kill_now()?;
    for request in REQUESTS + 1..=REQUESTS + 4 {
        let client = if request % 2 == 0 { &mut ada } else { &mut eve };
        assert_eq!(client.python(count).await?, request.to_string());
    }
    assert_eq!(composed.volume.sessions()?.len(), 1);
    Ok(())
}

#[tokio::test]
async fn every_documented_path_works_behind_nginx() -> anyhow::Result<()> {
    let tools = Fixture::start("tools").await?;
    let command = stdio_command("composed", None, &[])?;
    let servers = format!(
        "[[servers]]\nid = \"tools\"\ninstances = [{:?}]\n\
         [[servers]]\nid = \"local\"\nkind = \"stdio\"\ncommand = {command:?}\n\
         [default]\nserver = \"tools\"\n",
        tools.url()
    );
    let composed = Composed::start_with(&servers).await?;
    let nginx = nginx(&composed.gateways, None).await?;
    let client = HttpClient::default();
    for path in ["/mcp", "/servers/tools/mcp", "/servers/local/mcp"] {
        let mut session = McpSession::open(&client, &[nginx.url(path)]).await?;
        for expected in 1..=4 {
            assert_eq!(session.increment().await?, expected, "{path}");
        }
    }
    // Messages are posted to any gateway, and the stream is at one of them.
    for path in ["/sse", "/servers/tools/sse", "/servers/local/sse"] {
        let mut session = LegacySession::open_at(&client, &nginx.url(path)).await?;
        for expected in 1..=4 {
            assert_eq!(session.increment().await?, expected, "{path}");
        }
    }
    let mut coder = Coder::open_at(&[nginx.url("/servers/sandbox/mcp")], "ada").await?;
    assert_eq!(coder.python("print(6 * 7)").await?, "42");
    for path in [
        "code/runs",
        "code/sessions",
        "code/security-events",
        "skills",
        "skills/approvals",
    ] {
        let reply = client
            .get(&nginx.url(&format!("/servers/sandbox/{path}")))
            .await?;
        let status = reply.status;
        assert_eq!(status, 200, "{path}: {}", reply.text().await?);
    }
    let runs = client.get(&nginx.url("/servers/sandbox/code/runs")).await?;
    let runs = runs.json().await?;
    assert_eq!(runs["runs"].as_array().map(Vec::len), Some(1), "{runs}");
    Ok(())
}

/// The example with passwords in principal.conf.
fn documented_example() -> anyhow::Result<String> {
    let text = std::fs::read_to_string(paths::workspace().join("deploy/principal.conf"))?;
    let example = text
        .lines()
        .skip_while(|line| !line.contains("auth_basic "));
    let lines = example.map_while(|line| line.strip_prefix("#   "));
    Ok(lines.map(|line| format!("{line}\n")).collect())
}

#[tokio::test]
async fn nginx_says_who_a_request_is_from_and_a_client_cannot() -> anyhow::Result<()> {
    let composed = Composed::start().await?;
    let nginx = nginx(&composed.gateways, Some(&documented_example()?)).await?;
    let client = HttpClient::default();
    let runs_of = async |who: &str, user: &str, forged: &[(&str, &str)]| -> anyhow::Result<Reply> {
        let url = nginx.url(&format!("/servers/sandbox/code/runs?user={user}"));
        let mut request = http::Request::get(url).header("authorization", who);
        for (name, value) in forged {
            request = request.header(*name, *value);
        }
        client.send(request.body(bytes::Bytes::new())?).await
    };
    // `ada:ada` and `eve:eve`.
    let (ada, eve) = ("Basic YWRhOmFkYQ==", "Basic ZXZlOmV2ZQ==");
    let forged = [
        ("x-mooring-user", "ada"),
        ("X-Mooring-Roles", "admin"),
        ("x_mooring_roles", "admin"),
        ("x-mooring-teams", "all"),
    ];
    assert_eq!(runs_of(eve, "eve", &[]).await?.status, 200);
    assert_eq!(runs_of(eve, "ada", &[]).await?.status, 403);
    assert_eq!(runs_of(eve, "ada", &forged).await?.status, 403);
    assert_eq!(runs_of("Basic eDp5", "ada", &forged).await?.status, 401);
    // A role that nginx gives.
    assert_eq!(runs_of(ada, "eve", &[]).await?.status, 200);
    Ok(())
}
