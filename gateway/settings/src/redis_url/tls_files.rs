//! The files of TLS to Redis, which a URL cannot name.

use std::path::PathBuf;

use crate::listen::CertificateFiles;

/// By what certificates Redis and a gateway prove who they are.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RedisTlsFiles {
    /// The authorities of the servers and sentinels; none for those that this system trusts.
    pub ca_file: Option<PathBuf>,
    /// The gateway's own certificate, for servers that ask for one.
    pub client: Option<CertificateFiles>,
}
