//! The measured operations: commands of the module, and the same steps by other means.

use crate::Presence;
use crate::client::encode;
use crate::scripts::{BIND, CREATE, ROUTE, TOUCH};

const SESSIONS: usize = 1_000;
/// More than fits into the processor's caches.
const MANY_SESSIONS: usize = 100_000;
/// The principals of the many sessions, with ten sessions each.
const MANY_PRINCIPALS: usize = 10_000;
const PRINCIPAL: &str = "zoe@example.org";
const WORKER: &str = "gateway-1:5f3a9c0d";

const KNOWN_EPOCH: &str = "1790000000000000";
const TOKEN: &str = "7c9e6679-7425-40de-944b-e07fc1f90ae7";
const INSTANCE: &str = "http://127.0.0.1:9001/mcp";
const UPSTREAM: &str = "0b1c2d3e4f5061728394a5b6c7d8e9f0";
const LABEL: &str = "3f2a9c0d1b4e5f6a";
const HASH: &str = "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08";
const LIFE: &str = "1 1 active 1790000000000 1790000000000 1790000956250 900000";

/// Plain strings hold what ADR-0042 keeps as JSON.
const JSON: &str = "{\"session_id\":\"3f2a9c0d1b4e5f6a7b8c9d0e\",\"content_hash\":\
    \"9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08\",\
    \"last_used_at\":1790000000.123,\"created_at\":1790000000.123}";

/// One variant of an operation.
#[derive(Clone, Copy)]
pub(crate) struct Variant {
    name: &'static str,
    script: Option<&'static str>,
    target: Target,
    /// The commands of one operation on a session; several are sent in one write.
    operation: Operation,
}

/// The commands of one operation on a session, or on the string that replaces it; a script is called by its digest.
type Operation = fn(session: &Session, script: &str) -> Vec<Vec<String>>;

/// The arguments of an operation.
struct Session {
    key: String,
    principal: String,
}

impl Session {
    fn new(target: Target, number: usize) -> Self {
        Self {
            key: format!("mcpgw:session_affinity:{number:032}"),
            principal: match target {
                Target::ManySessions | Target::ManyCapped => {
                    format!("user-{:04}@example.org", number % MANY_PRINCIPALS)
                }
                _ => PRINCIPAL.to_owned(),
            },
        }
    }

    fn id(&self) -> &str {
        self.key.rsplit(':').next().unwrap_or(&self.key)
    }

    fn create(&self) -> Vec<String> {
        words(&[
            "SESSION.CREATE",
            &self.key,
            self.id(),
            &self.principal,
            "TTL",
            "900000",
            "HASH",
            HASH,
            "LABEL",
            "init",
            LABEL,
        ])
    }

    fn bind(&self) -> Vec<String> {
        words(&[
            "SESSION.BIND",
            &self.key,
            &self.principal,
            "tools",
            WORKER,
            TOKEN,
            "LEASE",
            "5000",
            "INSTANCES",
            "1",
            INSTANCE,
            "UPSTREAM",
            UPSTREAM,
        ])
    }

    fn route(&self) -> Vec<String> {
        words(&["SESSION.ROUTE", &self.key, &self.principal, "tools", WORKER])
    }

    /// A binding as `bind` creates it, but with a known epoch.
    fn set_known_epoch(&self) -> Vec<String> {
        let head =
            format!("bound {KNOWN_EPOCH} 1790000000000 0 0 {INSTANCE} {WORKER} - {UPSTREAM}");
        words(&["HSET", &self.key, "b:tools", &head])
    }

    /// A call of the script of this digest, with the session's key and these arguments.
    fn call(&self, script: &str, arguments: &[&str]) -> Vec<Vec<String>> {
        let mut call = words(&["EVALSHA", script, "1", &self.key]);
        call.extend(words(arguments));
        vec![call]
    }

