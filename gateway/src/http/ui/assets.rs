//! The page's own files, in the binary. A name contains a digest of its content, so that a browser keeps a file for good and
//! never mixes those of two versions.

use std::sync::{Arc, LazyLock};

use axum::Router;
use axum::extract::Path;
use axum::response::Response;
use axum::routing::get;
use http::header::{CACHE_CONTROL, CONTENT_TYPE, ETAG, IF_NONE_MATCH};
use http::{HeaderMap, HeaderValue, StatusCode};
use mooring_secrets::digest;

use crate::http::app::App;
use crate::http::stranger_rate;

/// The part of a digest that is in a name.
const DIGEST_DIGITS: usize = 16;
/// Where the files are.
const FOLDER: &str = "/ui/assets";

/// One file.
struct Asset {
    /// Its name with its digest.
    name: String,
    content_type: &'static str,
    bytes: &'static [u8],
}

/// Every file of the page.
struct Assets([Asset; 5]);

static ASSETS: LazyLock<Assets> = LazyLock::new(|| {
    const JS: &str = "text/javascript; charset=utf-8";
    Assets([
        Asset::new(
            "page",
            "css",
            "text/css; charset=utf-8",
            include_bytes!("assets/page.css"),
        ),
        Asset::new("page", "js", JS, include_bytes!("assets/page.js")),
        Asset::new(
            "htmx-4.0.1",
            "js",
            JS,
            include_bytes!("assets/vendor/htmx-4.0.1.min.js"),
        ),
        Asset::new(
            "hx-sse-4.0.1",
            "js",
            JS,
            include_bytes!("assets/vendor/hx-sse-4.0.1.min.js"),
        ),
        Asset::new(
            "icon",
            "svg",
            "image/svg+xml",
            include_bytes!("assets/icon.svg"),
        ),
    ])
});

impl Asset {
    fn new(stem: &str, kind: &str, content_type: &'static str, bytes: &'static [u8]) -> Self {
        let digest = digest::hex(bytes);
        let digest = digest.get(..DIGEST_DIGITS).unwrap_or(&digest);
        Self {
            name: format!("{stem}.{digest}.{kind}"),
            content_type,
            bytes,
        }
    }

    fn path(&self) -> String {
        format!("{FOLDER}/{}", self.name)
    }
}

/// The paths of the files, as pages refer to them.
pub(super) struct AssetPaths {
    pub(super) style: String,
    pub(super) page_script: String,
    pub(super) htmx: String,
    pub(super) htmx_events: String,
    pub(super) icon: String,
}

/// The paths of the files.
pub(super) fn paths() -> &'static AssetPaths {
    static PATHS: LazyLock<AssetPaths> = LazyLock::new(|| {
        let [style, page_script, htmx, htmx_events, icon] = &ASSETS.0;
        AssetPaths {
            style: style.path(),
            page_script: page_script.path(),
            htmx: htmx.path(),
            htmx_events: htmx_events.path(),
            icon: icon.path(),
        }
    });
    &PATHS
}

/// The routes of the files. They are the same for everybody, signed in or not.
pub(super) fn routes() -> Router<Arc<App>> {
    Router::new().route(&format!("{FOLDER}/{{name}}"), get(asset))
}

async fn asset(Path(name): Path<String>, headers: HeaderMap) -> Response {
    let found = ASSETS.0.iter().find(|asset| asset.name == name);
    let mut reply = Response::default();
    let Some(asset) = found else {
        *reply.status_mut() = StatusCode::NOT_FOUND;
        return reply;
    };
    // A name never has another content.
    let tag = HeaderValue::try_from(format!("\"{}\"", asset.name));
    let is_known = tag.as_ref().is_ok_and(|tag| {
        let mut known = headers.get_all(IF_NONE_MATCH).iter();
        known.any(|known| known == tag)
    });
    match is_known {
        true => *reply.status_mut() = StatusCode::NOT_MODIFIED,
        false => *reply.body_mut() = asset.bytes.into(),
    }
    let headers = reply.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(asset.content_type));
    let forever = HeaderValue::from_static("public, max-age=31536000, immutable");
    headers.insert(CACHE_CONTROL, forever);
    if let Ok(tag) = tag {
        headers.insert(ETAG, tag);
    }
    stranger_rate::public(reply)
}

#[cfg(test)]
mod tests {
    use mooring_secrets::digest;

    /// A script of others is the published one, not one that was changed here.
    #[test]
    fn scripts_of_others_are_as_published() {
        let sums = include_str!("assets/vendor/README.md");
        for (name, bytes) in [
            ("LICENSE", &include_bytes!("assets/vendor/LICENSE")[..]),
            (
                "htmx-4.0.1.min.js",
                include_bytes!("assets/vendor/htmx-4.0.1.min.js"),
            ),
            (
                "hx-sse-4.0.1.min.js",
                include_bytes!("assets/vendor/hx-sse-4.0.1.min.js"),
            ),
        ] {
            let row = format!("| `{name}` | `{}` |", digest::hex(bytes));
            assert!(sums.contains(&row), "{row}");
        }
    }
}
