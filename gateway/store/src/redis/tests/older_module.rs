//! A server whose module lacks what this gateway needs: told at the start, by the names of the commands, by their hints, or
//! by the prefixes that it indexes.

use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::slice::from_ref;
use std::sync::atomic::Ordering;

use mooring_session::RequestDigest;
use mooring_session::request_digest::{NAMES_REQUEST, REQUEST_FIELD};

use super::{RedisStore, TIMEOUT};
use crate::error::OpenError;
use crate::key::Family;
use crate::query::SessionQuery;
use crate::test_support::enter;
use crate::test_support::requests as make;
use crate::test_support::server::{Module, RedisServer, redis_url};
use crate::turns::{EnterRequest, TurnScope};

/// What a module is too old for.
#[derive(Clone, Copy)]
enum Lacks {
    Nothing,
    Command(&'static str),
    RequestNames,
    /// The word DELEGATE of ENTER.
    Delegations,
}

/// A server with such a module, for as many connections as come.
fn serve_module(lacks: Lacks) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("redis://{}", listener.local_addr().unwrap());
    std::thread::spawn(move || {
        for client in listener.incoming().map_while(Result::ok) {
            std::thread::spawn(move || answer(client, lacks));
        }
    });
    url
}

/// Answers until the client goes.
fn answer(client: TcpStream, lacks: Lacks) -> Option<()> {
    let mut reader = BufReader::new(client.try_clone().ok()?);
    let mut writer = client;
    loop {
        let words = request(&mut reader)?;
        let reply = match words.split_first()? {
            (name, [_, asked @ ..]) if name.eq_ignore_ascii_case("COMMAND") => {
                let hint = match lacks {
                    Lacks::RequestNames => "nondeterministic_output",
                    Lacks::Nothing | Lacks::Command(_) | Lacks::Delegations => NAMES_REQUEST,
                };
                let known = |word: &String| match lacks {
                    Lacks::Command(lacking) if word == lacking => "*-1\r\n".to_owned(),
                    _ => format!(
                        "*8\r\n${}\r\n{word}\r\n{}*1\r\n+{hint}\r\n",
                        word.len(),
                        ":0\r\n".repeat(6)
                    ),
                };
                let entries: String = asked.iter().map(known).collect();
                format!("*{}\r\n{entries}", asked.len())
            }
            (name, _) if name == "SESSION.ENTER" => {
                let digest = RequestDigest::of(words.iter().map(|word| word.as_bytes()));
                match words.iter().any(|word| word == "DELEGATE") {
                    true => {
                        format!("-ERR syntax error near 'DELEGATE' ({REQUEST_FIELD} {digest})\r\n")
                    }
                    false => format!(
                        "*6\r\n$7\r\n{REQUEST_FIELD}\r\n$16\r\n{digest}\r\n+state\r\n+unbound\r\n+turn\r\n:{}\r\n",
                        words.len()
                    ),
                }
            }
            (name, _) if name == "SESSION.LIST" => listed(&words),
            (name, _) if name == "SESSION.COUNT" => {
                "-ERR unknown command 'SESSION.COUNT', with args beginning with: \r\n".to_owned()
            }
            (name, [_]) if name == "SESSION.GET" => record(&words),
            (name, _) if name == "SESSION.GET" => {
                "-ERR wrong number of arguments for 'session.get' command\r\n".to_owned()
            }
            (name, _) if name == "GET" => "$-1\r\n".to_owned(),
            (name, _) if name == "DEL" => ":0\r\n".to_owned(),
            _ => "+OK\r\n".to_owned(),
        };
        writer.write_all(reply.as_bytes()).ok()?;
    }
}

/// The reply to GET without TURNS: a session without bindings.
fn record(words: &[String]) -> String {
    let digest = RequestDigest::of(words.iter().map(|word| word.as_bytes()));
    let fields = record_fields();
    format!("*22\r\n$7\r\n{REQUEST_FIELD}\r\n$16\r\n{digest}\r\n{fields}")
}

/// The reply to LIST: two sessions, unless a word of it is not known.
fn listed(words: &[String]) -> String {
    let digest = RequestDigest::of(words.iter().map(|word| word.as_bytes()));
    let is_unknown = |word: &&String| *word == "DIGEST" || *word == "TEXT";
    if let Some(word) = words.iter().find(is_unknown) {
        return format!("-ERR syntax error near '{word}' ({REQUEST_FIELD} {digest})\r\n");
    }
    let sessions = ["a", "b"].map(|session| {
        let (key, fields) = (make::key(session), record_fields());
        format!("*22\r\n+key\r\n+{}\r\n{fields}", key.secret())
    });
    format!(
        "*8\r\n$7\r\n{REQUEST_FIELD}\r\n$16\r\n{digest}\r\n+complete\r\n:1\r\n+cursor\r\n+0\r\n+sessions\r\n*2\r\n{}",
        sessions.concat()
    )
}

