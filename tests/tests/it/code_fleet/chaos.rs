//! Workers that are killed at random moments, while others serve the same sessions: no write that was acknowledged is
//! lost, and what one run wrote is there as a whole or not at all.

use std::collections::{BTreeMap, BTreeSet};
use std::io::Write as _;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::Context;
use futures_util::future::try_join_all;
use mooring_tests::code::{CodeVolume, Coder, SERVER};
use mooring_tests::gateway::Gateway;
use mooring_tests::process_tree::{descendants, is_running};
use mooring_tests::redis::Redis;
use mooring_tests::wait;
use serde_json::json;

/// Gateways on one volume.
const GATEWAYS: usize = 3;
/// Users, each with a session of its own.
const USERS: usize = 3;
/// Clients of one user at the same time: they contend for its session.
const CLIENTS_EACH: usize = 2;
/// Kills, unless `MOORING_TEST_KILLS` says otherwise.
const KILLS: u64 = 60;
/// What `MOORING_TEST_SEED` is added to.
const SEED: u64 = 4_042;
/// The longest pause before a kill, in milliseconds: a run takes about as long.
const PAUSE_MS_MAX: u64 = 300;
/// Files that one run writes, in both trees.
const FILES_OF_A_RUN: usize = 6;
/// How long what a killed worker left may take to go.
const GONE_WITHIN: Duration = Duration::from_secs(30);

/// What one client asked for, and whether it was told that it is done.
#[derive(Debug)]
struct Written {
    /// A name that no other write has.
    name: String,
    is_by_run: bool,
    is_acknowledged: bool,
}

/// A number of the environment.
fn given(name: &str) -> anyhow::Result<Option<u64>> {
    let text = std::env::var(name).ok();
    text.map(|text| text.parse().with_context(|| format!("{name} is a number")))
        .transpose()
}

/// Writes until it is told to stop, by turns a file and a run that writes several.
async fn write(
    endpoints: Vec<String>,
    user: usize,
    client: usize,
    is_over: &AtomicBool,
) -> anyhow::Result<Vec<Written>> {
    let mut written = Vec::new();
    let mut coder = None;
    for number in 0.. {
        if is_over.load(Ordering::Relaxed) {
            break;
        }
        let Some(open) = &mut coder else {
            coder = Coder::open_at(&endpoints, &user_name(user)).await.ok();
            continue;
        };
        let name = format!("{client}-{number}");
        let is_by_run = number % 2 == 0;
        let done = if is_by_run {
            open.python(&run_of(&name)).await.map(drop)
        } else {
            // Every second one replaces a file that is there.
            let path = format!("/scratch/one/{name}");
            open.write(&path, &name).await.map(drop)
        };
        // Only a refused connection is like nothing asked; whatever else went wrong may have been done.
        written.push(Written {
            name,
            is_by_run,
            is_acknowledged: done.is_ok(),
        });
    }
    Ok(written)
}

fn user_name(user: usize) -> String {
    format!("user-{user}@example.org")
}

/// Code that writes `name` into several files, new ones and ones that earlier runs wrote, and removes what it finds to
/// remove.
fn run_of(name: &str) -> String {
    format!(
        "import os\n\
         os.makedirs('/scratch/many', exist_ok=True)\n\
         os.makedirs('/results/many/{name}')\n\
         for n in range({FILES_OF_A_RUN}):\n\
         \x20 open(f'/scratch/many/{name}.{{n}}', 'w').write('{name}')\n\
         \x20 open(f'/results/many/{name}/{{n}}', 'w').write('{name}')\n\
         for tree in ('/scratch', '/results'):\n\
         \x20 open(tree + '/last', 'w').write('{name}')\n\
         \x20 for old in os.listdir(tree):\n\
         \x20   if old.startswith('mark-'): os.remove(f'{{tree}}/{{old}}')\n\
         \x20 open(tree + '/mark-{name}', 'w').write('{name}')\n"
    )
}

/// What stands in a session, as a run sees it.
#[derive(Debug)]
struct Standing {
    /// Names written by `fs_write`, with what is in the file.
    one: BTreeMap<String, String>,
    /// The numbers of the files that a run wrote, by its name, in `/scratch` and in `/results`.
    many: [BTreeMap<String, BTreeSet<String>>; 2],
    /// Who wrote last, in both.
    last: [String; 2],
    /// Whose marks stand, in both.
    marks: [Vec<String>; 2],
}

async fn standing(coder: &mut Coder) -> anyhow::Result<Standing> {
    let text = coder
        .python(
            "import os, json\n\
             def read(path): return open(path).read()\n\
             def names(path): return os.listdir(path) if os.path.isdir(path) else []\n\
             one = {name: read('/scratch/one/' + name) for name in names('/scratch/one')}\n\
             scratch, results = {}, {}\n\
             for file in names('/scratch/many'):\n\
             \x20 name, n = file.split('.')\n\
             \x20 assert read('/scratch/many/' + file) == name, file\n\
             \x20 scratch.setdefault(name, []).append(n)\n\
             for name in names('/results/many'):\n\
             \x20 for n in names('/results/many/' + name):\n\
             \x20   assert read(f'/results/many/{name}/{n}') == name, name\n\
             \x20   results.setdefault(name, []).append(n)\n\
             trees = ('/scratch', '/results')\n\
             last = [read(t + '/last') if os.path.exists(t + '/last') else '' for t in trees]\n\
             marks = [[m for m in names(t) if m.startswith('mark-')] for t in trees]\n\
             print(json.dumps([one, [scratch, results], last, marks]))",
        )
        .await?;
    let (one, many, last, marks) = serde_json::from_str(&text).context(text)?;
    Ok(Standing {
        one,
        many,
        last,
        marks,
    })
}

