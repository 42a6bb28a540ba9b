//! A server whose module lacks what this gateway needs: told at the start, by the names of the commands, or by the
//! prefixes that it indexes.

use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};

use super::{RedisStore, TIMEOUT};
use crate::store::error::OpenError;
use crate::store::tests::requests as make;
use crate::store::tests::server::{Module, RedisServer};

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
            _ => "+OK\r\n".to_owned(),
        };
        writer.write_all(reply.as_bytes()).ok()?;
    }
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
async fn a_module_that_does_not_index_the_prefix_is_refused_by_what_it_indexes() {
    let server = RedisServer::start(Module::Loaded);
    let refused = RedisStore::open(&server.url(), "other:", TIMEOUT)
        .await
        .unwrap_err();
    assert!(
        matches!(&refused, OpenError::NotIndexed { prefixes, .. } if prefixes == make::PREFIX),
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
