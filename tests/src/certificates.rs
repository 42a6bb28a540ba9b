//! A test's certificate authority, made with `openssl`.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, ensure};
use tempfile::TempDir;

/// An authority that only processes with its certificate trust.
#[derive(Debug)]
pub struct Authority {
    directory: TempDir,
}

/// The files of a server that proves who it is.
#[derive(Debug)]
pub struct Certificate {
    /// The certificate, as PEM.
    pub certificate: PathBuf,
    /// Its private key, as PEM.
    pub key: PathBuf,
}

impl Authority {
    /// Creates a new one.
    pub fn new() -> anyhow::Result<Self> {
        let authority = Self {
            directory: TempDir::with_prefix("mooring-authority-").context("make a directory")?,
        };
        openssl(
            authority.directory.path(),
            "req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2 -subj /CN=mooring-tests \
             -keyout ca.key -out ca.pem",
        )?;
        Ok(authority)
    }

    /// The authority's own certificate.
    #[must_use]
    pub fn root(&self) -> PathBuf {
        self.directory.path().join("ca.pem")
    }

    /// Issues a certificate for a server with these names, written as `DNS:localhost,IP:127.0.0.1`.
    pub fn certify(&self, file: &str, names: &str) -> anyhow::Result<Certificate> {
        let directory = self.directory.path();
        std::fs::write(
            directory.join(format!("{file}.cnf")),
            format!("subjectAltName={names}\n"),
        )?;
        openssl(
            directory,
            &format!(
                "req -new -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -subj /CN={file} \
                 -keyout {file}.key -out {file}.csr"
            ),
        )?;
        openssl(
            directory,
            &format!(
                "x509 -req -in {file}.csr -CA ca.pem -CAkey ca.key -CAcreateserial -days 2 \
                 -extfile {file}.cnf -out {file}.pem"
            ),
        )?;
        Ok(Certificate {
            certificate: directory.join(format!("{file}.pem")),
            key: directory.join(format!("{file}.key")),
        })
    }
}

fn openssl(directory: &Path, arguments: &str) -> anyhow::Result<()> {
    let output = Command::new("openssl")
        .args(arguments.split_whitespace())
        .current_dir(directory)
        .output()
        .context("run openssl")?;
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "openssl {arguments}: {said}");
    Ok(())
}