impl Standing {
    /// Nothing acknowledged is missing, nothing is half there, and the last run is the last in every place.
    fn check(&self, written: &[Written]) {
        let all: BTreeSet<String> = (0..FILES_OF_A_RUN).map(|n| n.to_string()).collect();
        for Written {
            name,
            is_by_run,
            is_acknowledged,
        } in written
        {
            if !is_by_run {
                match self.one.get(name) {
                    Some(content) => assert_eq!(content, name),
                    None => assert!(!is_acknowledged, "{name} was acknowledged and is lost"),
                }
                continue;
            }
            let [scratch, results] = self.many.each_ref().map(|tree| tree.get(name));
            assert_eq!(scratch, results, "{name} is half there");
            match scratch {
                Some(files) => assert_eq!(files, &all, "{name} is half there"),
                None => assert!(!is_acknowledged, "{name} was acknowledged and is lost"),
            }
        }
        let [scratch, results] = &self.last;
        assert_eq!(scratch, results, "the last run is half there");
        for marks in &self.marks {
            let expected: Vec<String> = if scratch.is_empty() {
                Vec::new()
            } else {
                vec![format!("mark-{scratch}")]
            };
            assert_eq!(marks, &expected, "what a run removed is there again");
        }
    }
}

/// Kills one worker after the other, each after a random pause, and starts it again: the processes of their runs.
async fn kill(
    gateways: &mut [Gateway],
    rng: &mut fastrand::Rng,
    kills: u64,
) -> anyhow::Result<BTreeSet<u32>> {
    let mut left = BTreeSet::new();
    for _ in 0..kills {
        tokio::time::sleep(Duration::from_millis(rng.u64(..PAUSE_MS_MAX))).await;
        let gateway = &mut gateways[rng.usize(..GATEWAYS)];
        left.extend(descendants(gateway.process().id())?);
        gateway.restart().await?;
    }
    Ok(left)
}

#[tokio::test]
async fn workers_killed_at_random_lose_no_acknowledged_write() -> anyhow::Result<()> {
    let seed = SEED.wrapping_add(given("MOORING_TEST_SEED")?.unwrap_or_default());
    let kills = given("MOORING_TEST_KILLS")?.unwrap_or(KILLS);
    let mut rng = fastrand::Rng::with_seed(seed);
    let (volume, redis) = (CodeVolume::new()?, Redis::start().await?);
    let mut gateways = Gateway::fleet(GATEWAYS, &volume.settings(&redis.url())).await?;
    let endpoints: Vec<String> = gateways.iter().map(|g| g.mcp_url(SERVER)).collect();

    let is_over = AtomicBool::new(false);
    let writers = (0..USERS * CLIENTS_EACH).map(|client| {
        let mut endpoints = endpoints.clone();
        endpoints.rotate_left(client % GATEWAYS);
        write(endpoints, client % USERS, client, &is_over)
    });
    let killer = async {
        let left = kill(&mut gateways, &mut rng, kills).await;
        is_over.store(true, Ordering::Relaxed);
        left
    };
    let (written, left) = tokio::join!(try_join_all(writers), killer);
    let (written, left) = (written?, left?);

    let asked: usize = written.iter().map(Vec::len).sum();
    let acknowledged = written.iter().flatten().filter(|w| w.is_acknowledged);
    let acknowledged = acknowledged.count();
    writeln!(
        std::io::stderr(),
        "{kills} kills, seed {seed}: {asked} writes, {acknowledged} acknowledged"
    )?;
    assert!(acknowledged > asked / 4, "{acknowledged} of {asked}");
    for user in 0..USERS {
        let mut coder = Coder::open_at(&endpoints, &user_name(user)).await?;
        let standing = standing(&mut coder).await?;
        for of_client in written.iter().skip(user).step_by(USERS) {
            standing.check(of_client);
        }
        // The session goes on, and its next commit too.
        coder.write("/results/after", "after").await?;
        let answer = coder.done("fs_browse", json!({"path": "/results"})).await?;
        assert!(answer.to_string().contains("after"), "{answer}");
    }
    nothing_is_left(&volume, left).await
}

/// Neither processes nor directories, and within a session nothing of a commit.
async fn nothing_is_left(volume: &CodeVolume, processes: BTreeSet<u32>) -> anyhow::Result<()> {
    wait::until_true("the killed runs to be gone", GONE_WITHIN, async || {
        Ok(!processes.iter().any(|id| is_running(*id)))
    })
    .await?;
    let sessions = volume.sessions()?;
    assert_eq!(sessions.len(), USERS, "{sessions:?}");
    for session in sessions {
        let host = session.join(".mooring");
        let mut names = Vec::new();
        for entry in std::fs::read_dir(&host)? {
            names.push(entry?.file_name().to_string_lossy().into_owned());
        }
        names.sort_unstable();
        assert_eq!(names, ["staging", "stamp.json", "turn.json"]);
        assert_eq!(std::fs::read_dir(host.join("staging"))?.count(), 0);
    }
    assert!(volume.orphan_files()?.is_empty());
    assert_eq!(volume.own(".trash")?.len(), 0);
    Ok(())
}
