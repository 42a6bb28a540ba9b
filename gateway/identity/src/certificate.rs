//! Identity from the certificate with which a client has connected.
//!
//! Invariant: the listener has verified the certificate; here it is only read, once for each connection, and its end is
//! compared with the clock at each request.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use mooring_session::names::Principal;
use mooring_settings::CertificateName;
use x509_cert::Certificate;
use x509_cert::der::Decode as _;
use x509_cert::der::oid::ObjectIdentifier;
use x509_cert::der::oid::db::rfc4519::{COMMON_NAME, ORGANIZATION_NAME, ORGANIZATIONAL_UNIT_NAME};
use x509_cert::ext::pkix::SubjectAltName;
use x509_cert::ext::pkix::name::{DirectoryString, GeneralName};

use crate::error::IdentityError;
use crate::identity::Identity;
use crate::token::now;
use crate::value;

/// Most teams, and most roles, of one certificate.
const ITEMS_MAX: usize = 64;

/// Why a client certificate is refused.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, thiserror::Error, strum::IntoStaticStr, strum::VariantNames,
)]
#[strum(serialize_all = "snake_case", prefix = "certificate_")]
pub enum CertificateError {
    /// The client has shown none.
    #[error("the client has no certificate")]
    Missing,
    /// It cannot be read.
    #[error("the client's certificate cannot be read")]
    Malformed,
    /// It has no name of the kind that is the user.
    #[error("the client's certificate names no user")]
    UserMissing,
    /// It has several names of that kind.
    #[error("the client's certificate names more than one user")]
    SeveralUsers,
    /// No user can have the name.
    #[error("the client's certificate names a user that cannot be")]
    UserInvalid,
    /// Teams or roles are too long or too many, or have control characters.
    #[error("the client's certificate has teams or roles that cannot be")]
    InvalidItems,
    /// It is not valid any more.
    #[error("the client's certificate has expired")]
    Expired,
}

/// The other end of a client connection. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Peer {
    /// Its address.
    pub address: SocketAddr,
    /// Its certificate, where callers are known by theirs.
    certificate: Option<Arc<ClientCertificate>>,
}

impl Peer {
    /// A peer at this address that has shown no certificate.
    #[must_use]
    pub const fn at(address: SocketAddr) -> Self {
        Self {
            address,
            certificate: None,
        }
    }

    /// The same, with its verified certificate in DER.
    pub(crate) fn with_certificate(mut self, der: &[u8], user: CertificateName) -> Self {
        self.certificate = Some(Arc::new(ClientCertificate::read(der, user)));
        self
    }

    /// Returns when its certificate has expired; never if none was read.
    pub async fn certificate_expired(&self) {
        match &self.certificate {
            Some(certificate) => {
                let seconds = (certificate.not_after.saturating_add(1)).saturating_sub(now());
                tokio::time::sleep(Duration::from_secs(seconds)).await;
            }
            None => std::future::pending().await,
        }
    }

    /// The identity in its certificate, at this time in seconds since 1970.
    pub(crate) fn certified(&self, now: u64) -> Result<Arc<Identity>, IdentityError> {
        let certificate = self.certificate.as_ref().ok_or(CertificateError::Missing)?;
        Ok(certificate.identity(now)?)
    }
}

/// The client's data in a certificate.
#[derive(Debug)]
struct ClientCertificate {
    identity: Result<Arc<Identity>, CertificateError>,
    /// The last second in which it is valid, since 1970.
    not_after: u64,
}

impl ClientCertificate {
    fn read(der: &[u8], user: CertificateName) -> Self {
        let Ok(certificate) = Certificate::from_der(der) else {
            return Self {
                identity: Err(CertificateError::Malformed),
                not_after: u64::MAX,
            };
        };
        let validity = certificate.tbs_certificate().validity();
        Self {
            identity: identity_of(&certificate, user).map(Arc::new),
            not_after: validity.not_after.to_unix_duration().as_secs(),
        }
    }

    fn identity(&self, now: u64) -> Result<Arc<Identity>, CertificateError> {
        if now > self.not_after {
            return Err(CertificateError::Expired);
        }
        self.identity.clone()
    }
}

fn identity_of(
    certificate: &Certificate,
    user: CertificateName,
) -> Result<Identity, CertificateError> {
    let items = |of| {
        let names = subject_names(certificate, of)?;
        value::distinct_items(names.iter().map(String::as_str), ITEMS_MAX)
            .map_err(|_| CertificateError::InvalidItems)
    };
    Ok(Identity {
        teams: items(ORGANIZATION_NAME)?.into(),
        roles: items(ORGANIZATIONAL_UNIT_NAME)?,
        ..Identity::of(principal(certificate, user)?)
    })
}

fn principal(
    certificate: &Certificate,
    user: CertificateName,
) -> Result<Principal, CertificateError> {
    let names = match user {
        CertificateName::CommonName => subject_names(certificate, COMMON_NAME)?,
        CertificateName::Uri | CertificateName::Email | CertificateName::Dns => {
            alternative_names(certificate, user)?
        }
    };
    match &*names {
        [] => Err(CertificateError::UserMissing),
        [name] => value::principal(name).ok_or(CertificateError::UserInvalid),
        _ => Err(CertificateError::SeveralUsers),
    }
}

