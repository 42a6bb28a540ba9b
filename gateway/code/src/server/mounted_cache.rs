//! The manifests that a code server made last, by everything that determines them.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};

use crate::catalog::{ListedTool, ServerTools};
use crate::volume::MountManifest;
use mooring_settings::Language;

/// Most variants of one server that are remembered: one for each language and set of skills in use.
const REMEMBERED_MAX: usize = 32;
/// Most memory that the tools of the remembered variants take. The one that was used last is remembered always.
const REMEMBERED_BYTES_MAX: usize = 64 * 1024 * 1024;

/// Recently mounted content by its inputs, in order of last use.
#[derive(Debug, Default)]
pub(super) struct MountedCache(Mutex<VecDeque<MountCacheEntry>>);

#[derive(Debug)]
struct MountCacheEntry {
    of: MountInputs,
    mounted: MountManifest,
    memory_bytes: usize,
}

/// Everything that determines a mount manifest: the key of the cache.
#[derive(Clone, Debug)]
pub(super) struct MountInputs {
    pub(super) language: Language,
    pub(super) tools: Vec<ServerTools>,
    /// The tools that the caller may not use, by the places of their server and their own.
    pub(super) denied: Vec<(usize, usize)>,
    /// The digest of the skills.
    pub(super) skills: Box<str>,
}

impl MountInputs {
    /// Whether it is the same, by identity: a list that was read again without a change is the same list.
    fn is(&self, other: &Self) -> bool {
        self.language == other.language
            && self.skills == other.skills
            && self.denied == other.denied
            && self.tools.len() == other.tools.len()
            && (self.tools.iter().zip(&other.tools))
                .all(|(a, b)| a.server == b.server && Arc::ptr_eq(&a.tools, &b.tools))
    }

    fn memory_bytes(&self) -> usize {
        let tools = self.tools.iter().flat_map(|server| server.tools.iter());
        tools.map(ListedTool::memory_bytes).sum()
    }
}

impl MountedCache {
    pub(super) fn find(&self, inputs: &MountInputs) -> Option<MountManifest> {
        let mut remembered = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let at = remembered.iter().position(|one| one.of.is(inputs))?;
        let found = remembered.remove(at)?;
        let mounted = found.mounted.clone();
        remembered.push_back(found);
        Some(mounted)
    }

    pub(super) fn note(&self, inputs: MountInputs, mounted: MountManifest) {
        let memory_bytes = inputs.memory_bytes();
        let mut remembered = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        // Others may have made the same meanwhile.
        remembered.retain(|one| !one.of.is(&inputs));
        let mut all_bytes: usize = remembered.iter().map(|one| one.memory_bytes).sum();
        while remembered.len() >= REMEMBERED_MAX
            || all_bytes.saturating_add(memory_bytes) > REMEMBERED_BYTES_MAX
        {
            let Some(oldest) = remembered.pop_front() else {
                break;
            };
            all_bytes = all_bytes.saturating_sub(oldest.memory_bytes);
        }
        remembered.push_back(MountCacheEntry {
            of: inputs,
            mounted,
            memory_bytes,
        });
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests fail by panicking")]
    use super::*;
    use mooring_session::names::ServerName;
    use serde_json::json;

    /// The memory for a server whose list changes is bounded by the list's size, not by the number of changes.
    #[test]
    fn a_changing_list_does_not_grow_what_is_remembered() {
        let cache = MountedCache::default();
        let server = ServerName::parse(b"tools").unwrap();
        let list = |bytes: usize| {
            let tool = ListedTool {
                name: "a".to_owned(),
                title: None,
                description: "x".repeat(bytes),
                tags: Vec::new(),
                input_schema: json!({}),
                output_schema: None,
                annotations: None,
            };
            MountInputs {
                language: Language::Python,
                tools: vec![ServerTools {
                    server: server.clone(),
                    tools: [tool].into(),
                }],
                denied: Vec::new(),
                skills: "".into(),
            }
        };
        let remembered = || cache.0.lock().unwrap().len();
        let mounted = MountManifest::none(&server, Language::Python).unwrap();
        let of = list(REMEMBERED_BYTES_MAX / 3);
        cache.note(of.clone(), mounted.clone());
        for _ in 0..5 {
            cache.note(list(REMEMBERED_BYTES_MAX / 3), mounted.clone());
        }
        assert_eq!(remembered(), 2, "a third one would be over the limit");
        assert!(cache.find(&of).is_none(), "the oldest is forgotten");
        cache.note(list(REMEMBERED_BYTES_MAX * 2), mounted.clone());
        assert_eq!(
            remembered(),
            1,
            "the last one is remembered however large it is"
        );
        for _ in 0..REMEMBERED_MAX * 2 {
            cache.note(list(1), mounted.clone());
        }
        assert_eq!(remembered(), REMEMBERED_MAX);
    }
}
