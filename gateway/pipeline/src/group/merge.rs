//! Merging the members' lists into the group's.
//!
//! Invariants: every name in the merged list resolves to the member whose entry it is, and the entries are otherwise
//! byte for byte those of the members, member by member in the order of the settings.

use std::collections::HashMap;
use std::collections::hash_map;

use super::names;
use mooring_protocol::Listing;
use mooring_protocol::listing::Entry;
use mooring_settings::GroupNames;

/// The `_meta` key of a result under which a group lists the members that are missing.
pub(crate) const MISSING_KEY: &str = "mooring/missing";

/// One member's list.
#[derive(Debug)]
pub(crate) struct MemberList {
    /// The member's index.
    pub(crate) member: usize,
    /// The entries of all its pages.
    pub(crate) entries: Vec<Entry>,
}

/// The merged list.
#[derive(Debug)]
pub(crate) struct MergedLists {
    /// The JSON text of the result.
    pub(crate) result: String,
    /// The member's index for each name in the group.
    pub(crate) places: HashMap<Box<str>, usize>,
    /// Number of entries left out because their name resolves to another member.
    pub(crate) shadowed: usize,
}

/// How the entries of this list are named: a group does not change URIs of resources.
const fn naming(listing: Listing, names: GroupNames) -> GroupNames {
    match listing {
        Listing::Tools | Listing::Prompts => names,
        Listing::Resources | Listing::Templates => GroupNames::Unchanged,
    }
}

