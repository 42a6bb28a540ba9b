//! The names that a group gives to the tools and prompts of its members: `<server>__<name>`.
//!
//! A server's id contains no `__`, but may end with `_`, and a tool's name may begin with one: with members `a` and
//! `a_`, `a___x` is ambiguous. It always resolves to the longest id. Invariant: a name is used only if [`split`]
//! resolves it back to its member.

/// Between the server's id and the name.
const SEPARATOR: &str = "__";

/// The group's name for what a member calls `name`.
pub(crate) fn prefixed(server: &str, name: &str) -> String {
    format!("{server}{SEPARATOR}{name}")
}

/// The server that the name resolves to, as an index, and the name without the prefix.
pub(crate) fn split<'a, 's>(
    servers: impl Iterator<Item = &'s str>,
    name: &'a str,
) -> Option<(usize, &'a str)> {
    servers
        .enumerate()
        .filter_map(|(place, server)| {
            let rest = name.strip_prefix(server)?.strip_prefix(SEPARATOR)?;
            Some((place, rest))
        })
        .min_by_key(|(_, rest)| rest.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(servers: &[&str], name: &str, expected: Option<(usize, &str)>) {
        assert_eq!(split(servers.iter().copied(), name), expected, "{name}");
    }

    #[test]
    fn a_name_leads_back_to_its_server() {
        let servers = ["tools", "tools2", "a.b-c", "x"];
        for (place, server) in servers.iter().enumerate() {
            for name in ["echo", "__echo", "a__b", "", "ä\"\\", "tools__echo"] {
                let long = prefixed(server, name);
                check(&servers, &long, Some((place, name)));
            }
        }
    }

    #[test]
    fn what_no_server_is_named_in_leads_nowhere() {
        for name in ["echo", "tools_echo", "Tools__echo", "__echo", "", "tool__s"] {
            check(&["tools"], name, None);
        }
        check(&[], "tools__echo", None);
    }

    #[test]
    fn of_two_servers_the_one_with_the_longer_id_is_meant() {
        check(&["a", "a_"], "a___x", Some((1, "x")));
        check(&["a_", "a"], "a___x", Some((0, "x")));
        check(&["a", "a_"], "a__x", Some((0, "x")));
    }
}
