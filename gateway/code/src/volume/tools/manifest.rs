//! The manifest of the mounted content, and its hash.
//!
//! Invariant: the hash follows from everything that a session sees at `/tools` and `/skills`, and from nothing else: not
//! from the order in which tools are named, nor from when and by whom they were made.

use std::sync::Arc;

use mooring_session::names::{ContentHash, NameError, ServerName};
use serde::Serialize;

use mooring_secrets::digest;
use mooring_settings::{Language, StubFormat};
use mooring_stubs::MountedTool;

/// Most tools mounted at once.
const TOOLS_MAX: usize = 4_096;
/// Most skills mounted at once.
const SKILLS_MAX: usize = 1_024;

/// One skill: a file of its own.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct MountedSkill {
    /// The file's name: one path component, and none of the package's own files.
    pub name: String,
    /// Its text.
    pub source: String,
}

/// Why this cannot be mounted.
#[derive(Debug, thiserror::Error)]
pub enum ManifestError {
    /// Too many tools.
    #[error("{count} tools are to be mounted; at most {TOOLS_MAX} can be")]
    Tools {
        /// How many.
        count: usize,
    },
    /// Too many skills.
    #[error("{count} skills are to be mounted; at most {SKILLS_MAX} can be")]
    Skills {
        /// How many.
        count: usize,
    },
    /// A skill's name would be a path, or hide a file of the package.
    #[error("the name of a skill must be one path component, and no file of the package's own")]
    SkillName,
    /// The description could not be written as JSON.
    #[error("the mounted tools could not be described")]
    Describe(#[source] serde_json::Error),
    /// The hash is no name. It cannot happen, and is no reason to panic.
    #[error("the hash of the mounted tools is not a content hash")]
    Hash(#[source] NameError),
}

/// The tools and skills mounted into the sessions of one server and language, with their hash. Clones share them.
#[derive(Clone, Debug, PartialEq)]
pub struct MountManifest {
    server: ServerName,
    pub(super) language: Language,
    pub(super) format: StubFormat,
    /// Sorted by server and name.
    pub(crate) tools: Arc<[MountedTool]>,
    /// Sorted by name.
    pub(super) skills: Arc<[MountedSkill]>,
    hash: ContentHash,
}

/// Everything that the hash of a tree covers.
#[derive(Serialize)]
struct HashInput<'a> {
    schema_version: &'a str,
    form: (&'a str, u32),
    runtime: [&'a str; 2],
    server: &'a str,
    stub_language: &'a str,
    stub_format: &'a str,
    tools: &'a [MountedTool],
    skills: &'a [MountedSkill],
}

impl MountManifest {
    /// Nothing but the files that are always there.
    ///
    /// # Errors
    /// As [`MountManifest::new`]; none in fact.
    pub fn none(server: &ServerName, language: Language) -> Result<Self, ManifestError> {
        let format = StubFormat::of(language);
        Self::new(server, language, format, Vec::new(), Vec::new())
    }

    /// These tools and skills, in any order.
    ///
    /// # Errors
    /// There are too many of them, or a skill has no name that a file can have.
    pub fn new(
        server: &ServerName,
        language: Language,
        format: StubFormat,
        mut tools: Vec<MountedTool>,
        mut skills: Vec<MountedSkill>,
    ) -> Result<Self, ManifestError> {
        if tools.len() > TOOLS_MAX {
            return Err(ManifestError::Tools { count: tools.len() });
        }
        if skills.len() > SKILLS_MAX {
            let count = skills.len();
            return Err(ManifestError::Skills { count });
        }
        if !skills.iter().all(|skill| is_file_name(&skill.name)) {
            return Err(ManifestError::SkillName);
        }
        tools.sort_by(|a, b| (&a.server, &a.name, &a.id).cmp(&(&b.server, &b.name, &b.id)));
        skills.sort_by(|a, b| a.name.cmp(&b.name));
        let material = HashInput {
            schema_version: mooring_stubs::SCHEMA_VERSION,
            // What is made of the same tools may be another in another version.
            form: (env!("CARGO_PKG_VERSION"), mooring_stubs::FORM),
            runtime: [
                mooring_stubs::RUNTIME_PYTHON,
                mooring_stubs::RUNTIME_TYPESCRIPT,
            ],
            server: server.as_str(),
            stub_language: language.as_str(),
            stub_format: mooring_stubs::format_word(format),
            tools: &tools,
            skills: &skills,
        };
        let json = serde_json::to_vec(&material).map_err(ManifestError::Describe)?;
        let hash =
            ContentHash::parse(digest::hex(&json).as_bytes()).map_err(ManifestError::Hash)?;
        Ok(Self {
            server: server.clone(),
            language,
            format,
            tools: tools.into(),
            skills: skills.into(),
            hash,
        })
    }

    /// The SHA-256 of all of it, in hexadecimal digits: what the record's `content_hash` holds.
    #[must_use]
    pub fn content_hash(&self) -> &ContentHash {
        &self.hash
    }

    /// The server whose sessions these are mounted into.
    #[must_use]
    pub fn server(&self) -> &ServerName {
        &self.server
    }
}

fn is_file_name(name: &str) -> bool {
    !matches!(name, "" | "." | "..")
        && name.len() <= 255
        && !name.contains(['/', '\0'])
        && !mooring_stubs::is_own_name(name)
}
