//! What all requests to the page share.

use std::time::Duration;

use super::csrf::FormTokens;
use super::live::LiveConnections;
use super::sign_in::SealedCookies;
use mooring_identity::OpenIdClient;
use mooring_peers::fleet::{KeyRing, SealKey};
use mooring_settings::UiSettings;
use mooring_upstream::ClientError;

/// The operators' page of this gateway.
#[derive(Debug)]
pub struct OperatorPage {
    /// Seals who has signed in.
    pub(super) cookies: SealedCookies,
    /// The tokens of forms.
    pub(super) form_tokens: FormTokens,
    /// The OpenID provider; none if people do not sign in there.
    pub(super) openid: Option<OpenIdClient>,
    /// How long people stay signed in.
    pub(super) sign_in_lifetime: Duration,
    /// The open streams of events.
    pub(super) live: LiveConnections,
}

impl OperatorPage {
    /// The page of these settings. Sign-ins are sealed with the keys of the fleet; without a fleet, or without its keys, this
    /// process has a key of its own.
    ///
    /// # Errors
    /// The OpenID provider is reached over TLS, and there are no root certificates.
    pub(crate) fn new(settings: &UiSettings, ring: Option<&KeyRing>) -> Result<Self, ClientError> {
        let seal = match ring {
            Some(ring) => SealKey::of_page(ring),
            None => SealKey::of_page(&KeyRing::random()),
        };
        let provider = settings.sign_in_provider.clone();
        Ok(Self {
            cookies: SealedCookies::new(seal.clone()),
            form_tokens: FormTokens::new(seal),
            openid: provider.map(OpenIdClient::new).transpose()?,
            sign_in_lifetime: settings.sign_in_lifetime,
            live: LiveConnections::default(),
        })
    }
}
