//! What clients learn of the commands from the server itself.

use mooring_tests::redis::Redis;

use super::resp::{Connection, Value};

/// Name, arity, flags, and whether it names a key.
const COMMANDS: [(&str, i64, &str, bool); 14] = [
    ("session.create", -6, "[write, denyoom, module, fast]", true),
    ("session.touch", -3, "[write, module, fast]", true),
    ("session.get", 2, "[readonly, module, fast]", true),
    ("session.end", -3, "[write, module, fast]", true),
    ("session.kill", 2, "[write, module, fast]", true),
    ("session.route", 5, "[write, module, fast]", true),
    ("session.bind", -11, "[write, denyoom, module, fast]", true),
    ("session.confirm", -6, "[write, module, fast]", true),
    (
        "session.rebind",
        -12,
        "[write, denyoom, module, fast]",
        true,
    ),
    ("session.unbind", -5, "[write, module, fast]", true),
    ("session.stats", 1, "[readonly, module, fast]", false),
    ("worker.beat", -5, "[module, fast]", false),
    ("worker.list", 1, "[readonly, module]", false),
    ("worker.gone", 2, "[module, fast]", false),
];

#[tokio::test]
async fn command_info_tells_arity_flags_and_keys() -> anyhow::Result<()> {
    let redis = Redis::start().await?;
    let mut c = Connection::open(&redis)?;
    for (name, arity, flags, has_key) in COMMANDS {
        let Value::Array(infos) = c.run(&format!("COMMAND INFO {name}"))? else {
            panic!("COMMAND INFO is an array");
        };
        let Value::Array(info) = &infos[0] else {
            panic!("{name} is unknown");
        };
        let key = i64::from(has_key);
        let expected = [
            Value::Text(name.into()).to_string(),
            arity.to_string(),
            flags.to_owned(),
            key.to_string(),
            key.to_string(),
            key.to_string(),
        ];
        let shown: Vec<String> = info.iter().take(6).map(Value::to_string).collect();
        assert_eq!(shown, expected);
        let specs = info[8].to_string();
        assert_eq!(specs.contains("begin_search"), has_key, "{name}: {specs}");
    }
    let Value::Array(all) = c.run("COMMAND LIST FILTERBY MODULE mooring")? else {
        panic!("COMMAND LIST is an array");
    };
    assert_eq!(all.len(), COMMANDS.len());
    Ok(())
}

#[tokio::test]
async fn command_docs_tell_the_grammar() -> anyhow::Result<()> {
    let redis = Redis::start().await?;
    let mut c = Connection::open_resp3(&redis)?;
    for (name, ..) in COMMANDS {
        let docs = c.run(&format!("COMMAND DOCS {name}"))?;
        let docs = docs.field(name);
        assert_eq!(docs.field("since").to_string(), "0.1.0", "{name}");
        assert_eq!(docs.field("module").to_string(), "mooring", "{name}");
        assert!(docs.field("summary").to_string().ends_with('.'), "{name}");
        assert!(
            docs.field("complexity").to_string().starts_with("O("),
            "{name}"
        );
    }
    let docs = c.run("COMMAND DOCS SESSION.CREATE")?;
    let arguments = docs.field("session.create").field("arguments").to_string();
    for part in [
        "{name: key, type: key, key_spec_index: 0}",
        "{name: ms, type: integer, token: TTL}",
        "{name: label, type: block, token: LABEL, flags: [optional, multiple, multiple_token], \
         arguments: [{name: name, type: string}, {name: value, type: string}]}",
        "{name: norevive, type: pure-token, token: NOREVIVE, flags: [optional]}",
    ] {
        assert!(arguments.contains(part), "{part} in {arguments}");
    }
    Ok(())
}

#[tokio::test]
async fn keys_are_found_and_guarded_by_acl() -> anyhow::Result<()> {
    let redis = Redis::start().await?;
    let mut c = Connection::open(&redis)?;
    assert_eq!(
        c.show("COMMAND GETKEYS SESSION.BIND k p s w t LEASE 1000 INSTANCES 1 i")?,
        "[k]"
    );
    assert_eq!(c.show("COMMAND GETKEYS SESSION.ROUTE k p s w")?, "[k]");
    assert!(c.show("COMMAND GETKEYS WORKER.GONE w")?.starts_with("ERR"));
    c.run("ACL SETUSER gateway on >secret ~mcpgw:* +session.create +session.route")?;
    let mut gateway = Connection::open(&redis)?;
    gateway.run("AUTH gateway secret")?;
    assert!(matches!(
        gateway.run("SESSION.CREATE mcpgw:a a zoe TTL 900000")?,
        Value::Array(_)
    ));
    for (command, expected) in [
        ("SESSION.CREATE other:a a zoe TTL 900000", "NOPERM"),
        ("SESSION.ROUTE other:a zoe tools w:1", "NOPERM"),
        ("SESSION.KILL mcpgw:a", "NOPERM"),
        ("SESSION.GET mcpgw:a", "NOPERM"),
    ] {
        let shown = gateway.show(command)?;
        assert!(shown.starts_with(expected), "{command}: {shown}");
    }
    Ok(())
}
