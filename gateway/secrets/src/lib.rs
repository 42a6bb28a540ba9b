//! Secrets: tokens of callers, how secrets are read from files, and what stands for one in logs and keys.
//!
//! Invariant: no error, log line or key contains a secret.

pub mod access_token;
pub mod digest;
pub mod file;
