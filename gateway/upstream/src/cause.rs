//! Why a contact with a server failed: one bounded label for metrics, and a text for clients and operators.
//!
//! Invariant: neither contains a URL, a header or the value of a configured variable. The server's own output is kept
//! separately, so that pages without access control can omit it.

use std::error::Error;
use std::fmt;
use std::io;

use http::StatusCode;

/// The outcome of a contact with an instance: a label value of metrics.
#[derive(Clone, Copy, Debug, PartialEq, Eq, strum::IntoStaticStr, strum::VariantArray)]
#[strum(serialize_all = "snake_case")]
pub enum ContactOutcome {
    /// It answered.
    Ok,
    /// It refused the connection.
    Refused,
    /// No connection for another reason: name resolution, network, timeout.
    Connect,
    /// TLS failed, or the certificate is not trusted.
    Tls,
    /// No answer within the time limit.
    TimedOut,
    /// An HTTP error status.
    Status,
    /// The answer is not MCP.
    Invalid,
    /// The server's program could not be started, or exited before it answered.
    NotStarted,
    /// The connection broke.
    Broken,
}

/// Why a contact failed. `Display` is for clients: the text, and the last line of the server's program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FailureCause {
    /// Never [`ContactOutcome::Ok`].
    pub outcome: ContactOutcome,
    /// The gateway's description.
    pub text: Box<str>,
    /// The last line of the program's stderr, shortened and with known secrets removed.
    pub last_line: Option<Box<str>>,
}

impl FailureCause {
    /// A cause with the gateway's description.
    #[must_use]
    pub fn new(outcome: ContactOutcome, text: impl Into<Box<str>>) -> Self {
        Self {
            outcome,
            text: text.into(),
            last_line: None,
        }
    }

    /// An HTTP status that is an error.
    #[must_use]
    pub fn status(status: StatusCode) -> Self {
        Self::new(ContactOutcome::Status, format!("HTTP status {status}"))
    }
}

impl fmt::Display for FailureCause {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.text)?;
        match &self.last_line {
            Some(line) => write!(formatter, "; it wrote: {line}"),
            None => Ok(()),
        }
    }
}

/// The reason from the resolver, the kernel or TLS why no connection was made, as the causes of the client's error have it.
pub(super) fn connect_text(error: &(dyn Error + 'static)) -> String {
    let mut texts = Vec::<String>::new();
    for cause in causes(error) {
        let text = match cause.downcast_ref::<io::Error>() {
            Some(io) if io.kind() == io::ErrorKind::TimedOut => "timed out".to_owned(),
            _ => cause.to_string(),
        };
        // I/O errors display what they wrap, which would repeat the text.
        if texts.last() != Some(&text) {
            texts.push(text);
        }
    }
    match texts.is_empty() {
        true => "no connection".to_owned(),
        false => texts.join(": "),
    }
}

/// Whether the connection was refused: on a live host, the sign that the process has ended.
#[must_use]
pub fn is_refused(error: &(dyn Error + 'static)) -> bool {
    causes(error)
        .filter_map(|cause| cause.downcast_ref::<io::Error>())
        .any(|io| io.kind() == io::ErrorKind::ConnectionRefused)
}

/// An error with its causes, on one line.
#[must_use]
pub fn with_causes(error: &dyn Error) -> String {
    let (mut text, mut source) = (error.to_string(), error.source());
    while let Some(cause) = source {
        text.push_str(": ");
        text.push_str(&cause.to_string());
        source = cause.source();
    }
    text
}

/// The chain of causes, including those that I/O errors wrap but do not return as their source.
pub fn causes<'a>(
    error: &'a (dyn Error + 'static),
) -> impl Iterator<Item = &'a (dyn Error + 'static)> {
    std::iter::successors(error.source(), |cause| {
        let cause = *cause;
        let io = cause.downcast_ref::<io::Error>();
        match io.and_then(io::Error::get_ref) {
            Some(wrapped) => Some(wrapped as &(dyn Error + 'static)),
            None => cause.source(),
        }
    })
}
