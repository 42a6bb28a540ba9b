//! Values that are wrong are refused before anything changes in a cluster, with a sentence that names the value.

use anyhow::ensure;

use super::{profile, render};

/// A profile, what is changed in it, and what the refusal says.
const WRONG: &[(&str, &str, &[&str])] = &[
    (
        "one-gateway",
        "replicaCount=three",
        &["/replicaCount", "got string, want integer"],
    ),
    ("one-gateway", "replicas=3", &["'replicas' not allowed"]),
    (
        "one-gateway",
        "settings.listen.adress=x",
        &["/settings/listen", "'adress' not allowed"],
    ),
    (
        "one-gateway",
        "settings.listen.address=0.0.0.0:1",
        &["/settings/listen", "'address' not allowed"],
    ),
    (
        "one-gateway",
        "settings.affinity.ttl_seconds=0",
        &["/settings/affinity/ttl_seconds", "minimum"],
    ),
    (
        "one-gateway",
        "settings.auth.mode=ldap",
        &["/settings/auth/mode", "'jwt'"],
    ),
    (
        "one-gateway",
        "settings.servers[0].kind=ftp",
        &["/settings/servers/0/kind", "'stdio'"],
    ),
    (
        "one-gateway",
        "volume.accessMode=Everywhere",
        &["/volume/accessMode", "'ReadWriteMany'"],
    ),
    (
        "one-gateway",
        "replicaCount=2",
        &["2 gateways need a Redis"],
    ),
    (
        "one-gateway",
        "settings.auth.mode=none",
        &["settings.auth.mode is not set"],
    ),
    (
        "one-gateway",
        "settings.servers=null",
        &["settings.servers is empty"],
    ),
    (
        "one-gateway",
        "apiKeys.existingSecret=",
        &["apiKeys.existingSecret is empty"],
    ),
    (
        "fleet",
        "apiKeys.existingSecret=keys",
        &["apiKeys.existingSecret is \"keys\"", "\"jwt\""],
    ),
    (
        "fleet",
        "settings.store.url=redis://r",
        &["settings.store.url names a store"],
    ),
    ("fleet", "ingress.host=", &["ingress.host is empty"]),
    (
        "code",
        "volume.enabled=false",
        &["2 gateways with a server of kind code need a volume"],
    ),
    (
        "code",
        "volume.accessMode=ReadWriteOnce",
        &["volume.accessMode is ReadWriteOnce"],
    ),
    (
        "everything",
        "autoscaling.minReplicas=30",
        &["minReplicas is 30, more than"],
    ),
];

#[test]
fn wrong_values_are_refused_with_a_sentence_that_names_them() -> anyhow::Result<()> {
    let texts: Vec<String> = WRONG
        .iter()
        .map(|(name, _, _)| profile(name))
        .collect::<Result<_, _>>()?;
    let changes: Vec<[&str; 1]> = WRONG.iter().map(|(_, change, _)| [*change]).collect();
    let requests: Vec<(&str, &[&str])> = (texts.iter().zip(&changes))
        .map(|(text, change)| (text.as_str(), change.as_slice()))
        .collect();
    for ((name, change, expected), reply) in WRONG.iter().zip(render(&requests)?) {
        let Some(refusal) = reply.refusal() else {
            anyhow::bail!("{name} with {change} was rendered");
        };
        for part in *expected {
            ensure!(
                refusal.contains(part),
                "{name} with {change}: {part:?} is not in {refusal}"
            );
        }
    }
    Ok(())
}
