//! `[vault]`: the secrets that users store for servers, and where they store them.

use std::path::PathBuf;

use url::Url;

use super::auth::{self, AuthSettings};
use super::paths::{ABSOLUTE_FILE, PATH_BYTES_MAX, absolute_file};
use super::reader::{Reader, text};
use super::rows::settings;
use super::token::{URL_BYTES_MAX, URL_SHAPE, parse_fetched_url};

settings! {
    /// How the secrets of users are kept.
    pub struct VaultSettings {
        /// The file of the keys that encrypt what users store for servers with `servers.vault`, the same at every gateway:
        /// one key on each line, of 64 to 128 hexadecimal digits. The first encrypts, all decrypt. Only the gateway's
        /// user may be able to read it. It is reloaded within five seconds of a change. Required if a server has
        /// `servers.vault`.
        pub keys_file: Option<PathBuf> = Text("vault.keys_file", PATH_BYTES_MAX, ABSOLUTE_FILE, None)
            .unset("refused where a server needs it") => text(absolute_file),
        /// The page on which users store their credential for a server. You provide it; it calls the gateway for the
        /// user. If the user has stored no credential yet, a client that can open URLs for its user (MCP elicitation in
        /// URL mode) gets this one, with the server's id as the parameter `server`.
        pub page_url: Option<Url> = Text("vault.page_url", URL_BYTES_MAX, URL_SHAPE, None)
            .unset("the error only says what to do") => text(parse_fetched_url),
    }
}

impl VaultSettings {
    /// Refuses settings with which users cannot store credentials for this server.
    pub(super) fn check(&self, reader: &mut Reader<'_>, auth: &AuthSettings, server: &str) {
        let file = &Self::keys_file;
        if self.keys_file.is_none() && !reader.was_refused(file) {
            let reason = format!(
                "the credentials that users store for server {server:?} are encrypted with its keys"
            );
            reader.refuse(file, "", reason, ABSOLUTE_FILE);
        }
        if matches!(auth, AuthSettings::None) && !reader.was_refused(&auth::MODE) {
            let reason = format!(
                "each user of server {server:?} has a credential of their own (servers.vault), and all users are one"
            );
            let allowed = "another mode, or servers.headers instead of servers.vault";
            reader.refuse(&auth::MODE, "\"none\"", reason, allowed);
        }
    }
}
