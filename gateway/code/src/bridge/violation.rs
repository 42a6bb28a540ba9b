//! Violations of the bridge's protocol, which no well-behaved program commits. Each becomes a security event.

/// One kind of it, with what was found the first time.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Violation {
    /// The length of a frame is more than any frame may have. Nothing of it was read.
    #[error("frame too large: {bytes} bytes (limit {most})")]
    TooLong {
        /// As the program announced it.
        bytes: u32,
        /// The limit.
        most: usize,
    },
    /// The program's end was closed within a frame: it lied about the length, or was ended while it wrote.
    #[error("the bridge was closed after {bytes} bytes of a frame")]
    CutShort {
        /// The bytes of the incomplete frame, its length field included.
        bytes: usize,
    },
    /// Descriptors were sent along with bytes. They were closed unseen.
    #[error("descriptors were sent over the bridge")]
    Descriptors,
    /// A frame is not a JSON object, in UTF-8, as a whole.
    #[error("a frame is not a JSON object: {0}")]
    NotAnObject(String),
    /// No answer could name what it answers.
    #[error("a frame has no id from 0 to 2^53 - 1")]
    NoId,
    /// The answers of both could not be distinguished.
    #[error("a frame has the id {0} of a call that is open")]
    OpenId(u64),
    /// Answered with an error: the run has made as many calls as it may.
    #[error("more than {most} calls")]
    TooManyCalls {
        /// The limit.
        most: u64,
    },
    /// Answered with an error: arguments too deep.
    #[error("arguments deeper than {most}")]
    TooDeep {
        /// The limit.
        most: usize,
    },
}

impl Violation {
    /// Whether what comes after it cannot be understood.
    pub(super) const fn ends_reading(&self) -> bool {
        !matches!(self, Self::TooManyCalls { .. } | Self::TooDeep { .. })
    }

    /// The word for it in the log.
    pub(super) const fn as_str(&self) -> &'static str {
        match self {
            Self::TooLong { .. } => "frame_too_long",
            Self::CutShort { .. } => "frame_cut_short",
            Self::Descriptors => "descriptors_sent",
            Self::NotAnObject(_) => "frame_not_an_object",
            Self::NoId => "frame_without_id",
            Self::OpenId(_) => "id_in_use",
            Self::TooManyCalls { .. } => "too_many_calls",
            Self::TooDeep { .. } => "arguments_too_deep",
        }
    }
}
