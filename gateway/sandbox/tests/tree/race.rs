//! Something that changes while it is looked at: a file that becomes a link, a directory that becomes another.

use std::fs;
use std::os::unix::fs::symlink;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use mooring_sandbox::tree::{BrowseOptions, TreeAccess, browse, commit, read, usage};
use rustix::fs::{CWD, RenameFlags, renameat_with};

use crate::support::{Session, at, make_fifo, promptly, roomy};

const ROUNDS: usize = 5000;

/// Exchanges two places, over and over, while `work` is done.
fn while_swapping(pairs: &[(std::path::PathBuf, std::path::PathBuf)], work: impl FnOnce()) {
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            while !stop.load(Ordering::Relaxed) {
                for (one, other) in pairs {
                    // Where one of them is gone for a moment, the next round exchanges them.
                    let _ = renameat_with(CWD, one, CWD, other, RenameFlags::EXCHANGE);
                }
            }
        });
        let guard = StopHandle(&stop);
        work();
        drop(guard);
    });
}

struct StopHandle<'a>(&'a AtomicBool);

impl Drop for StopHandle<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

#[test]
fn what_is_read_is_never_what_a_link_points_to() {
    promptly(|| {
        let session = Session::new();
        fs::create_dir(session.path("outside")).unwrap();
        fs::write(session.path("outside/file"), b"secret").unwrap();
        fs::create_dir_all(session.scratch("d")).unwrap();
        fs::write(session.scratch("d/file"), b"public").unwrap();
        fs::write(session.scratch("file"), b"public").unwrap();
        symlink(session.path("outside"), session.scratch("d2")).unwrap();
        symlink(session.path("outside/file"), session.scratch("link")).unwrap();
        make_fifo(&session.scratch("fifo"));
        let pairs = [("d", "d2"), ("file", "link"), ("file", "fifo")]
            .map(|(one, other)| (session.scratch(one), session.scratch(other)));
        let view = session.view();
        let (mut reads, mut refusals) = (0, 0);
        while_swapping(&pairs, || {
            for _ in 0..ROUNDS {
                for path in ["/scratch/file", "/scratch/d/file"] {
                    match read(&view, &at(path), 100, &TreeAccess::WHOLE) {
                        Ok(content) => {
                            assert_eq!(content.bytes, b"public");
                            reads += 1;
                        }
                        Err(_) => refusals += 1,
                    }
                }
                if let Ok(listing) = browse(
                    &view,
                    &at("/scratch/d"),
                    &BrowseOptions::default(),
                    &TreeAccess::WHOLE,
                ) {
                    assert!(listing.entries.iter().all(|entry| entry.size_bytes == 6));
                }
                let _ = usage(session.directory.scratch());
            }
        });
        assert!(
            reads > 0 && refusals > 0,
            "the race was run: {reads} reads, {refusals} refusals"
        );
    });
}

#[test]
fn what_is_committed_is_never_what_a_link_points_to() {
    promptly(|| {
        let session = Session::new();
        fs::create_dir(session.path("outside")).unwrap();
        fs::write(session.path("outside/file"), b"secret").unwrap();
        fs::create_dir_all(session.upper("d")).unwrap();
        fs::write(session.upper("d/file"), b"public").unwrap();
        fs::write(session.upper("file"), b"public").unwrap();
        symlink(session.path("outside"), session.upper("d2")).unwrap();
        symlink(session.path("outside/file"), session.upper("link")).unwrap();
        make_fifo(&session.upper("fifo"));
        let pairs = [("d", "d2"), ("file", "link"), ("file", "fifo")]
            .map(|(one, other)| (session.upper(one), session.upper(other)));
        let mut refused = 0;
        while_swapping(&pairs, || {
            for _ in 0..ROUNDS / 10 {
                let committed =
                    commit(&session.directory, &session.changes(), &roomy(), None).unwrap();
                refused += committed.refused_total;
                for (path, (content, _)) in session.picture() {
                    assert!(path.ends_with('/') || content == b"public", "{path}");
                }
            }
        });
        assert!(refused > 0, "the race was run");
    });
}
