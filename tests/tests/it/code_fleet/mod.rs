//! Code servers across a fleet: one session, one directory, whichever process serves and whichever dies.

mod chaos;
mod clients;
mod expiry;
mod frozen;
mod handover;
mod persistence;
mod topology;
