//! Secrets: tokens of callers, reading of secret files and certificates, and digests that identify a secret in logs and keys.
//!
//! Invariant: no error, log line or key contains a secret.

pub mod access_token;
pub mod certificates;
pub mod digest;
pub mod file;
pub mod watched_files;