    /// A transaction that reads these fields and records a use. It cannot branch, so it checks nothing, and records
    /// every use.
    fn read_and_use(&self, fields: &[&str]) -> Vec<Vec<String>> {
        let mut read = words(&["HMGET", &self.key]);
        read.extend(words(fields));
        vec![
            words(&["MULTI"]),
            read,
            words(&["HSET", &self.key, "s", LIFE]),
            words(&["PEXPIRE", &self.key, "1800000"]),
            words(&["EXEC"]),
        ]
    }
}

const fn variant(
    name: &'static str,
    script: Option<&'static str>,
    target: Target,
    operation: Operation,
) -> Variant {
    Variant {
        name,
        script,
        target,
        operation,
    }
}

fn words(words: &[&str]) -> Vec<String> {
    words.iter().map(|word| (*word).to_owned()).collect()
}

/// One table: an operation of the module, its first variant, and the alternatives.
pub(crate) struct Table {
    /// The name of the part on the command line.
    pub(crate) part: &'static str,
    pub(crate) title: &'static str,
    pub(crate) variants: Vec<Variant>,
}

pub(crate) fn tables() -> Vec<Table> {
    let table = |part, title, variants| Table {
        part,
        title,
        variants,
    };
    vec![
        table(
            "create",
            "CREATE of a new session",
            create_variants(Target::New, Target::New),
        ),
        table(
            "found",
            "CREATE of a session that is there",
            create_variants(Target::Created, Target::Strings),
        ),
        table("route", "ROUTE of a bound session", known_variants()),
        table(
            "cold",
            "ROUTE of one of 100,000 whose principals have caps",
            cold_variants(),
        ),
        table("touch", "TOUCH", touch_variants()),
        table("bind", "BIND of an unbound session", bind_variants()),
    ]
}

/// CREATE, by its target: sessions, or strings in place of them.
fn create_variants(sessions: Target, strings: Target) -> Vec<Variant> {
    let variant = |name, script, operation| variant(name, script, sessions, operation);
    vec![
        variant("SESSION.CREATE", None, |session, _| vec![session.create()]),
        Variant {
            name: "SET NX EX",
            script: None,
            target: strings,
            operation: |session, _| vec![words(&["SET", &session.key, JSON, "NX", "EX", "900"])],
        },
        variant("EVALSHA", Some(CREATE), |session, script| {
            let id = session.id();
            session.call(script, &[id, &session.principal, "900000", HASH, LABEL])
        }),
        // It cannot branch, so it sets only missing fields: otherwise it would overwrite a session.
        variant("MULTI, 4 HSETNX, PEXPIRE, HGETALL", None, |session, _| {
            let identity = format!("1790000000000000 0 {} {HASH}", session.id());
            let fields = [
                ("s", LIFE),
                ("p", &session.principal),
                ("id", &identity),
                ("l:init", LABEL),
            ];
            let mut commands = vec![words(&["MULTI"])];
            commands.extend(
                fields.map(|(field, value)| words(&["HSETNX", &session.key, field, value])),
            );
            commands.push(words(&["PEXPIRE", &session.key, "1800000"]));
            commands.push(words(&["HGETALL", &session.key]));
            commands.push(words(&["EXEC"]));
            commands
        }),
    ]
}

/// TOUCH of an active session, the module's variant first.
fn touch_variants() -> Vec<Variant> {
    vec![
        variant("SESSION.TOUCH", None, Target::Sessions, |session, _| {
            vec![words(&["SESSION.TOUCH", &session.key, &session.principal])]
        }),
        variant("EXPIRE", None, Target::Strings, |session, _| {
            vec![words(&["EXPIRE", &session.key, "900"])]
        }),
        variant(
            "EVALSHA",
            Some(TOUCH),
            Target::Sessions,
            |session, script| session.call(script, &[&session.principal]),
        ),
        variant(
            "MULTI, HMGET, HSET, PEXPIRE",
            None,
            Target::Sessions,
            |session, _| session.read_and_use(&["s", "p"]),
        ),
    ]
}