/// The values of this attribute of the subject, in their order.
fn subject_names(
    certificate: &Certificate,
    attribute: ObjectIdentifier,
) -> Result<Vec<String>, CertificateError> {
    let subject = certificate.tbs_certificate().subject();
    let found = subject.iter().filter(|entry| entry.oid == attribute);
    found
        .map(|entry| {
            let text = entry.value.decode_as::<DirectoryString>();
            let text = text.map_err(|_| CertificateError::Malformed)?;
            Ok(text.value().into_owned())
        })
        .collect()
}

/// The alternative names of this kind, in their order.
fn alternative_names(
    certificate: &Certificate,
    kind: CertificateName,
) -> Result<Vec<String>, CertificateError> {
    let extension = certificate
        .tbs_certificate()
        .get_extension::<SubjectAltName>()
        .map_err(|_| CertificateError::Malformed)?;
    let Some((_, SubjectAltName(names))) = extension else {
        return Ok(Vec::new());
    };
    let text = |name: &GeneralName| match (kind, name) {
        (CertificateName::Uri, GeneralName::UniformResourceIdentifier(text))
        | (CertificateName::Email, GeneralName::Rfc822Name(text))
        | (CertificateName::Dns, GeneralName::DnsName(text)) => Some(text.as_str().to_owned()),
        _ => None,
    };
    Ok(names.iter().filter_map(text).collect())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

    use base64::Engine as _;
    use base64::engine::general_purpose::STANDARD;

    use super::*;

    /// A self-signed certificate of O=dev, O=ops, OU=build, OU=build, CN=Zoë, with one URI, one e-mail address and two DNS
    /// names.
    const CERTIFICATE: &str = "\
    MIIBvTCCAW+gAwIBAgIBATAFBgMrZXAwSzEMMAoGA1UECgwDZGV2MQwwCgYDVQQKDANvcHMxDjAMBgNVBAsMBWJ1aWxkMQ4wDAYD\
    VQQLDAVidWlsZDENMAsGA1UEAwwEWm/DqzAeFw0yNjExMjMyMjUyMzVaFw0yNjExMjQyMjUyMzVaMEsxDDAKBgNVBAoMA2RldjEM\
    MAoGA1UECgwDb3BzMQ4wDAYDVQQLDAVidWlsZDEOMAwGA1UECwwFYnVpbGQxDTALBgNVBAMMBFpvw6swKjAFBgMrZXADIQAkbG35\
    EMOS8rU0TKxdWBx3Wug5yGOdth9SkznWd7VM06N4MHYwVQYDVR0RBE4wTIYZc3BpZmZlOi8vY29ycC5leGFtcGxlL2FkYYEQYWRh\
    QGNvcnAuZXhhbXBsZYIQYWRhLmNvcnAuZXhhbXBsZYILYWRhLmV4YW1wbGUwHQYDVR0OBBYEFGLam5fS8s5iCOWyeD+42wW5OURx\
    MAUGAytlcANBAFH4kXDwS879ee1jgd6XueQZte/5BFzET8fZhhYfFZvCRmosZBsmCu6LDh3KmcpaL8LQ0rhIgKLXKU7x4C3YKQ8=";
    /// The last second in which it is valid.
    const NOT_AFTER: u64 = 1_795_560_755;

    fn certified(
        der: &[u8],
        user: CertificateName,
        now: u64,
    ) -> Result<Arc<Identity>, IdentityError> {
        let address = SocketAddr::from(([127, 0, 0, 1], 4_000));
        Peer::at(address).with_certificate(der, user).certified(now)
    }

    #[test]
    fn names() {
        let der = STANDARD.decode(CERTIFICATE).unwrap();
        for (user, expected) in [
            (CertificateName::CommonName, Ok("Zoë")),
            (CertificateName::Uri, Ok("spiffe://corp.example/ada")),
            (CertificateName::Email, Ok("ada@corp.example")),
            (
                CertificateName::Dns,
                Err(CertificateError::SeveralUsers.into()),
            ),
        ] {
            let found = certified(&der, user, NOT_AFTER);
            let principal = found.as_ref().map(|caller| caller.principal.as_str());
            assert_eq!(principal.map_err(|error| *error), expected, "{user:?}");
        }
        let caller = certified(&der, CertificateName::Uri, NOT_AFTER).unwrap();
        assert_eq!(*caller.teams, ["dev", "ops"]);
        assert_eq!(caller.roles, ["build"]);
    }

    #[test]
    fn no_request_after_the_end() {
        let der = STANDARD.decode(CERTIFICATE).unwrap();
        let late = certified(&der, CertificateName::Uri, NOT_AFTER + 1);
        assert_eq!(late, Err(CertificateError::Expired.into()));
    }

    #[test]
    fn a_certificate_that_cannot_be_read_is_nobodys() {
        let mut der = STANDARD.decode(CERTIFICATE).unwrap();
        der.truncate(der.len() - 1);
        let found = certified(&der, CertificateName::Uri, 0);
        assert_eq!(found, Err(CertificateError::Malformed.into()));
        let none = Peer::at(SocketAddr::from(([127, 0, 0, 1], 4_000))).certified(0);
        assert_eq!(none, Err(CertificateError::Missing.into()));
    }
}