/// The fields of a record but the first.
fn record_fields() -> String {
    let texts = [("id", "s"), ("principal", "alice"), ("state", "active")];
    let texts = texts.map(|(name, value)| format!("+{name}\r\n+{value}\r\n"));
    let numbers = ["gen", "created_at", "last_used_at", "expires_at", "ttl_ms"];
    let numbers = numbers.map(|name| format!("+{name}\r\n:1\r\n"));
    format!(
        "{}{}+labels\r\n*0\r\n+bindings\r\n*0\r\n",
        texts.concat(),
        numbers.concat()
    )
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
    let url = serve_module(Lacks::Command("worker.wait"));
    let refused = RedisStore::open(&redis_url(&url), make::PREFIX, TIMEOUT)
        .await
        .unwrap_err();
    assert!(
        matches!(&refused, OpenError::Redis(text) if text.contains("is too old")),
        "{refused:?}"
    );
    let said = refused.to_string();
    assert!(said.contains("lacks worker.wait;"), "{said}");
    // The same server is taken where it lacks nothing.
    let url = serve_module(Lacks::Nothing);
    RedisStore::open(&redis_url(&url), make::PREFIX, TIMEOUT)
        .await
        .unwrap();
}

/// It would be believed whatever it answers.
#[tokio::test]
async fn a_module_whose_replies_name_no_request_is_refused() {
    let url = serve_module(Lacks::RequestNames);
    let refused = RedisStore::open(&redis_url(&url), make::PREFIX, TIMEOUT)
        .await
        .unwrap_err();
    let said = refused.to_string();
    assert!(
        said.contains("lacks replies that name their request;"),
        "{said}"
    );
}

#[tokio::test]
async fn a_module_that_does_not_index_the_prefix_is_refused_by_what_it_indexes() {
    let server = RedisServer::start(Module::Loaded);
    let refused = RedisStore::open(&redis_url(&server.url()), "other:", TIMEOUT)
        .await
        .unwrap_err();
    assert!(
        matches!(&refused, OpenError::Redis(text) if text.contains(&format!("mooring.prefixes is \"{}", make::PREFIX))),
        "{refused:?}"
    );
    let said = refused.to_string();
    assert!(
        said.contains("start with other:session_affinity:"),
        "{said}"
    );
    // Of a server that does not say, nothing is assumed.
    let silent = serve_module(Lacks::Nothing);
    RedisStore::open(&redis_url(&silent), "other:", TIMEOUT)
        .await
        .unwrap();
}

#[tokio::test]
async fn a_module_without_delegations_is_asked_once() {
    let url = serve_module(Lacks::Delegations);
    let store = RedisStore::open(&redis_url(&url), make::PREFIX, TIMEOUT)
        .await
        .unwrap();
    let wishing = EnterRequest {
        scope: TurnScope::Delegation,
        ..enter("w:1", "t1")
    };
    for _ in 0..2 {
        let entered = store.enter(&make::key("s"), &wishing).await.unwrap();
        // The server counts the words.
        assert_eq!((entered.turn, entered.delegated_for), (Some(8), None));
    }
    let connection = store.servers.connection_number("");
    let without = store.without_delegations.load(Ordering::Relaxed);
    assert_eq!(without, connection);
}

/// The record is shown without the turns, which such a module does not tell.
#[tokio::test]
async fn a_module_that_does_not_tell_of_turns_is_asked_for_the_record() {
    let url = serve_module(Lacks::Nothing);
    let store = RedisStore::open(&redis_url(&url), make::PREFIX, TIMEOUT)
        .await
        .unwrap();
    let blockers = store.blockers(&make::key("s")).await.unwrap();
    assert_eq!(
        (blockers.turns.as_ref(), blockers.cleaning.as_ref()),
        (None, None)
    );
    assert_eq!(blockers.record.principal, make::principal("alice"));
    let said = blockers.sentences(1).join("\n");
    assert!(said.contains("not known here"), "{said}");
}

/// What such a module lists is compared by the gateway.
#[tokio::test]
async fn a_module_that_finds_and_counts_nothing_is_asked_for_all_records() {
    let url = serve_module(Lacks::Nothing);
    let store = RedisStore::open(&redis_url(&url), make::PREFIX, TIMEOUT)
        .await
        .unwrap();
    let find = async |digest: Option<Box<str>>, text: Option<Box<str>>| {
        let query = SessionQuery {
            digest,
            text,
            ..SessionQuery::default()
        };
        let page = store.list(&query).await.unwrap();
        let keys = page.sessions.into_iter().map(|(key, _)| key);
        keys.collect::<Vec<_>>()
    };
    let (a, b) = (make::key("a"), make::key("b"));
    assert_eq!(find(None, None).await, [a.clone(), b.clone()]);
    assert_eq!(find(Some(b.digest()), None).await, from_ref(&b));
    assert_eq!(find(None, Some("LIC".into())).await, [a, b]);
    assert_eq!(find(None, Some("bob".into())).await, []);
    assert_eq!(store.count(Family::Mcp).await.unwrap(), None);
}
