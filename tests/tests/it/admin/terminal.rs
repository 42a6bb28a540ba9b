//! Acts of operators at a terminal: the question, the progress of long work, and Ctrl-C.

use std::io::{Read, Write};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::{Arc, Mutex, PoisonError};

use anyhow::{Context, ensure};
use mooring_tests::paths;
use mooring_tests::process_tree::started_with;
use mooring_tests::wait;

use super::{Scene, digests};

/// Gives a program a terminal, whose keyboard is standard input and whose screen is standard output, and ends as it does.
const TERMINAL: &str = "import os, pty, sys\n\
                        status = pty.spawn(sys.argv[1:])\n\
                        sys.exit(os.waitstatus_to_exitcode(status))";
/// Ctrl-C, as a keyboard sends it.
const INTERRUPT: &[u8] = b"\x03";

/// A program at a terminal.
struct Terminal {
    child: Child,
    keyboard: ChildStdin,
    screen: Arc<Mutex<Vec<u8>>>,
}

impl Terminal {
    /// Runs `mooring` as an operator.
    fn run(scene: &Scene, words: &[&str]) -> anyhow::Result<Self> {
        let mut child = Command::new("python3")
            .args(["-c", TERMINAL])
            .arg(paths::binary("mooring")?)
            .args(words)
            .args(["--gateway", &scene.gateways[0].url("")])
            .args(["--user", "olga", "--roles", "admin"])
            .env_clear()
            .env("PATH", std::env::var_os("PATH").unwrap_or_default())
            .env("HOME", scene.directory.path())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        let keyboard = child.stdin.take().context("a keyboard")?;
        let mut shown = child.stdout.take().context("a screen")?;
        let screen = Arc::new(Mutex::new(Vec::new()));
        let written = Arc::clone(&screen);
        std::thread::spawn(move || {
            let mut buffer = [0; 1024];
            while let Ok(length @ 1..) = shown.read(&mut buffer) {
                let mut screen = written.lock().unwrap_or_else(PoisonError::into_inner);
                screen.extend_from_slice(&buffer[..length]);
            }
        });
        Ok(Self {
            child,
            keyboard,
            screen,
        })
    }

    fn screen(&self) -> String {
        let screen = self.screen.lock().unwrap_or_else(PoisonError::into_inner);
        String::from_utf8_lossy(&screen).into_owned()
    }

    async fn until_shown(&self, text: &str) -> anyhow::Result<()> {
        wait::until_true(text, wait::STARTED_WITHIN, async || {
            Ok(self.screen().contains(text))
        })
        .await
        .with_context(|| format!("the screen shows {:?}", self.screen()))
    }

    fn press(&mut self, keys: &[u8]) -> anyhow::Result<()> {
        self.keyboard.write_all(keys)?;
        Ok(self.keyboard.flush()?)
    }

    /// Waits for the end of the program: its exit code.
    async fn ended(&mut self) -> anyhow::Result<Option<i32>> {
        let child = &mut self.child;
        wait::until("its end", wait::STARTED_WITHIN, async || {
            Ok(child.try_wait()?.map(|status| status.code()))
        })
        .await
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[tokio::test]
async fn an_act_asks_at_a_terminal_and_shows_how_far_it_is() -> anyhow::Result<()> {
    let scene = Scene::embedded().await?;
    for user in ["ada", "ada", "bob"] {
        scene.session(0, user).await?;
    }
    let words = ["sessions", "end-matching", "user:ada"];
    for (answer, left) in [(&b"n\n"[..], 3), (b"y\n", 1)] {
        let mut terminal = Terminal::run(&scene, &words)?;
        terminal.until_shown("Do it? [y/N]").await?;
        terminal.press(answer)?;
        let code = terminal.ended().await?;
        ensure!(code == Some(0), "{code:?}: {}", terminal.screen());
        assert_eq!(digests(&scene.get(0, "/admin/sessions").await?).len(), left);
        if left == 1 {
            // One line that is written over.
            terminal.until_shown("\r\x1b[K2 sessions ended").await?;
        }
    }
    Ok(())
}

#[tokio::test]
async fn an_act_that_takes_long_is_interrupted_by_ctrl_c() -> anyhow::Result<()> {
    let mut scene = Scene::embedded().await?;
    scene.session(0, "ada").await?;
    let words = ["sessions", "end-matching", "user:ada"];
    let mut terminal = Terminal::run(&scene, &words)?;
    terminal.until_shown("Do it? [y/N]").await?;
    // From here on nothing is answered.
    scene.gateways[0].process().stop()?;
    terminal.press(b"y\n")?;
    let url = scene.gateways[0].url("");
    wait::until_true(
        "it to wait for the answer",
        wait::STARTED_WITHIN,
        async || {
            let mut programs = started_with(&url)?.into_iter();
            programs.try_fold(false, |is_ready, program| {
                Ok(is_ready || (program != terminal.child.id() && takes_interrupts(program)))
            })
        },
    )
    .await?;
    terminal.press(INTERRUPT)?;
    let code = terminal.ended().await?;
    ensure!(
        code.is_some_and(|code| code > 0),
        "{code:?}: {}",
        terminal.screen()
    );
    terminal
        .until_shown("interrupted: 0 sessions were ended")
        .await?;
    scene.gateways[0].process().cont()
}

/// Whether a process has a handler for Ctrl-C: proc(5), the mask of caught signals.
fn takes_interrupts(program: u32) -> bool {
    let status = std::fs::read_to_string(format!("/proc/{program}/status")).unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigCgt:"));
    let mask = mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
    mask.is_some_and(|mask| mask & 0b10 != 0)
}
