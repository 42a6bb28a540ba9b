//! The Redis users that docs/operating-redis.md recommends. Invariant: they are parsed from the guide, so the tests
//! cover what operators copy from it.

use crate::paths;

/// One `ACL SETUSER` line of the guide that makes a user.
#[derive(Debug)]
pub struct AdvisedUser {
    /// The user's name.
    pub name: String,
    /// Its password; empty if the line sets none.
    pub password: String,
    /// The whole line, its words separated by single spaces.
    pub line: String,
}

/// All users of the guide, in its order: the gateway, the reaper, the operator.
///
/// # Errors
/// The guide is not there or cannot be read.
pub fn advised_users() -> anyhow::Result<Vec<AdvisedUser>> {
    let guide = std::fs::read_to_string(paths::workspace().join("docs/operating-redis.md"))?;
    let lines = guide
        .lines()
        .filter(|line| line.starts_with("ACL SETUSER ") && line.contains(" on >"));
    let users = lines.map(|line| {
        let words: Vec<&str> = line.split_whitespace().collect();
        let password = words.iter().find_map(|word| word.strip_prefix('>'));
        AdvisedUser {
            name: words.get(2).copied().unwrap_or_default().to_owned(),
            password: password.unwrap_or_default().to_owned(),
            line: words.join(" "),
        }
    });
    Ok(users.collect())
}
