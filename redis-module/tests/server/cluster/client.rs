//! A client of several servers: follows MOVED and ASK of a cluster, and asks the next one while none serves its key.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use mooring_tests::redis::Redis;

use super::super::resp::{Connection, Value};
const ANSWERED_WITHIN: Duration = Duration::from_secs(20);
const ASK_AGAIN_AFTER: Duration = Duration::from_millis(20);

pub(crate) struct Client {
    ports: Vec<u16>,
    connections: HashMap<u16, Connection>,
    /// Where a key was found last.
    homes: HashMap<String, u16>,
    /// How often it was redirected by ASK, that is into a slot that was moving.
    pub(crate) asked: usize,
}

impl Client {
    pub(crate) fn of<'a>(servers: impl IntoIterator<Item = &'a Redis>) -> Self {
        Self {
            ports: servers.into_iter().map(Redis::port).collect(),
            connections: HashMap::new(),
            homes: HashMap::new(),
            asked: 0,
        }
    }

    /// Runs a command whose second word is its key at the node that serves it. Its error replies are replies.
    pub(crate) fn run(&mut self, command: &str) -> anyhow::Result<Value> {
        let key = command.split(' ').nth(1).context("a key")?.to_owned();
        let mut port = self.homes.get(&key).copied().unwrap_or(self.ports[0]);
        let mut is_asking = false;
        let started = Instant::now();
        loop {
            let reply = self.run_at(port, command, is_asking);
            is_asking = false;
            let error = match reply {
                Ok(Value::Error(error)) => error,
                Ok(reply) => {
                    self.homes.insert(key, port);
                    return Ok(reply);
                }
                Err(error) => format!("LOST {error}"),
            };
            let words: Vec<&str> = error.split(' ').collect();
            let target = || -> anyhow::Result<u16> {
                let address = words.get(2).context("an address")?;
                let (_, port) = address.rsplit_once(':').context("a port")?;
                Ok(port.parse()?)
            };
            match words[0] {
                "MOVED" => {
                    port = target()?;
                    self.homes.insert(key.clone(), port);
                }
                "ASK" => {
                    port = target()?;
                    is_asking = true;
                    self.asked += 1;
                }
                "LOST" | "CLUSTERDOWN" | "LOADING" | "TRYAGAIN" | "READONLY" => {
                    if started.elapsed() >= ANSWERED_WITHIN {
                        bail!("{command}: {error} for {ANSWERED_WITHIN:?}");
                    }
                    std::thread::sleep(ASK_AGAIN_AFTER);
                    // Any other node may know better.
                    let place = self.ports.iter().position(|known| *known == port);
                    port = self.ports[place.map_or(0, |place| place + 1) % self.ports.len()];
                }
                _ => return Ok(Value::Error(error)),
            }
        }
    }

    fn run_at(&mut self, port: u16, command: &str, is_asking: bool) -> anyhow::Result<Value> {
        let connection = match self.connections.remove(&port) {
            Some(connection) => connection,
            None => Connection::open_at(port)?,
        };
        let connection = self.connections.entry(port).or_insert(connection);
        let asked = match is_asking {
            true => connection.run("ASKING").map(drop),
            false => Ok(()),
        };
        let reply = asked.and_then(|()| connection.run(command));
        if reply.is_err() {
            self.connections.remove(&port);
        }
        reply
    }
}
