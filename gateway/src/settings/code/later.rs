//! What ContextForge's environment and policies can say and this version does not do. What can do no harm is accepted
//! and said to have no effect; what would promise a protection or a permission that is not there is accepted at the
//! value that tells the truth, and refused at any other.

use crate::settings::knob::{About, Choice, Disclosure, Integer, Knob, List, Named, Switch};
use crate::settings::reader::{Reader, Reason};

const NOT_SERVED: &str = "it is not served by this version of mooring";

const REPLAY_ENABLED: Switch = Switch {
    about: About::new(
        "code.replay_enabled",
        "Whether runs may be replayed. Checked and without effect in this version, which replays none.",
    )
    .seed("CODE_EXECUTION_REPLAY_ENABLED"),
    default: true,
};

const MAX_PERSISTED_OUTPUT_CHARS: Integer = Integer {
    about: About::new(
        "code.max_persisted_output_chars",
        "Most characters of a run's output that its record keeps. Checked and without effect in this version, which \
         keeps no output.",
    )
    .seed("CODE_EXECUTION_MAX_PERSISTED_OUTPUT_CHARS"),
    unit: "characters",
    default: 200_000,
    least: 1000,
    most: 10_000_000,
};

const TOKENIZATION_ENABLED: Switch = Switch {
    about: About::new(
        "code.default_tokenization_enabled",
        "Whether personal data is replaced by tokens. This version cannot, and refuses `true`.",
    )
    .seed("CODE_EXECUTION_DEFAULT_TOKENIZATION_ENABLED"),
    default: false,
};

const TOKENIZATION_TYPES: List = List {
    about: About::new(
        "code.default_tokenization_types",
        "Which personal data is replaced. Checked and without effect in this version, which replaces none.",
    )
    .seed("CODE_EXECUTION_DEFAULT_TOKENIZATION_TYPES")
    .unset("all of them"),
    shape: "email, phone, ssn, credit_card and name",
    items_max: 5,
    item_bytes_max: 16,
    disclosure: Disclosure::Open,
};

const TOKENIZATION_STRATEGY: Choice<()> = Choice {
    about: About::new(
        "code.default_tokenization_strategy",
        "Which way data is replaced. Checked and without effect in this version, which replaces none.",
    )
    .seed("CODE_EXECUTION_DEFAULT_TOKENIZATION_STRATEGY"),
    default: Named {
        name: "bidirectional",
        value: (),
        meaning: "on the way out, and back on the way to a tool",
    },
    others: &[],
    later: &[],
};

/// A knob at both places where it can be written: in `[code]`, and in a server's `sandbox_policy`.
struct Pair<K> {
    standard: K,
    own: K,
}

const fn switches(standard: About, own: About, default: bool) -> Pair<Switch> {
    Pair {
        standard: Switch {
            about: standard,
            default,
        },
        own: Switch {
            about: own,
            default,
        },
    }
}

const fn lists(standard: About, own: About, shape: &'static str) -> Pair<List> {
    const fn list(about: About, shape: &'static str) -> List {
        List {
            about,
            shape,
            items_max: 256,
            item_bytes_max: 512,
            disclosure: Disclosure::Open,
        }
    }
    Pair {
        standard: list(standard, shape),
        own: list(own, shape),
    }
}

const TOOL_CALLS: &str = "Whether code may call the tools of other servers. Checked and without effect in this version, \
                          in which code can call none.";

const ALLOW_TOOL_CALLS: Pair<Switch> = switches(
    About::new("code.default_allow_tool_calls", TOOL_CALLS)
        .seed("CODE_EXECUTION_DEFAULT_ALLOW_TOOL_CALLS"),
    About::new("servers.sandbox_policy.allow_tool_calls", TOOL_CALLS)
        .aliases(&["sandbox_policy.permissions.network.allow_tool_calls"])
        .unset("as `code.default_allow_tool_calls` says"),
    true,
);

const RAW_HTTP: &str = "Whether code may reach public addresses over HTTP. This version gives code no network, and \
                        refuses `true`.";

const ALLOW_RAW_HTTP: Pair<Switch> = switches(
    About::new("code.default_allow_raw_http", RAW_HTTP)
        .seed("CODE_EXECUTION_DEFAULT_ALLOW_RAW_HTTP"),
    About::new("servers.sandbox_policy.allow_raw_http", RAW_HTTP)
        .aliases(&["sandbox_policy.permissions.network.allow_raw_http"])
        .unset("as `code.default_allow_raw_http` says"),
    false,
);

const CONNECTIONS: &str = "How many connections code may have open. This version gives code no network, and refuses \
                           anything but 0.";

