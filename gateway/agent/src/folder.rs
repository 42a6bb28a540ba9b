//! The working directory of one call.
//!
//! Invariant: with all links resolved, it is a directory within the server's own directory or one that the settings
//! allow. A local user who can change directories can change it afterwards; a caller cannot.

use std::path::{Path, PathBuf};

/// Longest path that a caller may send, in bytes; the system's limit.
const PATH_BYTES_MAX: usize = 4096;

/// Why a call has no working directory. The text contains nothing but what the caller sent: neither whether a forbidden
/// path exists nor which directories are allowed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(crate) enum FolderError {
    /// It would depend on the gateway's working directory.
    #[error("workFolder is not an absolute path")]
    NotAbsolute,
    /// The path cannot exist.
    #[error("workFolder has a NUL character, or more than {PATH_BYTES_MAX} bytes")]
    Impossible,
    /// It does not exist, is not a directory, or is not allowed; the error does not say which.
    #[error("workFolder is not a directory that this server may work in")]
    NotAllowed,
    /// The call names none, and the server's own does not exist.
    #[error("this server has no directory to work in; name one in workFolder")]
    NoDefault,
}

/// The directory of one call, with all links resolved: the requested one, or else the server's own.
///
/// # Errors
/// There is none, or the caller may not use it.
pub(crate) fn check(
    asked: Option<&str>,
    default: &Path,
    allowed: &[PathBuf],
) -> Result<PathBuf, FolderError> {
    let Some(asked) = asked else {
        return directory(default).ok_or(FolderError::NoDefault);
    };
    if asked.contains('\0') || asked.len() > PATH_BYTES_MAX {
        return Err(FolderError::Impossible);
    }
    let path = Path::new(asked);
    if !path.is_absolute() {
        return Err(FolderError::NotAbsolute);
    }
    let found = directory(path).ok_or(FolderError::NotAllowed)?;
    let mut roots = std::iter::once(default).chain(allowed.iter().map(PathBuf::as_path));
    if roots.any(|root| directory(root).is_some_and(|root| found.starts_with(root))) {
        Ok(found)
    } else {
        Err(FolderError::NotAllowed)
    }
}

/// An existing directory, with all links resolved.
fn directory(path: &Path) -> Option<PathBuf> {
    path.canonicalize().ok().filter(|path| path.is_dir())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

    use std::fs;
    use std::os::unix::fs::symlink;

    use super::*;

    /// `home/`, `home/project/`, `allowed/`, `allowed-not/`, `home/file`, and links out of and into `home/`.
    struct Tree {
        root: tempfile::TempDir,
    }

    impl Tree {
        fn new() -> Self {
            let root = tempfile::tempdir().unwrap();
            for name in ["home/project", "allowed/deep", "allowed-not"] {
                fs::create_dir_all(root.path().join(name)).unwrap();
            }
            fs::write(root.path().join("home/file"), "x").unwrap();
            symlink("../allowed-not", root.path().join("home/out")).unwrap();
            symlink("home/project", root.path().join("in")).unwrap();
            symlink("nowhere", root.path().join("home/dangling")).unwrap();
            Self { root }
        }

        fn path(&self, name: &str) -> PathBuf {
            self.root.path().canonicalize().unwrap().join(name)
        }

        fn check(&self, asked: &str) -> Result<PathBuf, FolderError> {
            let asked = self.path(asked);
            check(
                asked.to_str(),
                &self.path("home"),
                &[self.path("missing"), self.path("allowed")],
            )
        }
    }

    #[test]
    fn a_folder_within_what_is_allowed_is_taken_with_its_links_followed() {
        let tree = Tree::new();
        for (asked, found) in [
            ("home", "home"),
            ("home/project/", "home/project"),
            ("home/project/..", "home"),
            ("allowed/deep", "allowed/deep"),
            ("in", "home/project"),
        ] {
            assert_eq!(tree.check(asked), Ok(tree.path(found)), "{asked}");
        }
    }

    #[test]
    fn everything_else_is_refused_in_the_same_words() {
        let tree = Tree::new();
        for asked in [
            "",
            "allowed-not",
            "home/out",
            "home/../allowed-not",
            "home/file",
            "home/missing",
            "home/dangling",
            "missing",
        ] {
            assert_eq!(tree.check(asked), Err(FolderError::NotAllowed), "{asked}");
        }
    }

    #[test]
    fn what_cannot_be_a_folder_is_refused() {
        let tree = Tree::new();
        let ask = |asked: &str| check(Some(asked), &tree.path("home"), &[]);
        for asked in ["", "project", "./home", "~/project"] {
            assert_eq!(ask(asked), Err(FolderError::NotAbsolute), "{asked}");
        }
        assert_eq!(ask("/a\0b"), Err(FolderError::Impossible));
        let long = format!("/{}", "x".repeat(PATH_BYTES_MAX));
        assert_eq!(ask(&long), Err(FolderError::Impossible));
    }

    #[test]
    fn the_default_is_the_servers_own_directory() {
        let tree = Tree::new();
        let none = |default: &str| check(None, &tree.path(default), &[tree.path("allowed")]);
        assert_eq!(none("home"), Ok(tree.path("home")));
        assert_eq!(none("in"), Ok(tree.path("home/project")));
        assert_eq!(none("home/missing"), Err(FolderError::NoDefault));
        assert_eq!(none("home/file"), Err(FolderError::NoDefault));
    }
}
