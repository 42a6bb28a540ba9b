//! Hooks that answer the question about another call. What they answer is put in the place of arguments and results.

use std::sync::Arc;
use std::time::Duration;

use mooring_tests::gateway::{Gateway, Settings};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;

use super::attack::{Attack, LONG, SHORT};
use super::echo::{Calls, Echo, http, read_head};

/// How long the gateway waits for an answer, and how long a late one takes.
const TIMEOUT: Duration = Duration::from_millis(300);
const LATE: Duration = Duration::from_millis(400);

/// What is wrong with a hook.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fault {
    /// It repeats its answer to another question.
    Other,
    /// Its answer is followed by that to another question.
    Twice,
    /// Before it has read the question it repeats its answer to another one.
    Early,
    /// It answers when nobody waits for it any more.
    Late,
}

static ALL: [Fault; 4] = [Fault::Other, Fault::Twice, Fault::Early, Fault::Late];

/// A hook that puts the arguments and results in their own place, and whose faults take turns.
struct SpoilingHook {
    url: String,
    calls: Arc<Calls>,
    accepting: JoinHandle<()>,
}

impl Drop for SpoilingHook {
    fn drop(&mut self) {
        self.accepting.abort();
    }
}

impl SpoilingHook {
    async fn start(faults: &'static [Fault]) -> anyhow::Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let url = format!("http://{}/", listener.local_addr()?);
        let calls = Arc::<Calls>::default();
        let of_connections = Arc::clone(&calls);
        let accepting = tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let calls = Arc::clone(&of_connections);
                // The gateway may close a connection at any time.
                tokio::spawn(async move {
                    let _ = serve(stream, faults, &calls).await;
                });
            }
        });
        Ok(Self {
            url,
            calls,
            accepting,
        })
    }
}

async fn serve(mut stream: TcpStream, faults: &[Fault], calls: &Calls) -> anyhow::Result<()> {
    loop {
        let head = read_head(&mut stream).await?;
        let (_, other) = calls.last();
        let is_due = !other.is_empty() && calls.is_due();
        let fault = is_due.then(|| faults[calls.spoiled() % faults.len()]);
        if fault.is_some() {
            calls.note_spoiled();
        }
        let other = http("200 OK", "", &other);
        if fault == Some(Fault::Early) {
            stream.write_all(&other).await?;
        }
        let mut body = vec![0; head.length];
        stream.read_exact(&mut body).await?;
        let answer = answer(&serde_json::from_slice(&body)?).to_string();
        calls.replace_last(&Value::Null, &answer);
        let own = http("200 OK", "", &answer);
        match fault {
            None | Some(Fault::Early) => stream.write_all(&own).await?,
            Some(Fault::Other) => stream.write_all(&other).await?,
            Some(Fault::Twice) => stream.write_all(&[own, other].concat()).await?,
            Some(Fault::Late) => {
                tokio::time::sleep(LATE).await;
                stream.write_all(&own).await?;
            }
        }
    }
}

fn answer(question: &Value) -> Value {
    let changed = match question["phase"].as_str() {
        Some("before") => "arguments",
        _ => "result",
    };
    json!({"call_id": question["call_id"], "allow": true, changed: question[changed]})
}

async fn check(faults: &'static [Fault], lasts: Duration) -> anyhow::Result<()> {
    let (echo, hook) = (Echo::start(None).await?, SpoilingHook::start(faults).await?);
    let settings = Settings::toml(format!(
        "[[servers]]\nid = \"web\"\naffinity = \"on\"\ninstances = [{:?}]\n\
         [[calls.hooks]]\nurl = {:?}\nwhen = [\"before\", \"after\"]\ntimeout_ms = {}\n",
        echo.url(),
        hook.url,
        TIMEOUT.as_millis(),
    ))
    .users_by_header();
    let gateway = Gateway::start("foreign", settings).await?;
    let calls = Arc::clone(&hook.calls);
    let attack = Attack::begin(format!("{faults:?}"), lasts, move || calls.spoiled());
    attack.call_at(&gateway.mcp_url("web"), "echo").await?;
    if faults.contains(&Fault::Other) {
        let mismatched = ["source=\"hook\""];
        let counted = gateway
            .metric("mooring_mismatched_replies_total", &mismatched)
            .await?;
        assert!(counted > 0.0, "{faults:?}");
    }
    Ok(())
}

#[tokio::test]
async fn an_answer_of_a_hook_changes_no_call_but_that_it_was_asked_about() -> anyhow::Result<()> {
    check(&ALL, SHORT).await
}

#[tokio::test]
#[ignore = "soak"]
async fn soak_no_fault_of_hooks_gives_anybody_a_foreign_reply() -> anyhow::Result<()> {
    for faults in ALL.each_ref().map(std::slice::from_ref) {
        check(faults, LONG).await?;
    }
    Ok(())
}
