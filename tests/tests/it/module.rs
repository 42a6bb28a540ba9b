//! The Redis module as operators and clients meet it: a real server, raw RESP.

mod clients;
mod data;
mod errors;
mod loading;
mod metadata;
mod replication;
mod replies;
mod resp;
