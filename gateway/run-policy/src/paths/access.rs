//! Which directories of the four trees may be read and written, where a policy allows less than the whole trees.
//!
//! A policy has three lists of directories, each with everything below it. The lists are reduced here to what each
//! enforcer needs: the sandbox shows the readable directories and nothing else of the trees, lets code write to the
//! writable ones, and covers the denied ones; the commit and the file tools ask about single paths.
//!
//! Invariant: no two paths of a list contain one another, every writable or denied path is within a readable one, and
//! no readable or writable path is within a denied one.

use serde::{Deserialize, Serialize};

use super::path::{Mount, VirtualPath};

/// Files of the read-only trees without which none of their modules can be imported: readable where any directory of
/// their tree is.
const SUPPORT_FILES: &[&str] = &[
    "/tools/__init__.py",
    "/tools/_runtime.py",
    "/tools/_runtime.ts",
    "/tools/_import_map.json",
    "/tools/mod.ts",
    "/skills/__init__.py",
    "/skills/_mod.ts",
];

/// The readable and the writable parts of the trees.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TreeAccess {
    /// None: the whole trees.
    lists: Option<AccessLists>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct AccessLists {
    readable: Vec<VirtualPath>,
    writable: Vec<VirtualPath>,
    denied: Vec<VirtualPath>,
}

impl TreeAccess {
    /// Most paths of each list. Each costs a mount in every run.
    pub const PATHS_MAX: usize = 32;
    /// Longest path of a list, in bytes. All of them travel to the helper in one packet.
    pub const PATH_BYTES_MAX: usize = 256;
    /// Reading everything, and writing to `/scratch` and `/results`.
    pub const WHOLE: Self = Self { lists: None };

    /// What these lists of directories allow: a path may be read if it is in a readable directory and in no denied one,
    /// and written if it is also in a writable one, in `/scratch` or `/results`.
    #[must_use]
    pub fn new(readable: &[VirtualPath], writable: &[VirtualPath], denied: &[VirtualPath]) -> Self {
        let readable = outermost(readable, denied);
        let common = writable.iter().flat_map(|path| {
            let within = readable.iter().filter(|root| root.is_within(path)).cloned();
            let whole = path.is_within_any(&readable).then(|| path.clone());
            within.chain(whole).collect::<Vec<_>>()
        });
        let writable: Vec<_> = common
            .filter(|path| path.mount().is_some_and(Mount::is_writable))
            .collect();
        let writable = outermost(&writable, denied);
        let mut lists = AccessLists {
            denied: outermost(denied, &[])
                .into_iter()
                .filter(|path| path.is_within_any(&readable))
                .collect(),
            readable,
            writable,
        };
        if lists.is_whole() {
            return Self::WHOLE;
        }
        lists.add_support_files(denied);
        Self { lists: Some(lists) }
    }

    /// Whether nothing of the trees is withheld.
    #[must_use]
    pub const fn is_whole(&self) -> bool {
        self.lists.is_none()
    }

    /// Whether a file or directory may be read.
    #[must_use]
    pub fn allows_reading(&self, path: &VirtualPath) -> bool {
        self.lists.as_ref().is_none_or(|lists| {
            path.is_within_any(&lists.readable) && !path.is_within_any(&lists.denied)
        })
    }

    /// Whether a directory contains something that may be read. Of its entries only those are shown that lead there.
    #[must_use]
    pub fn leads_to_readable(&self, path: &VirtualPath) -> bool {
        (self.lists.as_ref())
            .is_none_or(|lists| lists.readable.iter().any(|root| root.is_within(path)))
    }

    /// Whether an entry of a directory is shown.
    pub fn shows(&self, path: &VirtualPath) -> bool {
        self.allows_reading(path) || self.leads_to_readable(path)
    }

    /// Whether a file or directory may be made, changed and deleted. The directories of the policy's own lists may not;
    /// their content may.
    #[must_use]
    pub fn allows_writing(&self, path: &VirtualPath) -> bool {
        let is_below = |root: &VirtualPath| path.is_within(root) && path != root;
        match &self.lists {
            None => path.mount().is_some_and(Mount::is_writable),
            Some(lists) => {
                lists.writable.iter().any(is_below) && !path.is_within_any(&lists.denied)
            }
        }
    }