const MAX_NETWORK_CONNECTIONS: Pair<Integer> = {
    const fn connections(about: About) -> Integer {
        Integer {
            about,
            unit: "connections",
            default: 0,
            least: 0,
            most: 64,
        }
    }
    Pair {
        standard: connections(
            About::new("code.default_max_network_connections", CONNECTIONS)
                .seed("CODE_EXECUTION_DEFAULT_MAX_NETWORK_CONNECTIONS"),
        ),
        own: connections(
            About::new(
                "servers.sandbox_policy.max_network_connections",
                CONNECTIONS,
            )
            .aliases(&["sandbox_policy.limits.max_network_connections"])
            .unset("as `code.default_max_network_connections` says"),
        ),
    }
};

const READ: &str = "What code and the file tools may read. This version knows the whole four trees and nothing less, and \
                    refuses any other list.";
const READ_SHAPE: &str = "/tools/**, /skills/**, /scratch/** and /results/**, all four";

const READ_PATHS: Pair<List> = lists(
    About::new("code.default_filesystem_read_paths", READ)
        .seed("CODE_EXECUTION_DEFAULT_FILESYSTEM_READ_PATHS")
        .unset("all four"),
    About::new("servers.sandbox_policy.filesystem_read_paths", READ)
        .aliases(&["sandbox_policy.permissions.filesystem.read"])
        .unset("all four"),
    READ_SHAPE,
);

const WRITE: &str = "What code and the file tools may write. This version knows the whole two trees and nothing less, and \
                     refuses any other list.";
const WRITE_SHAPE: &str = "/scratch/** and /results/**, both";

const WRITE_PATHS: Pair<List> = lists(
    About::new("code.default_filesystem_write_paths", WRITE)
        .seed("CODE_EXECUTION_DEFAULT_FILESYSTEM_WRITE_PATHS")
        .unset("both"),
    About::new("servers.sandbox_policy.filesystem_write_paths", WRITE)
        .aliases(&["sandbox_policy.permissions.filesystem.write"])
        .unset("both"),
    WRITE_SHAPE,
);

const DENY: &str = "What code may not see whatever else is allowed. These directories of the machine are never shown to \
                    code; this version denies no others by name.";
const DENY_SHAPE: &str = "/etc/**, /proc/** and /sys/**";

const DENY_PATHS: Pair<List> = lists(
    About::new("code.default_filesystem_deny_paths", DENY)
        .seed("CODE_EXECUTION_DEFAULT_FILESYSTEM_DENY_PATHS")
        .unset("all three"),
    About::new("servers.sandbox_policy.filesystem_deny_paths", DENY)
        .aliases(&["sandbox_policy.permissions.filesystem.deny"])
        .unset("all three"),
    DENY_SHAPE,
);

const TOOL_PATTERNS: &str = "Which tools of other servers code may call. In this version code can call none, and only an \
                             empty list is accepted.";
const TOOL_SHAPE: &str = "nothing: only an empty list";

const TOOL_ALLOW_PATTERNS: Pair<List> = lists(
    About::new("code.default_tool_allow_patterns", TOOL_PATTERNS)
        .seed("CODE_EXECUTION_DEFAULT_TOOL_ALLOW_PATTERNS")
        .unset("empty"),
    About::new("servers.sandbox_policy.tool_allow_patterns", TOOL_PATTERNS)
        .aliases(&["sandbox_policy.permissions.tools.allow"])
        .unset("empty"),
    TOOL_SHAPE,
);

const NOT_TOOL_PATTERNS: &str = "Which tools of other servers code may not call. In this version code can call none, and \
                                 only an empty list is accepted.";

const TOOL_DENY_PATTERNS: Pair<List> = lists(
    About::new("code.default_tool_deny_patterns", NOT_TOOL_PATTERNS)
        .seed("CODE_EXECUTION_DEFAULT_TOOL_DENY_PATTERNS")
        .unset("empty"),
    About::new(
        "servers.sandbox_policy.tool_deny_patterns",
        NOT_TOOL_PATTERNS,
    )
    .aliases(&["sandbox_policy.permissions.tools.deny"])
    .unset("empty"),
    TOOL_SHAPE,
);

/// The rows of `[code]`.
pub(super) const STANDARD_KNOBS: &[Knob] = &[
    Knob::Integer(&MAX_NETWORK_CONNECTIONS.standard),
    Knob::Switch(&ALLOW_RAW_HTTP.standard),
    Knob::Switch(&ALLOW_TOOL_CALLS.standard),
    Knob::List(&READ_PATHS.standard),
    Knob::List(&WRITE_PATHS.standard),
    Knob::List(&DENY_PATHS.standard),
    Knob::List(&TOOL_ALLOW_PATTERNS.standard),
    Knob::List(&TOOL_DENY_PATTERNS.standard),
    Knob::Switch(&TOKENIZATION_ENABLED),
    Knob::List(&TOKENIZATION_TYPES),
    Knob::Choice(&TOKENIZATION_STRATEGY),
    Knob::Switch(&REPLAY_ENABLED),
    Knob::Integer(&MAX_PERSISTED_OUTPUT_CHARS),
];

