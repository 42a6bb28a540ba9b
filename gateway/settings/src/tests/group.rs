//! Servers of kind `group`: their members are other servers that are there, each once.

use super::refused::check_refused;
use super::*;

const OTHERS: &str = "[[servers]]\nid = \"tools\"\naffinity = \"off\"\ninstances = [\"http://a/\"]\n\
                      [[servers]]\nid = \"sandbox\"\nkind = \"code\"\n\
                      [[servers]]\nid = \"files\"\nkind = \"stdio\"\ncommand = [\"npx\"]\n";

/// The other servers and, before them, one group with these fields.
fn file(fields: &str) -> String {
    format!("[[servers]]\nid = \"all\"\nkind = \"group\"\n{fields}\n{OTHERS}")
}

#[track_caller]
fn group(fields: &str) -> GroupServerSettings {
    match &settings(&file(fields), &[]).server("all").unwrap().kind {
        ServerKind::Group(group) => group.clone(),
        other => panic!("it is of kind {}", other.name()),
    }
}

#[test]
fn members_are_servers_of_every_other_kind() {
    let all = group("members = [\"tools\", \"sandbox\", \"files\"]");
    let members: Vec<&str> = all.members.iter().map(ServerId::as_str).collect();
    assert_eq!(members, ["tools", "sandbox", "files"], "as written");
    assert_eq!(all.names, GroupNames::Prefixed);

    let few = group("members = [\"files\"]\nunique_names = true");
    assert_eq!(few.members.len(), 1);
    assert_eq!(few.names, GroupNames::Unchanged);
}

#[test]
fn bad_groups_are_refused() {
    #[track_caller]
    fn check(fields: &str, parts: &[&str]) {
        check_refused(&file(fields), &[], parts);
    }
    check("", &["servers[0].members", "it is missing"]);
    check("members = []", &["the group has no member"]);
    check("members = [\"a__b\"]", &["= \"a__b\"", "\"__\" separates"]);
    check(
        "members = [\"tools\", \"tools\"]",
        &["= \"tools\"", "is a duplicate"],
    );
    check("members = [\"all\"]", &["= \"all\"", "the group itself"]);
    check(
        "members = [\"tool\", \"files\"]",
        &[
            "servers[0].members = \"tool\"  (m.toml, line 4)",
            "there is no server of this id; there are \"tools\", \"sandbox\" or \"files\"",
        ],
    );
    let many: Vec<String> = (0..33).map(|number| format!("\"s{number}\"")).collect();
    check(
        &format!("members = [{}]", many.join(",")),
        &["33 items, more than 32"],
    );
    check(
        "members = [\"inner\"]\n[[servers]]\nid = \"inner\"\nkind = \"group\"\nmembers = [\"files\"]",
        &["servers[0].members = \"inner\"", "this is a group"],
    );
    for field in ["affinity = \"on\"", "concurrency = \"serial\""] {
        check(
            &format!("members = [\"tools\"]\n{field}"),
            &["only a server of kind \"http\", \"stdio\" or \"sse\" has this field"],
        );
    }
    check_refused(
        "[[servers]]\nid = \"all\"\nkind = \"group\"\nmembers = [\"tools\"]",
        &[],
        &["there is no server of this id, and no other that could be a member"],
    );
}

#[test]
fn a_member_that_was_refused_itself_is_not_missed_as_well() {
    check_refused(
        "[[servers]]\nid = \"all\"\nkind = \"group\"\nmembers = [\"tools\"]\n\
         [[servers]]\ninstances = [\"http://a/\"]\n",
        &[],
        &["servers[1].id", "it is missing"],
    );
}

#[test]
fn operators_tools_are_in_no_group_and_leave_the_default_server_as_it_is() {
    let admin = "[[servers]]\nid = \"ops\"\nkind = \"admin\"\n";
    check_refused(
        &format!("{}{admin}", file("members = [\"tools\", \"ops\"]")),
        &[],
        &["servers[0].members = \"ops\"", "this is of kind admin"],
    );
    let one = "[[servers]]\nid = \"tools\"\ninstances = [\"http://a/\"]\n";
    let of = |text: &str| settings(text, &[]).default_server;
    assert_eq!(of(&format!("{one}{admin}")), of(one));
    assert_eq!(of(admin), None);
    check_refused(
        &format!("{admin}instances = [\"http://a/\"]"),
        &[],
        &["servers[0].instances", "only a server of kind"],
    );
}
