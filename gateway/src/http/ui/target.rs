//! Where a person goes after signing in: the page that was asked for, and never another site.

use url::form_urlencoded;

/// Where a person goes who was going nowhere.
const START: &str = "/ui";
/// Longest path that is kept over a sign-in.
const TARGET_BYTES_MAX: usize = 512;

/// The path of the sign-in page for a person who was going to this one.
pub(super) fn sign_in_path(target: &str) -> String {
    match target_after(Some(target)) {
        START => "/ui/sign-in".to_owned(),
        target => {
            let to: String = form_urlencoded::byte_serialize(target.as_bytes()).collect();
            format!("/ui/sign-in?to={to}")
        }
    }
}

/// Where a person goes after the sign-in: a path of the page, or its start. No other site can be named.
pub(super) fn target_after(target: Option<&str>) -> &str {
    let is_of_page = |target: &&str| {
        let is_below = target
            .strip_prefix(START)
            .is_some_and(|rest| rest.is_empty() || rest.starts_with(['/', '?']));
        is_below
            && target.len() <= TARGET_BYTES_MAX
            && !target.starts_with("/ui/sign-")
            && target
                .bytes()
                .all(|byte| byte.is_ascii_graphic() && byte != b'\\')
    };
    target.filter(is_of_page).unwrap_or(START)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sign_in_leads_to_the_page_and_nowhere_else() {
        for target in ["/ui", "/ui/sessions?user=a%40b", "/ui?x"] {
            assert_eq!(target_after(Some(target)), target);
        }
        for target in [
            "//evil.example",
            "https://evil.example/ui",
            "/uix",
            "/ui\\@evil",
            "/ui/ x",
            "/ui/sign-in",
            "/mcp",
            "",
        ] {
            assert_eq!(target_after(Some(target)), "/ui", "{target}");
        }
        assert_eq!(
            target_after(Some(&format!("/ui/{}", "x".repeat(512)))),
            "/ui"
        );
        assert_eq!(
            sign_in_path("/ui/runs?a=1&b"),
            "/ui/sign-in?to=%2Fui%2Fruns%3Fa%3D1%26b"
        );
    }
}
