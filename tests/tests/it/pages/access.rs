//! docs/access.md: the command that says what a caller may use. The table is in the module of the same name one above.

use anyhow::ensure;
use mooring_tests::pages::Page;
use mooring_tests::paths;
use mooring_tests::reader::Reader;

use super::NOT_RUN;

#[tokio::test]
async fn the_command_of_access_says_what_a_caller_may_use() -> anyhow::Result<()> {
    let mut page = Page::read("docs/access.md")?;
    let reader = Reader::new()?;
    reader.install("fixture", &paths::binary("mooring-fixture")?)?;
    reader
        .run("openssl rand -hex 32 >vault-keys; chmod 600 vault-keys")
        .await?;
    page.fill("/etc/mooring/vault-keys", reader.path_text("vault-keys"))?;
    let settings = page.take("toml", "[[servers]]")?;
    reader.write(".config/mooring/mooring.toml", &settings)?;
    let told = reader
        .run(&page.inline("mooring config check --as")?)
        .await?;
    // The column `dev` of the page's table.
    for (server, may) in [
        ("plain", false),
        ("tracker", true),
        ("files", true),
        ("closed", false),
        ("claude", false),
    ] {
        let line = told
            .lines()
            .find(|line| line.contains(&format!("server {server} ")));
        let refused = line.is_some_and(|line| line.contains("may not use it"));
        ensure!(line.is_some() && refused != may, "{server}: {told}");
    }
    page.finish(&NOT_RUN)
}
