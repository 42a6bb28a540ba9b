//! The credentials of a fleet: a ring of shared keys, and the certificates, tags and ciphers made from it.
//!
//! Invariant: every purpose has its own key, derived from the fleet's, and a proof for one purpose is none for another.
//! This module does no network I/O.

mod caller_signer;
mod keys;
mod mac;
mod seal;
mod secret_cipher;
mod tls;
mod user_digests;

pub use caller_signer::{CallerKeyError, CallerSigner};
pub use keys::KeyRing;
pub use seal::SealKey;
pub use secret_cipher::{SealError, SecretCipher};
pub(crate) use tls::tls_name;
pub use tls::{FleetTls, FleetTlsError};
pub use user_digests::UserDigests;
