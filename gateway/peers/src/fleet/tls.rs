//! TLS between the gateways of a fleet: certificates that only holders of a fleet key can make.
//!
//! Each key of the ring yields one certificate authority, the same at every gateway. At start, a gateway issues itself
//! a certificate with the authority of the first key; it accepts certificates of all. Nothing is written to disk, and
//! certificates do not expire in practice, so clocks need not agree.
//!
//! Invariant: both ends of an established connection have a fleet key, and the server is the intended boot.

use std::fmt;
use std::sync::Arc;

use mooring_session::names::WorkerId;
use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, IsCa, Issuer, KeyUsagePurpose,
    PKCS_ED25519, PublicKeyData, SerialNumber, SignatureAlgorithm, SigningKey,
};
use ring::rand::SystemRandom;
use ring::signature::{Ed25519KeyPair, KeyPair as _};
use rustls::pki_types::PrivatePkcs8KeyDer;
use rustls::server::{VerifierBuilderError, WebPkiClientVerifier};
use rustls::version::TLS13;
use rustls::{ClientConfig, RootCertStore, ServerConfig};

use super::keys::KeyRing;
use super::mac::Purpose;

/// The only application protocol between gateways.
const ALPN: &[u8] = b"http/1.1";

/// TLS configuration of one gateway, as server and as client.
pub struct FleetTls {
    worker: WorkerId,
    server: Arc<ServerConfig>,
    client: Arc<ClientConfig>,
}

/// Why TLS could not be set up.
#[derive(Debug, thiserror::Error)]
pub enum FleetTlsError {
    /// A key or certificate could not be created.
    #[error("cannot make a certificate for the fleet")]
    Certificate(#[from] rcgen::Error),
    /// The system has no random numbers, or the private key was rejected.
    #[error("cannot make a private key for the fleet")]
    PrivateKey,
    /// The certificates are unusable.
    #[error("cannot configure TLS between gateways")]
    Config(#[from] rustls::Error),
    /// The certificates cannot be used for verification.
    #[error("cannot verify certificates of the fleet")]
    Verifier(#[from] VerifierBuilderError),
}

impl FleetTls {
    /// Issues a certificate for this boot of a gateway.
    ///
    /// # Errors
    /// See [`FleetTlsError`].
    pub fn new(worker: &WorkerId, ring: &KeyRing) -> Result<Self, FleetTlsError> {
        let mut roots = RootCertStore::empty();
        let mut issuer = None;
        for seed in ring.derive(Purpose::PeerAuthority) {
            let (params, key) = authority(&seed)?;
            roots.add(params.self_signed(&key)?.der().clone())?;
            // The first key signs.
            issuer.get_or_insert_with(|| Issuer::new(params, key));
        }
        let issuer = issuer.ok_or(FleetTlsError::PrivateKey)?;
        let random = SystemRandom::new();
        let private_key =
            Ed25519KeyPair::generate_pkcs8(&random).map_err(|_| FleetTlsError::PrivateKey)?;
        let key = Ed25519KeyPair::from_pkcs8(private_key.as_ref())
            .map_err(|_| FleetTlsError::PrivateKey)?;
        let mut params = CertificateParams::new(vec![tls_name(worker)])?;
        params.distinguished_name = common_name(worker.as_str());
        params.serial_number = Some(SerialNumber::from(rand::random::<u64>()));
        let chain = vec![params.signed_by(&Ed25519(key), &issuer)?.der().clone()];
        let private_key = PrivatePkcs8KeyDer::from(private_key.as_ref().to_vec());

        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let roots = Arc::new(roots);
        let verifier =
            WebPkiClientVerifier::builder_with_provider(Arc::clone(&roots), Arc::clone(&provider))
                .build()?;
        let mut server = ServerConfig::builder_with_provider(Arc::clone(&provider))
            .with_protocol_versions(&[&TLS13])?
            .with_client_cert_verifier(verifier)
            .with_single_cert(chain.clone(), private_key.clone_key().into())?;
        let mut client = ClientConfig::builder_with_provider(provider)
            .with_protocol_versions(&[&TLS13])?
            .with_root_certificates(roots)
            .with_client_auth_cert(chain, private_key.into())?;
        server.alpn_protocols = vec![ALPN.to_vec()];
        client.alpn_protocols = vec![ALPN.to_vec()];
        Ok(Self {
            worker: worker.clone(),
            server: Arc::new(server),
            client: Arc::new(client),
        })
    }

    /// The configuration for accepting connections of peers.
    pub(crate) fn server(&self) -> Arc<ServerConfig> {
        Arc::clone(&self.server)
    }

    /// The configuration for connecting to a peer by its [`tls_name`].
    pub(crate) fn client(&self) -> Arc<ClientConfig> {
        Arc::clone(&self.client)
    }
}

impl fmt::Debug for FleetTls {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "FleetTls({})", self.worker)
    }
}

/// The DNS name in the certificate of one boot of a gateway: a digest of its worker id, boot id included, since worker
/// ids may contain characters that DNS names cannot.
pub(crate) fn tls_name(worker: &WorkerId) -> String {
    let mut name = mooring_secrets::digest::hex(worker.as_str().as_bytes());
    // A label has at most 63 characters. 128 bits suffice: a second id with this digest cannot be found.
    name.truncate(32);
    name.push_str(".peer.mooring");
    name
}

/// The certificate authority of a key. Its name contains a digest of its public key, so that authorities of different
/// keys differ.
fn authority(seed: &[u8; 32]) -> Result<(CertificateParams, Ed25519), FleetTlsError> {
    let key = Ed25519KeyPair::from_seed_unchecked(seed).map_err(|_| FleetTlsError::PrivateKey)?;
    let mut digest = mooring_secrets::digest::hex(key.public_key().as_ref());
    digest.truncate(16);
    let mut params = CertificateParams::default();
    params.distinguished_name = common_name(&format!("mooring fleet {digest}"));
    params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign];
    params.serial_number = Some(SerialNumber::from(1));
    Ok((params, Ed25519(key)))
}

fn common_name(text: &str) -> DistinguishedName {
    let mut name = DistinguishedName::new();
    name.push(DnType::CommonName, text);
    name
}

/// A signing key for certificates. It has no `Debug`.
struct Ed25519(Ed25519KeyPair);

impl PublicKeyData for Ed25519 {
    fn der_bytes(&self) -> &[u8] {
        self.0.public_key().as_ref()
    }

    fn algorithm(&self) -> &'static SignatureAlgorithm {
        &PKCS_ED25519
    }
}

impl SigningKey for Ed25519 {
    fn sign(&self, message: &[u8]) -> Result<Vec<u8>, rcgen::Error> {
        Ok(self.0.sign(message).as_ref().to_vec())
    }
}

#[cfg(test)]
mod tests;