/// Merges the lists of the members; `servers` are their ids in order.
pub(crate) fn merge(
    listing: Listing,
    group_names: GroupNames,
    servers: &[&str],
    lists: &[MemberList],
    missing: &[&str],
) -> MergedLists {
    let naming = naming(listing, group_names);
    let mut places = HashMap::new();
    let mut shadowed = 0_usize;
    let mut result = format!(r#"{{"{}":["#, listing.key());
    let mut separator = "";
    for (list, entry) in lists
        .iter()
        .flat_map(|list| list.entries.iter().map(move |entry| (list, entry)))
    {
        let Some((name, text)) = name_in_group(naming, servers, list.member, entry) else {
            shadowed = shadowed.saturating_add(1);
            continue;
        };
        match places.entry(name.into_boxed_str()) {
            hash_map::Entry::Occupied(first) if *first.get() != list.member => {
                shadowed = shadowed.saturating_add(1);
                continue;
            }
            // A member that lists one name twice is relayed unchanged.
            hash_map::Entry::Occupied(_) => {}
            hash_map::Entry::Vacant(place) => {
                place.insert(list.member);
            }
        }
        result.push_str(separator);
        result.push_str(&text);
        separator = ",";
    }
    result.push(']');
    if !missing.is_empty() {
        result.push_str(&format!(r#","_meta":{}"#, missing_meta(missing)));
    }
    result.push('}');
    MergedLists {
        result,
        places,
        shadowed,
    }
}

/// The `_meta` that lists the missing members.
pub(crate) fn missing_meta(missing: &[&str]) -> serde_json::Value {
    serde_json::json!({ MISSING_KEY: missing })
}

/// The entry's name in the group, and its text with that name; none if the name would resolve to another member.
fn name_in_group<'e>(
    naming: GroupNames,
    servers: &[&str],
    member: usize,
    entry: &'e Entry,
) -> Option<(String, std::borrow::Cow<'e, str>)> {
    match naming {
        GroupNames::Unchanged => Some((entry.name.to_string(), entry.text().into())),
        GroupNames::Prefixed => {
            let name = names::prefixed(servers.get(member)?, &entry.name);
            let (led_to, _) = names::split(servers.iter().copied(), &name)?;
            let text = entry.renamed(&name).filter(|_| led_to == member)?;
            Some((name, text.into()))
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "test code")]
    use super::*;
    use mooring_protocol::listing::Page;

    fn list(listing: Listing, member: usize, json: &str) -> MemberList {
        let text = format!(r#"{{"{}":{json}}}"#, listing.key());
        let entries = Page::read(listing, &text).unwrap().entries;
        MemberList { member, entries }
    }

    #[test]
    fn tools_get_their_servers_name_and_keep_all_else() {
        let lists = [
            list(
                Listing::Tools,
                0,
                r#"[{"x-vendor":[1.0e0],"name":"echo"},{"name":"__a\"b","inputSchema":{"name":"q"}}]"#,
            ),
            list(Listing::Tools, 1, r#"[{"name":"echo"}]"#),
        ];
        let merged = merge(
            Listing::Tools,
            GroupNames::Prefixed,
            &["one", "two"],
            &lists,
            &[],
        );
        assert_eq!(
            merged.result,
            concat!(
                r#"{"tools":[{"x-vendor":[1.0e0],"name":"one__echo"},"#,
                r#"{"name":"one____a\"b","inputSchema":{"name":"q"}},{"name":"two__echo"}]}"#
            )
        );
        assert_eq!(merged.places["two__echo"], 1);
        assert_eq!(merged.shadowed, 0);
    }

    #[test]
    fn of_two_equal_names_the_first_members_wins() {
        let lists = [
            list(
                Listing::Prompts,
                0,
                r#"[{"name":"a","n":1},{"name":"a","n":2}]"#,
            ),
            list(Listing::Prompts, 2, r#"[{"name":"a","n":3},{"name":"b"}]"#),
        ];
        let merged = merge(
            Listing::Prompts,
            GroupNames::Unchanged,
            &["x", "y", "z"],
            &lists,
            &["y"],
        );
        assert_eq!(
            merged.result,
            concat!(
                r#"{"prompts":[{"name":"a","n":1},{"name":"a","n":2},{"name":"b"}],"#,
                r#""_meta":{"mooring/missing":["y"]}}"#
            )
        );
        assert_eq!((merged.places["a"], merged.places["b"]), (0, 2));
        assert_eq!(merged.shadowed, 1);
    }

    #[test]
    fn a_name_that_leads_to_another_member_is_left_out() {
        let lists = [
            list(Listing::Tools, 0, r#"[{"name":"_x"},{"name":"x"}]"#),
            list(Listing::Tools, 1, r#"[{"name":"x"}]"#),
        ];
        let merged = merge(
            Listing::Tools,
            GroupNames::Prefixed,
            &["a", "a_"],
            &lists,
            &[],
        );
        assert_eq!(
            merged.result,
            r#"{"tools":[{"name":"a__x"},{"name":"a___x"}]}"#
        );
        assert_eq!((merged.shadowed, merged.places["a___x"]), (1, 1));
    }

    #[test]
    fn resources_are_never_renamed() {
        let lists = [
            list(Listing::Resources, 0, r#"[{"uri":"u:1","name":"n"}]"#),
            list(Listing::Resources, 1, r#"[{"uri":"u:1","name":"m"}]"#),
        ];
        let merged = merge(
            Listing::Resources,
            GroupNames::Prefixed,
            &["a", "b"],
            &lists,
            &[],
        );
        assert_eq!(merged.result, r#"{"resources":[{"uri":"u:1","name":"n"}]}"#);
        assert_eq!(merged.places["u:1"], 0);
    }

    #[test]
    fn a_long_list_comes_out_whole_and_in_order() {
        let many: Vec<String> = (0..5_000)
            .map(|number| format!(r#"{{"name":"tool_{number}"}}"#))
            .collect();
        let lists = [0, 1].map(|member| {
            let json = format!("[{}]", many.join(","));
            list(Listing::Tools, member, &json)
        });
        let merged = merge(
            Listing::Tools,
            GroupNames::Prefixed,
            &["a", "b"],
            &lists,
            &[],
        );
        let result: serde_json::Value = serde_json::from_str(&merged.result).unwrap();
        assert_eq!(result["tools"].as_array().unwrap().len(), 10_000);
        assert_eq!(result["tools"][4_999]["name"], "a__tool_4999");
        assert_eq!(result["tools"][5_000]["name"], "b__tool_0");
    }
}