    /// Whether a directory is, or contains, one of those that the sandbox makes because the policy names them.
    pub fn leads_to_named(&self, path: &VirtualPath) -> bool {
        let leads = |roots: &[VirtualPath]| roots.iter().any(|root| root.is_within(path));
        (self.lists.as_ref()).is_some_and(|lists| leads(&lists.readable) || leads(&lists.writable))
    }

    /// Whether something below a path is denied, so that the path must not go as a whole.
    pub fn denies_below(&self, path: &VirtualPath) -> bool {
        (self.lists.as_ref())
            .is_some_and(|lists| lists.denied.iter().any(|denied| denied.is_within(path)))
    }

    /// The outermost paths of a tree that may be read: the tree itself, or some of its directories and files.
    pub fn readable(&self, mount: Mount) -> Vec<VirtualPath> {
        match &self.lists {
            None => vec![VirtualPath::of(mount)],
            Some(lists) => of_mount(&lists.readable, mount),
        }
    }

    /// The outermost directories that may be read and not written to. Single files, which modules are imported with, are left
    /// out.
    #[must_use]
    pub fn read_only(&self) -> Vec<VirtualPath> {
        let writable = self.writable();
        let readable = match &self.lists {
            None => Mount::ALL.map(VirtualPath::of).to_vec(),
            Some(lists) => lists.readable.clone(),
        };
        let is_support = |path: &VirtualPath| SUPPORT_FILES.contains(&path.to_string().as_str());
        readable
            .into_iter()
            .filter(|path| !path.is_within_any(&writable) && !is_support(path))
            .collect()
    }

    /// The outermost directories that may be written to.
    #[must_use]
    pub fn writable(&self) -> Vec<VirtualPath> {
        match &self.lists {
            None => vec![
                VirtualPath::of(Mount::Scratch),
                VirtualPath::of(Mount::Results),
            ],
            Some(lists) => lists.writable.clone(),
        }
    }

    /// The denied paths within the readable ones.
    #[must_use]
    pub fn denied(&self) -> &[VirtualPath] {
        (self.lists.as_ref()).map_or(&[], |lists| lists.denied.as_slice())
    }
}

impl AccessLists {
    fn is_whole(&self) -> bool {
        let has = |list: &[VirtualPath], mount| list.contains(&VirtualPath::of(mount));
        let writable = |mount: &Mount| mount.is_writable();
        self.denied.is_empty()
            && Mount::ALL.iter().all(|mount| has(&self.readable, *mount))
            && (Mount::ALL.iter().filter(|mount| writable(mount)))
                .all(|mount| has(&self.writable, *mount))
    }

    fn add_support_files(&mut self, denied: &[VirtualPath]) {
        let files = SUPPORT_FILES
            .iter()
            .filter_map(|file| VirtualPath::parse(file).ok());
        for file in files {
            let has_some = self
                .readable
                .iter()
                .any(|root| root.mount() == file.mount());
            if has_some && !file.is_within_any(&self.readable) && !file.is_within_any(denied) {
                self.readable.push(file);
            }
        }
    }
}

/// The paths without those that lie within another of them, or within one of `outside`.
fn outermost(paths: &[VirtualPath], outside: &[VirtualPath]) -> Vec<VirtualPath> {
    let mut kept: Vec<VirtualPath> = Vec::with_capacity(paths.len());
    for path in paths {
        if !path.is_within_any(outside) && !path.is_within_any(&kept) {
            kept.retain(|other| !other.is_within(path));
            kept.push(path.clone());
        }
    }
    kept
}

fn of_mount(paths: &[VirtualPath], mount: Mount) -> Vec<VirtualPath> {
    let is_of = |path: &&VirtualPath| path.mount() == Some(mount);
    paths.iter().filter(is_of).cloned().collect()
}

#[cfg(test)]
#[path = "access_tests.rs"]
mod tests;
