//! The trace context of a sender, as W3C Trace Context writes it.
//!
//! Invariant: a context that is not valid is none, so that the request begins a trace of its own.

use std::fmt::Write as _;
use std::str::FromStr as _;

use opentelemetry::trace::{SpanContext, SpanId, TraceFlags, TraceId, TraceState};

/// Bytes of a `traceparent` of version 00. Later versions may be longer.
const BYTES: usize = 55;

/// Longest `tracestate` that is kept, in bytes: each span of the request has it, and none has to be longer (W3C Trace Context,
/// 3.3.1.5).
const STATE_BYTES_MAX: usize = 512;

/// The span of a sender.
#[derive(Clone, Debug, PartialEq)]
pub struct RemoteContext(SpanContext);

impl RemoteContext {
    /// The context in these values; none if `traceparent` is not valid. A `tracestate` that is not valid is left out.
    #[must_use]
    pub fn parse(traceparent: &str, tracestate: Option<&str>) -> Option<Self> {
        let part = |from, to| traceparent.get(from..to).filter(|part| is_hex(part));
        let is_separated = [2, 35, 52].map(|at| traceparent.as_bytes().get(at) == Some(&b'-'));
        let version = part(0, 2).filter(|version| *version != "ff")?;
        let is_whole = match traceparent.as_bytes().get(BYTES) {
            None => true,
            Some(next) => version != "00" && *next == b'-',
        };
        if !is_whole || is_separated != [true; 3] {
            return None;
        }
        let trace = TraceId::from_hex(part(3, 35)?).ok()?;
        let span = SpanId::from_hex(part(36, 52)?).ok()?;
        let flags = u8::from_str_radix(part(53, BYTES)?, 16).ok()?;
        // Other flags than these are not known, and not forwarded (W3C Trace Context, 4.2.1).
        let flags = TraceFlags::new(flags) & TraceFlags::SAMPLED;
        let state = tracestate.filter(|state| flags.is_sampled() && state.len() <= STATE_BYTES_MAX);
        let state = state.and_then(|state| TraceState::from_str(state).ok());
        let context = SpanContext::new(trace, span, flags, true, state.unwrap_or_default());
        context.is_valid().then_some(Self(context))
    }

    /// Whether its trace is recorded.
    #[must_use]
    pub fn is_sampled(&self) -> bool {
        self.0.is_sampled()
    }

    pub(crate) const fn span_context(&self) -> &SpanContext {
        &self.0
    }
}

/// The context as a `traceparent`.
pub(crate) fn to_traceparent(context: &SpanContext) -> String {
    let mut text = String::with_capacity(BYTES);
    let (trace, span) = (context.trace_id(), context.span_id());
    let flags = context.trace_flags().to_u8();
    // Writing to a string cannot fail.
    let _ = write!(text, "00-{trace}-{span}-{flags:02x}");
    text
}

fn is_hex(text: &str) -> bool {
    text.bytes()
        .all(|byte| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests fail by panicking")]
    use super::*;

    const VALID: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

    #[test]
    fn a_context_is_taken_as_the_standard_reads_it() {
        #[track_caller]
        fn check(traceparent: &str, is_sampled: Option<bool>) {
            let context = RemoteContext::parse(traceparent, None);
            assert_eq!(
                context.map(|context| context.is_sampled()),
                is_sampled,
                "{traceparent}"
            );
        }
        check(VALID, Some(true));
        check(&VALID.replace("-01", "-00"), Some(false));
        check(&VALID.replace("-01", "-03"), Some(true));
        // A later version, with what it adds.
        check(&VALID.replacen("00", "cc", 1), Some(true));
        check(
            &format!("{}-what", VALID.replacen("00", "cc", 1)),
            Some(true),
        );
        check(&format!("{VALID}-what"), None);
        check(&format!("{}.", VALID.replacen("00", "cc", 1)), None);
        check(&VALID.replacen("00", "ff", 1), None);
        check(&VALID.to_uppercase(), None);
        check("", None);
        check("00-1-1-01", None);
        check(&VALID.replace("00f067aa0ba902b7", "0000000000000000"), None);
        check(
            &VALID.replace(
                "4bf92f3577b34da6a3ce929d0e0e4736",
                "00000000000000000000000000000000",
            ),
            None,
        );
        check(&VALID.replace('4', "ß"), None);
    }

    #[test]
    fn a_context_is_written_as_it_was_read() {
        let context = RemoteContext::parse(VALID, Some("a=1,b=2")).unwrap();
        assert_eq!(to_traceparent(context.span_context()), VALID);
        assert_eq!(context.span_context().trace_state().header(), "a=1,b=2");
    }
}
