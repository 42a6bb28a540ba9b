//! What README and guides print, each read from its page: a settings file that is copied is accepted as it is, and a
//! command of `mooring` names subcommands and options that there are. What a page links to in this repository is there.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::process::Command;

use anyhow::ensure;
use mooring_tests::pages::{Block, blocks_in, inline_code};
use mooring_tests::paths;
use tempfile::TempDir;

/// Exit code of `mooring config check` if files or programs that the settings name are missing on this machine. The
/// settings themselves were accepted before it looked for them.
const SERVICE_MISSING: i32 = 69;

/// The words after which a block holds commands.
const COMMANDS: [&str; 3] = ["console", "sh", "bash"];

/// `mooring` for bash: shows the help of what it is called with, which refuses unknown subcommands, options and values.
/// Everything after `--` is the command of another program.
const ASK_FOR_HELP: &str = r#"
mooring() {
    local words=()
    while [ $# -gt 0 ] && [ "$1" != -- ]; do words+=("$1"); shift; done
    echo "${words[*]}" >>asked
    "$MOORING" "${words[@]}" --help </dev/null >help 2>&1 || { echo "mooring ${words[*]}:"; cat help; } >>refused
}
"#;

fn pages() -> anyhow::Result<Vec<PathBuf>> {
    let mut pages = vec![paths::workspace().join("README.md")];
    for entry in std::fs::read_dir(paths::workspace().join("docs"))? {
        let path = entry?.path();
        pages.extend((path.extension() == Some("md".as_ref())).then_some(path));
    }
    Ok(pages)
}

/// The variables that the settings take secrets from, as `"env:NAME"`.
pub(crate) fn variables(text: &str) -> BTreeSet<&str> {
    let named = text.split("\"env:").skip(1);
    named.filter_map(|rest| rest.split('"').next()).collect()
}

#[test]
fn every_settings_file_on_a_page_is_accepted_as_it_is() -> anyhow::Result<()> {
    let directory = TempDir::with_prefix("mooring-guides-")?;
    let file = directory.path().join("mooring.toml");
    let mut checked = 0;
    for page in pages()? {
        let text = std::fs::read_to_string(&page)?;
        for block in blocks_in(&text, &["toml"]) {
            std::fs::write(&file, &block.text)?;
            let mut command = Command::new(paths::binary("mooring")?);
            command.args(["config", "check", "--config"]).arg(&file);
            command.env_clear().env("HOME", directory.path());
            command.envs(
                variables(&block.text)
                    .into_iter()
                    .map(|name| (name, "a-secret")),
            );
            let output = command.output()?;
            let told = String::from_utf8_lossy(&output.stdout).into_owned()
                + &String::from_utf8_lossy(&output.stderr);
            let is_accepted = matches!(output.status.code(), Some(0 | SERVICE_MISSING));
            let place = format!("{}, line {}", page.display(), block.line);
            ensure!(is_accepted, "{place}: {told}");
            ensure!(!told.contains("no caller may use"), "{place}: {told}");
            checked += 1;
        }
    }
    ensure!(checked > 15, "only {checked} examples were found");
    Ok(())
}

/// The commands of a block that call `mooring`, each on one line.
fn calls(block: &Block) -> Vec<String> {
    const WITHIN: [&str; 3] = ["$(mooring ", "do mooring ", "| mooring "];
    let text = block.text.replace("\\\n", " ");
    let is_call =
        |line: &&str| line.starts_with("mooring ") || WITHIN.iter().any(|call| line.contains(call));
    text.lines()
        .map(|line| line.trim_start().trim_start_matches("$ "))
        .filter(is_call)
        .map(str::to_owned)
        .collect()
}

#[test]
fn every_command_of_mooring_on_a_page_is_one_that_there_is() -> anyhow::Result<()> {
    let mut asked = 0;
    for page in pages()? {
        let text = std::fs::read_to_string(&page)?;
        let mut places: Vec<(String, Vec<String>)> = blocks_in(&text, &COMMANDS)
            .iter()
            .map(|block| (format!("line {}", block.line), calls(block)))
            .collect();
        let mut inline = inline_code(&text);
        inline.retain(|code| code.starts_with("mooring "));
        places.push(("running text".to_owned(), inline));
        for (place, calls) in places {
            let directory = TempDir::with_prefix("mooring-guides-")?;
            let read = |name| std::fs::read_to_string(directory.path().join(name));
            for call in calls {
                let mut command = Command::new("bash");
                command.args(["-c", &format!("{ASK_FOR_HELP}{call}")]);
                command.current_dir(directory.path());
                command.env("MOORING", paths::binary("mooring")?);
                // What a reader has set by commands before it.
                let gateways = "http://127.0.0.1:1 http://127.0.0.1:2";
                command.envs([
                    ("CONFIG", "mooring.toml"),
                    ("SESSION", "5a1f"),
                    ("DIGEST", "0123456789abcdef"),
                    ("GATEWAYS", gateways),
                ]);
                command.output()?;
            }
            let refused = read("refused").unwrap_or_default();
            ensure!(refused.is_empty(), "{}, {place}: {refused}", page.display());
            asked += read("asked").unwrap_or_default().lines().count();
        }
    }
    ensure!(asked > 60, "only {asked} commands were found");
    Ok(())
}

/// What GitHub calls a heading in links to it.
fn anchor(heading: &str) -> String {
    let kept = |letter: &char| letter.is_alphanumeric() || matches!(letter, '-' | '_' | ' ');
    let heading = heading.trim_start_matches('#').trim().to_lowercase();
    heading
        .chars()
        .filter(kept)
        .collect::<String>()
        .replace(' ', "-")
}

#[test]
fn every_link_on_a_page_leads_to_something() -> anyhow::Result<()> {
    let mut followed = 0;
    for page in pages()? {
        let text = std::fs::read_to_string(&page)?;
        for link in text.split("](").skip(1) {
            let (link, _) = link.split_once(')').unwrap_or_default();
            let (file, heading) = link.split_once('#').unwrap_or((link, ""));
            if link.contains([':', ' ']) {
                continue;
            }
            let place = format!("{} links to {link}", page.display());
            let target = match (file, page.parent()) {
                ("", _) | (_, None) => page.clone(),
                (_, Some(directory)) => directory.join(file),
            };
            ensure!(target.exists(), "{place}: there is no such file");
            if !heading.is_empty() {
                let target = std::fs::read_to_string(&target)?;
                let mut headings = target.lines().filter(|line| line.starts_with('#'));
                ensure!(
                    headings.any(|line| anchor(line) == heading),
                    "{place}: there is no such heading"
                );
            }
            followed += 1;
        }
    }
    ensure!(followed > 100, "only {followed} links were found");
    Ok(())
}

#[test]
fn every_target_of_make_on_a_page_is_one_that_there_is() -> anyhow::Result<()> {
    let makefile = std::fs::read_to_string(paths::workspace().join("Makefile"))?;
    let mut named = 0;
    for page in pages()? {
        let text = std::fs::read_to_string(&page)?;
        for code in inline_code(&text) {
            let Some(target) = code.strip_prefix("make ") else {
                continue;
            };
            let target = target.split(' ').next().unwrap_or_default();
            let is_there = makefile
                .lines()
                .any(|line| line.starts_with(&format!("{target}:")));
            ensure!(
                is_there,
                "{}: {code}: there is no such target",
                page.display()
            );
            named += 1;
        }
    }
    ensure!(named > 3, "only {named} targets were found");
    Ok(())
}

/// Names like those of settings that are something else: commands in ACLs, rights, tables, a directory.
const NO_SETTINGS: [&str; 8] = [
    "servers.d",
    "servers.oauth",
    "servers.manage",
    "servers.read",
    "servers.use",
    "servers.vault",
    "worker.beat",
    "worker.gone",
];

/// The name in code such as `auth.mode` or `auth.mode = "none"`.
fn setting_in(code: &str) -> Option<&str> {
    let name = code.split(" = ").next()?;
    let is_name = |word: &str| {
        let is_letter = |letter: char| letter.is_ascii_lowercase() || letter == '_';
        !word.is_empty() && word.chars().all(is_letter)
    };
    (name.contains('.') && name.split('.').all(is_name)).then_some(name)
}

#[test]
fn every_setting_that_a_page_names_is_one_that_there_is() -> anyhow::Result<()> {
    let reference = std::fs::read_to_string(paths::workspace().join("docs/settings.md"))?;
    let headings: Vec<&str> = reference
        .lines()
        .filter(|line| line.starts_with('#'))
        .collect();
    let headings = inline_code(&headings.join("\n"));
    let settings: BTreeSet<&str> = headings
        .iter()
        .filter_map(|code| setting_in(code))
        .collect();
    let section = |name: &str| name.split('.').next().map(str::to_owned);
    let mut sections: BTreeSet<_> = settings.iter().filter_map(|name| section(name)).collect();
    // The module's own, and units of systemd.
    sections.remove("mooring");
    let mut named = 0;
    for page in pages()? {
        let text = std::fs::read_to_string(&page)?;
        for code in inline_code(&text) {
            let Some(name) = setting_in(&code) else {
                continue;
            };
            let is_setting = section(name).is_some_and(|section| sections.contains(&section));
            if !is_setting || NO_SETTINGS.contains(&name) || name.ends_with(".toml") {
                continue;
            }
            ensure!(
                settings.contains(name),
                "{}: {name}: there is no such setting",
                page.display()
            );
            named += 1;
        }
    }
    ensure!(named > 300, "only {named} settings were found");
    Ok(())
}
