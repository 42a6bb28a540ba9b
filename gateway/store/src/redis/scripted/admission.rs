//! What a gateway has to know of a server before it uses it without the module: that its user may do what the script does,
//! and whether the server has restarted.
//!
//! A server that restarts, or a replica that takes over, may have lost the last writes, and with them turns that are still
//! held. Invariant: for the longest lease after that, only callers that name the number of a turn that they held get one.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use futures_util::future::{BoxFuture, FutureExt};
use mooring_session::time::{Millis, Monotonic};
use redis::{Cmd, Value};

use super::super::command_connection::CommandConnection;
use super::super::down_reason::DownReason;
use super::super::link_entry::EntryCheck;
use super::super::log_in::send;
use super::super::reply::text;
use super::script::ScriptCall;

/// The longest lease: the module's default.
const QUIET: Millis = Millis::new(5_000);

/// What was found out of the servers that were connected to.
#[derive(Debug)]
pub(in super::super) struct Admission {
    prefix: Box<str>,
    /// Whether its user may do what the script does.
    is_admitted: AtomicBool,
    /// By the server's clock, in milliseconds since 1970.
    quiet_until: AtomicU64,
}

impl Admission {
    pub(in super::super) fn new(prefix: &str) -> Self {
        Self {
            prefix: prefix.into(),
            is_admitted: AtomicBool::new(false),
            quiet_until: AtomicU64::new(0),
        }
    }

    /// Until when turns are granted only to those who had them.
    pub(super) fn quiet_until(&self) -> Monotonic {
        Monotonic::from_ms(self.quiet_until.load(Ordering::Relaxed))
    }

    /// Tries what the script does, and notes whether the server has restarted since a gateway was connected to it last.
    async fn admit(&self, connection: &CommandConnection) -> Result<(), DownReason> {
        if !self.is_admitted.load(Ordering::Relaxed)
            && let Err(down) = send(connection, &self.probe()).await
        {
            return Err(match down {
                DownReason::Unreachable(problem) if problem.contains("CROSSSLOT") => {
                    DownReason::WithoutModule(
                        "it is a node of a cluster, which needs the module".to_owned(),
                    )
                }
                DownReason::Unreachable(problem) if is_of_rights(&problem) => {
                    DownReason::Denied(problem)
                }
                down => down,
            });
        }
        self.is_admitted.store(true, Ordering::Relaxed);
        self.note_run(connection).await
    }

    /// The script with every command that it may run.
    fn probe(&self) -> Cmd {
        let mut call = ScriptCall::default();
        let [hash, set, list, text] =
            ["hash", "set", "list", "text"].map(|kind| format!("{}probe:{kind}", self.prefix));
        call.run("HSET", &hash, &["a", "1", "b", "2"]);
        call.run("HLEN", &hash, &[]);
        call.run("HGET", &hash, &["a"]);
        call.run("HDEL", &hash, &["a"]);
        call.run("HGETALL", &hash, &[]);
        call.run("PEXPIREAT", &hash, &["1"]);
        call.run("ZADD", &set, &["1", "a"]);
        call.run("keep", &set, &["1"]);
        call.run("ZADD", &set, &["1", "a"]);
        call.run("ZCOUNT", &set, &["now", "+inf"]);
        call.run("ZSCORE", &set, &["a"]);
        call.run("ZRANGEBYSCORE", &set, &["-inf", "now"]);
        call.run("ZREVRANGEBYSCORE", &set, &["+inf", "-inf"]);
        call.run("ZREM", &set, &["a"]);
        let number = call.key(&set).to_string();
        call.run("prune", &text, &[&number]);
        call.run("RPUSH", &list, &["a"]);
        call.run("LTRIM", &list, &["-1", "-1"]);
        call.run("PEXPIRE", &list, &["1"]);
        call.run("SET", &text, &["a", "PX", "1"]);
        call.run("GET", &text, &[]);
        for key in [&hash, &set, &list, &text] {
            call.run("DEL", key, &[]);
        }
        call.eval()
    }

    async fn note_run(&self, connection: &CommandConnection) -> Result<(), DownReason> {
        let mut command = redis::cmd("INFO");
        command.arg("server");
        // A provider may refuse it: then restarts are not noticed.
        let Ok(info) = send(connection, &command).await else {
            tracing::info!(
                "INFO is refused: turns that a restart of redis loses are granted again at once"
            );
            return Ok(());
        };
        let run = text_of(&info)
            .lines()
            .find_map(|line| line.strip_prefix("run_id:"))
            .unwrap_or_default()
            .trim()
            .to_owned();
        let key = format!("{}server_run", self.prefix);
        let mut command = redis::cmd("GET");
        command.arg(&key);
        let stored = text_of(&send(connection, &command).await?);
        let (known, quiet_until) = stored.split_once(' ').unwrap_or_default();
        let quiet_until = match quiet_until.parse() {
            Ok(quiet_until) if known == run => quiet_until,
            _ => {
                let quiet_until = match known.is_empty() {
                    true => 0,
                    false => server_now(connection).await?.saturating_add(QUIET.get()),
                };
                let mut command = redis::cmd("SET");
                command.arg(&key).arg(format!("{run} {quiet_until}"));
                send(connection, &command).await?;
                quiet_until
            }
        };
        self.quiet_until.store(quiet_until, Ordering::Relaxed);
        Ok(())
    }
}

impl EntryCheck for Admission {
    fn check<'a>(
        &'a self,
        connection: &'a CommandConnection,
    ) -> BoxFuture<'a, Result<(), DownReason>> {
        self.admit(connection).boxed()
    }
}

/// Whether a script failed for want of a right, as Redis 7.0 and later ones say it.
fn is_of_rights(problem: &str) -> bool {
    ["ACL failure", "can't run this command", "can't access"]
        .iter()
        .any(|part| problem.contains(part))
}

/// The server's clock in milliseconds.
async fn server_now(connection: &CommandConnection) -> Result<u64, DownReason> {
    let time = send(connection, &redis::cmd("TIME")).await?;
    let parts = time.as_sequence().unwrap_or_default();
    let seconds = parts
        .first()
        .and_then(text)
        .and_then(|text| text.parse::<u64>().ok());
    Ok(seconds
        .unwrap_or_default()
        .saturating_add(1)
        .saturating_mul(1_000))
}

fn text_of(value: &Value) -> String {
    match value {
        Value::VerbatimString { text, .. } => text.clone(),
        value => text(value).unwrap_or_default().to_owned(),
    }
}
