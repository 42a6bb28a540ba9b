//! A test's certificate authority, made with `openssl`.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, ensure};
use tempfile::TempDir;
use time::OffsetDateTime;

/// An authority that only processes with its certificate trust.
#[derive(Debug)]
pub struct Authority {
    directory: TempDir,
}

/// How `openssl ca` issues and revokes.
const CONFIG: &str = "[ca]\ndefault_ca = own\n[own]\ndatabase = index.txt\nnew_certs_dir = .\nrand_serial = yes\n\
    certificate = ca.pem\nprivate_key = ca.key\ndefault_md = sha256\ndefault_crl_days = 1\ncrlnumber = crlnumber\nunique_subject = no\n\
    policy = any\n[any]\nCN = optional\nO = optional\nOU = optional\n";

/// How long a server's certificate is valid.
const SERVER_LIFETIME: Duration = Duration::from_secs(2 * 86_400);

/// The files of a server or client that proves who it is.
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
        std::fs::write(authority.directory.path().join("ca.cnf"), CONFIG)?;
        std::fs::write(authority.directory.path().join("index.txt"), "")?;
        std::fs::write(authority.directory.path().join("crlnumber"), "01\n")?;
        Ok(authority)
    }

    /// The authority's own certificate.
    #[must_use]
    pub fn root(&self) -> PathBuf {
        self.directory.path().join("ca.pem")
    }

    /// Issues a certificate for a server with these names, written as `DNS:localhost,IP:127.0.0.1`.
    pub fn certify(&self, file: &str, names: &str) -> anyhow::Result<Certificate> {
        self.certify_client(file, &format!("/CN={file}"), names, SERVER_LIFETIME)
    }

    /// Issues a certificate for a client with this subject, written as `/O=team/CN=user`, and these alternative names,
    /// written as `URI:spiffe://example/user`, that is valid for this time.
    pub fn certify_client(
        &self,
        file: &str,
        subject: &str,
        names: &str,
        lifetime: Duration,
    ) -> anyhow::Result<Certificate> {
        let directory = self.directory.path();
        std::fs::write(
            directory.join(format!("{file}.cnf")),
            format!("subjectAltName={names}\n"),
        )?;
        let ends = OffsetDateTime::now_utc() + lifetime;
        let (year, month, day) = ends.to_calendar_date();
        let (hour, minute, second) = ends.to_hms();
        let month = u8::from(month);
        let ends = format!("{year}{month:02}{day:02}{hour:02}{minute:02}{second:02}Z");
        openssl(
            directory,
            &format!(
                "req -new -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -subj {subject} \
                 -keyout {file}.key -out {file}.csr"
            ),
        )?;
        openssl(
            directory,
            &format!(
                "ca -batch -config ca.cnf -notext -preserveDN -in {file}.csr -enddate {ends} -extfile {file}.cnf \
                 -out {file}.pem"
            ),
        )?;
        Ok(Certificate {
            certificate: directory.join(format!("{file}.pem")),
            key: directory.join(format!("{file}.key")),
        })
    }

    /// Revokes a client's certificate.
    pub fn revoke(&self, certificate: &Certificate) -> anyhow::Result<()> {
        let file = certificate.certificate.display();
        openssl(
            self.directory.path(),
            &format!("ca -config ca.cnf -revoke {file}"),
        )
    }

    /// Writes the list of what was revoked into a file beside `path`, and moves it there.
    pub fn write_revocations(&self, path: &Path) -> anyhow::Result<()> {
        let new = path.with_extension("new");
        openssl(
            self.directory.path(),
            &format!("ca -config ca.cnf -gencrl -out {}", new.display()),
        )?;
        Ok(std::fs::rename(new, path)?)
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
