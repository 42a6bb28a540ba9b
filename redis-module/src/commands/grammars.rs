//! The grammar of every command that takes more than a key, for the fuzz targets.

use crate::failure::Failure;

use super::{
    beat, bind, claim, confirm, count, create, end, enter, forget, get, leave, list, rate, reap,
    rebind, route, touch, unbind, wait,
};

/// Parses the words of a command, its name first; `None` if the command is not in this list.
pub(crate) fn parse(words: &[&[u8]]) -> Option<Result<(), Failure>> {
    let name = words.first()?.to_ascii_lowercase();
    Some(match name.as_slice() {
        b"session.bind" => bind::parse(words).map(drop),
        b"session.claim" => claim::parse(words).map(drop),
        b"session.confirm" => confirm::parse(words).map(drop),
        b"session.count" => count::parse(words).map(drop),
        b"session.create" => create::parse(words).map(drop),
        b"session.end" => end::parse(words).map(drop),
        b"session.enter" => enter::parse(words).map(drop),
        b"session.forget" => forget::parse(words).map(drop),
        b"session.get" => get::parse(words).map(drop),
        b"session.leave" => leave::parse(words).map(drop),
        b"session.list" => list::parse(words).map(drop),
        b"session.rate" => rate::parse(words).map(drop),
        b"session.reap" => reap::parse(words).map(drop),
        b"session.rebind" => rebind::parse(words).map(drop),
        b"session.route" => route::parse(words).map(drop),
        b"session.touch" => touch::parse(words).map(drop),
        b"session.unbind" => unbind::parse(words).map(drop),
        b"worker.beat" => beat::parse(words).map(drop),
        b"worker.wait" => wait::parse(words).map(drop),
        _ => return None,
    })
}
