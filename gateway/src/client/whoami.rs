//! `mooring whoami`

use serde_json::Value;

use super::gateway::Gateway;
use super::output::{ClientError, CommandOutput, printed};
use super::table::printable;

/// The lists of a caller, in the order in which they are shown.
const LISTS: [&str; 5] = ["teams", "roles", "scopes", "rights", "servers"];

pub(super) async fn run(gateway: &Gateway, is_json: bool) -> Result<CommandOutput, ClientError> {
    let caller = gateway.get_root("whoami").await?;
    Ok(printed(&caller, is_json, text))
}

fn text(caller: &Value) -> String {
    let field = |name: &str| caller.get(name).and_then(Value::as_str).unwrap_or_default();
    let (user, digest) = (printable(field("user")), field("digest"));
    let mut text = format!("user: {user}\ndigest: {}\n", printable(digest));
    for name in LISTS {
        let items = caller.get(name).and_then(Value::as_array);
        let items = items.into_iter().flatten().filter_map(Value::as_str);
        let items: Vec<String> = items.map(printable).collect();
        let items = match items.is_empty() {
            true => "none".to_owned(),
            false => items.join(", "),
        };
        text.push_str(&format!("{name}: {items}\n"));
    }
    text
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_caller_is_shown_with_what_it_lacks() {
        let caller = json!({"user": "zoe", "digest": "0123456789abcdef", "teams": ["marketing", "web"],
            "roles": [], "scopes": [], "rights": [], "servers": ["tools"]});
        let expected = "user: zoe\ndigest: 0123456789abcdef\nteams: marketing, web\nroles: none\nscopes: none\n\
                        rights: none\nservers: tools\n";
        assert_eq!(text(&caller), expected);
    }
}
