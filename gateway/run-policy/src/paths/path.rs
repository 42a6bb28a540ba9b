//! Paths as agents write them: `/scratch/data/a.csv`.
//!
//! Invariant: a [`VirtualPath`] names something beneath one of the four mounts, or the root above them. It holds no
//! `..`, no empty component and no name that a session's file may not have, so it is safe to show and to walk.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::name::{self, NameFault};

/// Deepest path, counted in names beneath its mount.
pub const DEPTH_MAX: usize = 32;

/// Longest path in bytes.
pub const PATH_BYTES_MAX: usize = 4096;

/// One of the four trees.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Mount {
    /// What agents write for people and for other agents.
    Results,
    /// Where agents work.
    Scratch,
    /// What others have taught; read-only.
    Skills,
    /// The tools; read-only.
    Tools,
}

impl Mount {
    /// All of them, in the order of their names.
    pub const ALL: [Self; 4] = [Self::Results, Self::Scratch, Self::Skills, Self::Tools];

    /// Its name beneath `/`.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Results => "results",
            Self::Scratch => "scratch",
            Self::Skills => "skills",
            Self::Tools => "tools",
        }
    }

    /// Whether agents may write there.
    #[must_use]
    pub const fn is_writable(self) -> bool {
        matches!(self, Self::Scratch | Self::Results)
    }

    fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|mount| mount.name() == name)
    }
}

/// A path that is safe to walk.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct VirtualPath {
    mount: Option<Mount>,
    names: Vec<String>,
}

/// Why a text is no path.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PathError {
    /// It does not begin with `/`.
    #[error("the path must begin with \"/\"")]
    Relative,
    /// Longer than 4096 bytes.
    #[error("the path is longer than {PATH_BYTES_MAX} bytes")]
    TooLong,
    /// More than 32 names.
    #[error("the path is deeper than {DEPTH_MAX} directories")]
    TooDeep,
    /// It does not begin with one of the four mounts.
    #[error("the path must lie in /results, /scratch, /skills or /tools")]
    UnknownMount,
    /// One of its names is not allowed.
    #[error("the path is not valid: {0}")]
    Name(#[from] NameFault),
}

impl TryFrom<String> for VirtualPath {
    type Error = PathError;

    fn try_from(text: String) -> Result<Self, PathError> {
        Self::parse(&text)
    }
}

impl From<VirtualPath> for String {
    fn from(path: VirtualPath) -> Self {
        path.to_string()
    }
}

impl VirtualPath {
    /// A whole tree.
    #[must_use]
    pub const fn of(mount: Mount) -> Self {
        Self {
            mount: Some(mount),
            names: Vec::new(),
        }
    }

    /// Parses a path. One trailing slash is allowed.
    ///
    /// # Errors
    ///
    /// Why it is none.
    pub fn parse(text: &str) -> Result<Self, PathError> {
        if text.len() > PATH_BYTES_MAX {
            return Err(PathError::TooLong);
        }
        let beneath = text.strip_prefix('/').ok_or(PathError::Relative)?;
        if beneath.is_empty() {
            return Ok(Self {
                mount: None,
                names: Vec::new(),
            });
        }
        let mut components = beneath.strip_suffix('/').unwrap_or(beneath).split('/');
        let mount = components
            .next()
            .and_then(Mount::named)
            .ok_or(PathError::UnknownMount)?;
        let mut names = Vec::new();
        for component in components {
            if names.len() == DEPTH_MAX {
                return Err(PathError::TooDeep);
            }
            names.push(name::checked(component.as_bytes())?.to_owned());
        }
        Ok(Self {
            mount: Some(mount),
            names,
        })
    }

    /// The mount, or nothing for `/` itself.
    #[must_use]
    pub const fn mount(&self) -> Option<Mount> {
        self.mount
    }

    /// The names beneath the mount, outermost first.
    #[must_use]
    pub fn names(&self) -> &[String] {
        &self.names
    }

    /// Whether it is this directory, or is in it at any depth.
    pub fn is_within(&self, directory: &Self) -> bool {
        match directory.mount {
            None => true,
            mount => self.mount == mount && self.names.starts_with(&directory.names),
        }
    }

    /// The same of one of these.
    pub fn is_within_any(&self, directories: &[Self]) -> bool {
        directories
            .iter()
            .any(|directory| self.is_within(directory))
    }

    /// The entry of this name in it; none if no file of a session may have such a name.
    pub fn entry(&self, name: &[u8]) -> Option<Self> {
        let name = name::checked(name).ok()?;
        match self.mount {
            None => Mount::named(name).map(Self::of),
            Some(_) => {
                let names = self.names.iter().cloned().chain([name.to_owned()]);
                Some(Self {
                    mount: self.mount,
                    names: names.collect(),
                })
            }
        }
    }

    /// The path beneath the mount, for the kernel: `.` for the mount itself.
    pub fn beneath(&self) -> String {
        if self.names.is_empty() {
            ".".to_owned()
        } else {
            self.names.join("/")
        }
    }
}

impl fmt::Display for VirtualPath {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("/")?;
        if let Some(mount) = self.mount {
            formatter.write_str(mount.name())?;
        }
        self.names
            .iter()
            .try_for_each(|name| write!(formatter, "/{name}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn good_paths_are_read_and_shown_alike() {
        for good in [
            "/",
            "/tools",
            "/scratch/a",
            "/results/a/b c/.d",
            "/scratch/...",
        ] {
            assert_eq!(
                VirtualPath::parse(good).map(|path| path.to_string()),
                Ok(good.to_owned())
            );
        }
        assert_eq!(
            VirtualPath::parse("/scratch/"),
            VirtualPath::parse("/scratch")
        );
        let deepest = format!("/scratch{}", "/d".repeat(DEPTH_MAX));
        assert!(VirtualPath::parse(&deepest).is_ok());
    }

    #[test]
    fn paths_that_lead_elsewhere_are_refused() {
        let too_deep = format!("/scratch{}", "/d".repeat(DEPTH_MAX + 1));
        let too_long = format!("/scratch/{}", "d".repeat(PATH_BYTES_MAX));
        let long_name = format!("/scratch/{}", "d".repeat(256));
        for (bad, error) in [
            ("", PathError::Relative),
            ("scratch/a", PathError::Relative),
            ("/etc/passwd", PathError::UnknownMount),
            ("/Scratch", PathError::UnknownMount),
            ("//scratch", PathError::UnknownMount),
            ("/.mooring/journal.json", PathError::UnknownMount),
            ("/scratch/../.mooring", PathError::Name(NameFault::Reserved)),
            ("/scratch/./a", PathError::Name(NameFault::Reserved)),
            ("/scratch//a", PathError::Name(NameFault::Reserved)),
            ("/scratch/a\0b", PathError::Name(NameFault::Control)),
            (&too_deep, PathError::TooDeep),
            (&too_long, PathError::TooLong),
            (&long_name, PathError::Name(NameFault::TooLong)),
        ] {
            assert_eq!(VirtualPath::parse(bad), Err(error), "{bad:?}");
        }
    }
}