/// BIND of an unbound server, the module's variant first.
fn bind_variants() -> Vec<Variant> {
    vec![
        variant("SESSION.BIND", None, Target::Unbound, |session, _| {
            vec![session.bind()]
        }),
        variant("SET NX EX", None, Target::New, |session, _| {
            vec![words(&["SET", &session.key, INSTANCE, "NX", "EX", "900"])]
        }),
        variant("EVALSHA", Some(BIND), Target::Unbound, |session, script| {
            session.call(
                script,
                &[
                    &session.principal,
                    "tools",
                    WORKER,
                    TOKEN,
                    INSTANCE,
                    UPSTREAM,
                ],
            )
        }),
        // It can neither check nor assign an epoch that only grows.
        variant(
            "MULTI, HMGET, 2 HSETNX",
            None,
            Target::Unbound,
            |session, _| {
                let head = format!("bound 1 1790000000000 0 0 {INSTANCE} {WORKER} - {UPSTREAM}");
                vec![
                    words(&["MULTI"]),
                    words(&["HMGET", &session.key, "s", "p", "id"]),
                    words(&["HSETNX", &session.key, "b:tools", &head]),
                    words(&["HSETNX", &session.key, "k:tools", TOKEN]),
                    words(&["EXEC"]),
                ]
            },
        ),
    ]
}

/// ROUTE with little data in the processor's caches, while the module tracks every use for the caps; then without caps.
fn cold_variants() -> Vec<Variant> {
    let mut variants = route_variants(Target::ManyCapped, Target::ManyStrings);
    let uncapped = Variant {
        name: "SESSION.ROUTE without caps",
        target: Target::ManySessions,
        ..variants[0]
    };
    variants.insert(1, uncapped);
    variants
}

/// ROUTE of a bound session; then of one whose epoch the caller knows.
fn known_variants() -> Vec<Variant> {
    let mut variants = route_variants(Target::Sessions, Target::Strings);
    let known = variant(
        "SESSION.ROUTE, EPOCH",
        None,
        Target::KnownSessions,
        |session, _| {
            let mut route = session.route();
            route.extend(words(&["EPOCH", KNOWN_EPOCH]));
            vec![route]
        },
    );
    variants.insert(1, known);
    variants
}

/// ROUTE of a bound session by its target, the module's variant first.
fn route_variants(sessions: Target, strings: Target) -> Vec<Variant> {
    vec![
        variant("SESSION.ROUTE", None, sessions, |session, _| {
            vec![session.route()]
        }),
        variant("GETEX", None, strings, |session, _| {
            vec![words(&["GETEX", &session.key, "EX", "900"])]
        }),
        variant("EVALSHA", Some(ROUTE), sessions, |session, script| {
            session.call(script, &[&session.principal, "tools", WORKER])
        }),
        variant(
            "MULTI, HMGET, HSET, PEXPIRE",
            None,
            sessions,
            |session, _| session.read_and_use(&["s", "p", "b:tools"]),
        ),
    ]
}

/// SETs of keys that are no sessions.
pub(crate) fn bystander_variants() -> Vec<Variant> {
    let variant = |name, operation| variant(name, None, Target::Others, operation);
    vec![
        variant("SET, under no prefix of the module", |session, _| {
            vec![words(&["SET", session.id(), LABEL])]
        }),
        variant("SET, under the module's prefix", |session, _| {
            vec![words(&["SET", &session.key, LABEL])]
        }),
    ]
}

/// The target of an operation.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Target {
    /// A key that does not exist.
    New,
    /// One of a thousand strings.
    Strings,
    /// One of a thousand bound sessions.
    Sessions,
    /// The same, with a binding of one epoch.
    KnownSessions,
    /// One of a thousand sessions without a binding.
    Created,
    /// An unbound session that is not used twice.
    Unbound,
    /// One of a thousand keys that the operation creates itself.
    Others,
    /// One of very many strings, in random order.
    ManyStrings,
    /// One of very many bound sessions, in random order.
    ManySessions,
    /// The same, and every principal has a cap.
    ManyCapped,
}

