//! The file of a key ring: who may read it, and how one is made.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use super::{KEY_BYTES_MIN, KeyRing, LineProblem, TextError};

/// Most bytes of the file: eight keys and room for remarks.
const FILE_BYTES_MAX: u64 = 64 * 1024;
/// What nobody but the owner may have.
const MODE_OF_OTHERS: u32 = 0o077;
/// The same for a file of root's, which its group may read.
const MODE_OF_OTHERS_IF_ROOTS: u32 = 0o037;
const ROOT: u32 = 0;

/// Why there is no key ring.
#[derive(Debug, thiserror::Error)]
pub enum KeyRingError {
    /// The file cannot be opened.
    #[error("cannot open the key file {}", path.display())]
    Open {
        /// The file.
        path: PathBuf,
        /// Why.
        #[source]
        error: io::Error,
    },
    /// It is a directory, a pipe or the like.
    #[error("the key file {} is not a regular file", path.display())]
    NotAFile {
        /// The file.
        path: PathBuf,
    },
    /// Others than its owner can read or write it.
    #[error("the key file {} has mode {mode:04o}: only its owner may read it (0600 or 0400; 0640 where it is root's)", path.display())]
    Exposed {
        /// The file.
        path: PathBuf,
        /// Its permission bits.
        mode: u32,
    },
    /// It is larger than a key file can be.
    #[error("the key file {} is larger than {FILE_BYTES_MAX} bytes", path.display())]
    TooLarge {
        /// The file.
        path: PathBuf,
    },
    /// It cannot be read.
    #[error("cannot read the key file {}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// Why.
        #[source]
        error: io::Error,
    },
    /// A line is no key.
    #[error("the key file {}, line {line}: {problem}", path.display())]
    Line {
        /// The file.
        path: PathBuf,
        /// The line, from 1.
        line: usize,
        /// What is wrong with it.
        problem: LineProblem,
    },
    /// There is no key in it.
    #[error("the key file {} has no key", path.display())]
    Empty {
        /// The file.
        path: PathBuf,
    },
    /// There was no file, and none could be made.
    #[error("cannot make the key file {}", path.display())]
    Generate {
        /// The file.
        path: PathBuf,
        /// Why.
        #[source]
        error: io::Error,
    },
}

pub(super) fn read(path: &Path) -> Result<KeyRing, KeyRingError> {
    let path_buf = || path.to_owned();
    let failed_to_read = |error| KeyRingError::Read {
        path: path_buf(),
        error,
    };
    // A pipe would be waited for, so it is opened without waiting and refused below.
    let mut file = OpenOptions::new()
        .read(true)
        .custom_flags(NONBLOCK)
        .open(path)
        .map_err(|error| KeyRingError::Open {
            path: path_buf(),
            error,
        })?;
    let about = file.metadata().map_err(failed_to_read)?;
    if !about.is_file() {
        return Err(KeyRingError::NotAFile { path: path_buf() });
    }
    let of_others = if about.uid() == ROOT {
        MODE_OF_OTHERS_IF_ROOTS
    } else {
        MODE_OF_OTHERS
    };
    if about.mode() & of_others != 0 {
        return Err(KeyRingError::Exposed {
            path: path_buf(),
            mode: about.mode() & 0o7777,
        });
    }
    let text = read_at_most(&mut file).map_err(failed_to_read)?;
    let Some(text) = text else {
        return Err(KeyRingError::TooLarge { path: path_buf() });
    };
    KeyRing::parse(&text).map_err(|error| match error {
        TextError::Line { line, problem } => KeyRingError::Line {
            path: path_buf(),
            line,
            problem,
        },
        TextError::Empty => KeyRingError::Empty { path: path_buf() },
    })
}

const NONBLOCK: i32 = rustix::fs::OFlags::NONBLOCK.bits().cast_signed();

/// The whole file; none where it is too large.
fn read_at_most(file: &mut File) -> io::Result<Option<Vec<u8>>> {
    let mut text = Vec::new();
    let read = file.take(FILE_BYTES_MAX + 1).read_to_end(&mut text)?;
    let is_within = u64::try_from(read).is_ok_and(|read| read <= FILE_BYTES_MAX);
    Ok(is_within.then_some(text))
}

/// Makes a file with one random key. Where another process was faster, its file stays.
pub(super) fn generate(path: &Path) -> Result<(), KeyRingError> {
    let failed = |error| KeyRingError::Generate {
        path: path.to_owned(),
        error,
    };
    let name = path
        .file_name()
        .ok_or_else(|| failed(io::ErrorKind::InvalidInput.into()))?;
    let mut new_name = name.to_owned();
    new_name.push(format!(".{:016x}.new", rand::random::<u64>()));
    let new = path.with_file_name(new_name);
    let made = write_key(&new).and_then(|()| match fs::hard_link(&new, path) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        linked => linked,
    });
    // The name that is left over would be harmless, so failing to remove it fails nothing.
    let _ = fs::remove_file(&new);
    made.map_err(failed)
}

/// The key is on the disk before it has its name: a file that can be found is whole.
fn write_key(path: &Path) -> io::Result<()> {
    let mut file = OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(path)?;
    let mut text = String::from(
        "# What the workers that share this store prove themselves to each other with. Keep it secret.\n",
    );
    for byte in rand::random::<[u8; KEY_BYTES_MIN]>() {
        text.push_str(&format!("{byte:02x}"));
    }
    text.push('\n');
    file.write_all(text.as_bytes())?;
    file.sync_all()
}
