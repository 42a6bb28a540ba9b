//! A server whose module lacks what this gateway needs: told at the start, by the names of the commands, or by the
//! prefixes that it indexes. What it can do without, options of REAP and of LEAVE, it
//! does without.

use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};

use mooring_session::refusal::{Refusal, Stale};

use super::{RedisStore, TIMEOUT};
use crate::error::{OpenError, StoreError};
use crate::key::Family;
use crate::test_support::requests as make;
use crate::test_support::server::{Module, RedisServer};
use crate::turns::{LeaveRequest, LeaveTarget};

/// A server that knows every command but one, for as many connections as come.
fn without(command: &'static str) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("redis://{}", listener.local_addr().unwrap());
    std::thread::spawn(move || {
        for client in listener.incoming().map_while(Result::ok) {
            std::thread::spawn(move || answer(client, command));
        }
    });
    url
}

/// Answers until the client goes.
fn answer(client: TcpStream, lacks: &str) -> Option<()> {
    let mut reader = BufReader::new(client.try_clone().ok()?);
    let mut writer = client;
    loop {
        let words = request(&mut reader)?;
        let reply = match words.split_first()? {
            (name, [_, asked @ ..]) if name.eq_ignore_ascii_case("COMMAND") => {
                let known = |word: &String| match word == lacks {
                    true => "*-1\r\n".to_owned(),
                    false => format!("*1\r\n${}\r\n{word}\r\n", word.len()),
                };
                let entries: String = asked.iter().map(known).collect();
                format!("*{}\r\n{entries}", asked.len())
            }
            (name, arguments) if name.eq_ignore_ascii_case("SESSION.REAP") => reaped(arguments),
            (name, arguments) if name.eq_ignore_ascii_case("SESSION.LEAVE") => left(arguments),
            _ => "+OK\r\n".to_owned(),
        };
        writer.write_all(reply.as_bytes()).ok()?;
    }
}

/// What the first modules answer to LEAVE, which takes one ticket and nothing else.
fn left(arguments: &[String]) -> String {
    if arguments.len() != 4 {
        return "-ERR wrong number of arguments for 'session.leave' command\r\n".to_owned();
    }
    "*2\r\n$4\r\nleft\r\n:1\r\n".to_owned()
}

/// What the first modules answer to REAP, which takes no pattern and names whatever there is.
fn reaped(arguments: &[String]) -> String {
    if arguments.len() != 3 {
        return "-ERR wrong number of arguments for 'session.reap' command\r\n".to_owned();
    }
    let keys = [make::key("m"), make::code_key("zoe-0011223344556677")];
    let keys = keys.iter().map(|key| {
        let key = key.secret();
        format!("${}\r\n{key}\r\n", key.len())
    });
    let keys: String = keys.chain(["$11\r\nother:s:abc\r\n".to_owned()]).collect();
    format!("*4\r\n$8\r\ncomplete\r\n:1\r\n$4\r\nkeys\r\n*3\r\n{keys}")
}

/// One request: an array of bulk strings.
fn request(reader: &mut impl BufRead) -> Option<Vec<String>> {
    let count = length(reader)?;
    (0..count)
        .map(|_| {
            let mut word = vec![0; length(reader)? + 2];
            reader.read_exact(&mut word).ok()?;
            let text = String::from_utf8(word).ok()?;
            Some(text.trim_end().to_owned())
        })
        .collect()
}

fn length(reader: &mut impl BufRead) -> Option<usize> {
    let mut line = String::new();
    reader.read_line(&mut line).ok()?;
    line.get(1..)?.trim_end().parse().ok()
}

#[tokio::test]
async fn a_module_that_is_too_old_is_refused_by_what_it_lacks() {
    let url = without("worker.wait");
    let refused = RedisStore::open(&url, make::PREFIX, TIMEOUT)
        .await
        .unwrap_err();
    assert!(
        matches!(refused, OpenError::OldModule { .. }),
        "{refused:?}"
    );
    let said = refused.to_string();
    assert!(said.contains("lacks worker.wait;"), "{said}");
    // The same server is taken where it lacks nothing.
    let url = without("no.such.command");
    RedisStore::open(&url, make::PREFIX, TIMEOUT).await.unwrap();
}

#[tokio::test]
async fn what_a_module_without_patterns_names_is_sorted_here() {
    let url = without("no.such.command");
    let store = RedisStore::open(&url, make::PREFIX, TIMEOUT).await.unwrap();
    let worker = make::worker("w:1");
    for (family, key) in [
        (Family::Mcp, make::key("m")),
        (Family::Code, make::code_key("zoe-0011223344556677")),
    ] {
        assert_eq!(store.reap(&worker, family, 10).await, Ok(vec![key]));
    }
}

#[tokio::test]
async fn nobody_is_withdrawn_where_the_module_cannot() {
    let url = without("no.such.command");
    let store = RedisStore::open(&url, make::PREFIX, TIMEOUT).await.unwrap();
    let (key, principal, server) = (
        make::key("s"),
        make::principal("alice"),
        make::server("tools"),
    );
    let withdraw = LeaveRequest {
        principal: principal.clone(),
        server: server.clone(),
        who: LeaveTarget::WaitingUnder(make::token("t1.")),
    };
    assert_eq!(
        store.leave(&key, &withdraw).await,
        Err(StoreError::Refused(Refusal::Stale(Stale::Turn)))
    );
    let leave = LeaveRequest {
        principal,
        server,
        who: LeaveTarget::Ticket(make::token("t1.a")),
    };
    assert_eq!(store.leave(&key, &leave).await, Ok(()));
}

#[tokio::test]
async fn a_module_that_does_not_index_the_prefix_is_refused_by_what_it_indexes() {
    let server = RedisServer::start(Module::Loaded);
    let refused = RedisStore::open(&server.url(), "other:", TIMEOUT)
        .await
        .unwrap_err();
    assert!(
        matches!(&refused, OpenError::NotIndexed { prefixes, .. } if prefixes.starts_with(make::PREFIX)),
        "{refused:?}"
    );
    let said = refused.to_string();
    assert!(
        said.contains("start with other:session_affinity:"),
        "{said}"
    );
    // Of a server that does not say, nothing is assumed.
    let silent = without("no.such.command");
    RedisStore::open(&silent, "other:", TIMEOUT).await.unwrap();
}