impl Target {
    /// The number of the session of the nth operation.
    const fn number(self, nth: usize) -> usize {
        match self {
            Self::New | Self::Unbound => nth,
            // A stride that covers all of them, so that neighbors are not used in a row.
            Self::Strings | Self::Sessions | Self::KnownSessions | Self::Created | Self::Others => {
                nth * 617 % SESSIONS
            }
            Self::ManyStrings | Self::ManySessions | Self::ManyCapped => {
                nth.wrapping_mul(0x9e37_79b9_7f4a_7c15) % MANY_SESSIONS
            }
        }
    }
}

/// All commands of one measurement.
pub(crate) struct Requests {
    turns: Vec<Vec<Batch>>,
    operations: usize,
}

/// The commands that one connection sends before it reads.
pub(crate) struct Batch {
    pub(crate) bytes: Vec<u8>,
    pub(crate) operations: usize,
    pub(crate) replies: usize,
}

impl Requests {
    pub(crate) fn turns(&self) -> &[Vec<Batch>] {
        &self.turns
    }

    pub(crate) const fn operations(&self) -> usize {
        self.operations
    }
}

impl Variant {
    pub(crate) const fn name(&self) -> &'static str {
        self.name
    }

    /// Whether the module is loaded during the measurement. The alternatives are measured without it, so that they do
    /// not pay for its indexes.
    pub(crate) fn presence(&self) -> Presence {
        match self.name.starts_with("SESSION.") {
            true => Presence::Loaded,
            false => Presence::Absent,
        }
    }

    pub(crate) const fn script(&self) -> Option<&'static str> {
        self.script
    }

    /// The commands that prepare the operations.
    pub(crate) fn setup(&self, operations: usize) -> Vec<Vec<String>> {
        let sessions = match self.target {
            Target::New | Target::Others => 0,
            Target::Strings | Target::Sessions | Target::KnownSessions | Target::Created => {
                SESSIONS
            }
            Target::Unbound => operations,
            Target::ManyStrings | Target::ManySessions | Target::ManyCapped => MANY_SESSIONS,
        };
        let mut commands = Vec::new();
        for session in (0..sessions).map(|number| Session::new(self.target, number)) {
            if matches!(self.target, Target::Strings | Target::ManyStrings) {
                commands.push(words(&["SET", &session.key, JSON, "EX", "900"]));
                continue;
            }
            let mut create = session.create();
            if self.target == Target::ManyCapped {
                create.extend(words(&["CAP", "1000"]));
            }
            commands.push(create);
            if !matches!(self.target, Target::Created | Target::Unbound) {
                commands.push(session.bind());
            }
            if self.target == Target::KnownSessions {
                commands.push(session.set_known_epoch());
            }
        }
        commands
    }

    /// `count` operations, `depth` at a time on each of `connections`.
    pub(crate) fn requests(
        &self,
        script: &str,
        connections: usize,
        depth: usize,
        count: usize,
    ) -> Requests {
        let mut next = 0;
        let mut batch = || {
            let mut bytes = Vec::new();
            let mut replies = 0;
            for _ in 0..depth {
                let session = Session::new(self.target, self.target.number(next));
                next += 1;
                for command in (self.operation)(&session, script) {
                    let words: Vec<&str> = command.iter().map(String::as_str).collect();
                    bytes.extend_from_slice(&encode(&words));
                    replies += 1;
                }
            }
            Batch {
                bytes,
                operations: depth,
                replies,
            }
        };
        let turns = count / (connections * depth);
        let turns = (0..turns)
            .map(|_| (0..connections).map(|_| batch()).collect())
            .collect();
        Requests {
            turns,
            operations: next,
        }
    }
}