/// The rows of `sandbox_policy`.
pub(super) const OWN_KNOBS: &[Knob] = &[
    Knob::Integer(&MAX_NETWORK_CONNECTIONS.own),
    Knob::Switch(&ALLOW_RAW_HTTP.own),
    Knob::Switch(&ALLOW_TOOL_CALLS.own),
    Knob::List(&READ_PATHS.own),
    Knob::List(&WRITE_PATHS.own),
    Knob::List(&DENY_PATHS.own),
    Knob::List(&TOOL_ALLOW_PATTERNS.own),
    Knob::List(&TOOL_DENY_PATTERNS.own),
];

/// Checks what `[code]` says of these.
pub(super) fn check_standard(reader: &mut Reader<'_>) {
    reader.switch(&REPLAY_ENABLED);
    reader.integer(&MAX_PERSISTED_OUTPUT_CHARS);
    reader.switch(&ALLOW_TOOL_CALLS.standard);
    reader.choice(&TOKENIZATION_STRATEGY);
    reader.list(&TOKENIZATION_TYPES, |text| {
        let known = ["email", "phone", "ssn", "credit_card", "name"];
        known.contains(&text).then_some(()).ok_or_else(String::new)
    });
    refuse_true(reader, &TOKENIZATION_ENABLED);
    refuse_true(reader, &ALLOW_RAW_HTTP.standard);
    refuse_connections(reader, &MAX_NETWORK_CONNECTIONS.standard);
    refuse_other_trees(reader, &READ_PATHS.standard, &READABLE);
    refuse_other_trees(reader, &WRITE_PATHS.standard, &WRITABLE);
    refuse_unknown_denials(reader, &DENY_PATHS.standard);
    refuse_items(reader, &TOOL_ALLOW_PATTERNS.standard);
    refuse_items(reader, &TOOL_DENY_PATTERNS.standard);
}

/// Checks what a server's `sandbox_policy` says of these.
pub(super) fn check_own(reader: &mut Reader<'_>) {
    reader.switch(&ALLOW_TOOL_CALLS.own);
    refuse_true(reader, &ALLOW_RAW_HTTP.own);
    refuse_connections(reader, &MAX_NETWORK_CONNECTIONS.own);
    refuse_other_trees(reader, &READ_PATHS.own, &READABLE);
    refuse_other_trees(reader, &WRITE_PATHS.own, &WRITABLE);
    refuse_unknown_denials(reader, &DENY_PATHS.own);
    refuse_items(reader, &TOOL_ALLOW_PATTERNS.own);
    refuse_items(reader, &TOOL_DENY_PATTERNS.own);
}

const READABLE: [&str; 4] = ["/tools", "/skills", "/scratch", "/results"];
const WRITABLE: [&str; 2] = ["/scratch", "/results"];
const NEVER_SHOWN: [&str; 3] = ["/etc", "/proc", "/sys"];

fn refuse_true(reader: &mut Reader<'_>, knob: &'static Switch) {
    if reader.switch(knob) {
        reader.refuse(
            &knob.about,
            "true".to_owned(),
            NOT_SERVED.to_owned(),
            "false".to_owned(),
        );
    }
}

fn refuse_connections(reader: &mut Reader<'_>, knob: &'static Integer) {
    let number = reader.integer(knob);
    if number != 0 {
        reader.refuse(
            &knob.about,
            number.to_string(),
            NOT_SERVED.to_owned(),
            "0".to_owned(),
        );
    }
}

fn refuse_items(reader: &mut Reader<'_>, knob: &'static List) {
    reader.list(knob, |_| Err::<(), Reason>(NOT_SERVED.to_owned()));
}

/// The list has to name every one of `trees`, and may do so in any order and spelling.
fn refuse_other_trees(reader: &mut Reader<'_>, knob: &'static List, trees: &[&'static str]) {
    let Some(named) = reader.list(knob, |text| whole_tree(text, trees)) else {
        return;
    };
    let missing = trees.iter().find(|tree| !named.contains(tree));
    if let Some(tree) = missing
        && !reader.was_refused(&knob.about)
    {
        reader.refuse(
            &knob.about,
            format!("{named:?}"),
            format!(
                "{tree} is missing; a part of the trees is not served by this version of mooring"
            ),
            knob.shape.to_owned(),
        );
    }
}

fn refuse_unknown_denials(reader: &mut Reader<'_>, knob: &'static List) {
    reader.list(knob, |text| whole_tree(text, &NEVER_SHOWN));
}

/// Which of `trees` a pattern means, all of it.
fn whole_tree(pattern: &str, trees: &[&'static str]) -> Result<&'static str, Reason> {
    let tree = pattern.trim_end_matches(['*', '/']);
    trees
        .iter()
        .find(|known| **known == tree)
        .copied()
        .ok_or_else(|| NOT_SERVED.to_owned())
}
