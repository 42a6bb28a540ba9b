//! URI templates (RFC 6570), as far as needed to find the template that a URI may match.
//!
//! An expression matches any text here, also an empty one: the servers decide what exists, the group only which of them
//! to call. Invariant: matching takes time linear in the URI and the template.

/// The literal parts of a template, which are separated by expressions.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct UriTemplate {
    first: Box<str>,
    /// The literal after each expression.
    after: Vec<Box<str>>,
}

impl UriTemplate {
    /// Parses the template; none if its braces do not pair.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let mut pieces = text.split('{');
        let first = pieces.next()?;
        let mut after: Vec<Box<str>> = Vec::new();
        for piece in pieces {
            let (_expression, literal) = piece.split_once('}')?;
            after.push(literal.into());
        }
        let unpaired = |literal: &str| literal.contains('}');
        if unpaired(first) || after.iter().any(|literal| unpaired(literal)) {
            return None;
        }
        Some(Self {
            first: first.into(),
            after,
        })
    }

    /// The number of bytes of the URI that the literals match, if the URI matches: the template with the higher number
    /// is more specific.
    pub(crate) fn fits(&self, uri: &str) -> Option<usize> {
        let mut rest = uri.strip_prefix(&*self.first)?;
        let mut fixed = self.first.len();
        let Some((last, between)) = self.after.split_last() else {
            return rest.is_empty().then_some(fixed);
        };
        for literal in between {
            let at = rest.find(&**literal)?;
            rest = rest.get(at.checked_add(literal.len())?..)?;
            fixed = fixed.saturating_add(literal.len());
        }
        rest.ends_with(&**last)
            .then(|| fixed.saturating_add(last.len()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(template: &str, uri: &str, expected: Option<usize>) {
        let fits = UriTemplate::parse(template).and_then(|template| template.fits(uri));
        assert_eq!(fits, expected, "{template} {uri}");
    }

    #[test]
    fn a_uri_fits_where_the_literal_parts_stand_in_their_order() {
        check(
            "test://template/{id}/data",
            "test://template/7/data",
            Some(21),
        );
        check("test://template/{id}/data", "test://template/7/dat", None);
        check("test://{a}/{b}", "test://x/y/z", Some(8));
        check("test://{a}/{b}", "test://x", None);
        check("a{x}b{y}b", "abb", Some(3));
        check("a{x}b{y}b", "ab", None);
        check("file:///{+path}", "file:///a/b c", Some(8));
        check("u:1{?q*}", "u:1", Some(3));
        check("{+any}", "whatever:1", Some(0));
    }

    #[test]
    fn a_template_without_an_expression_is_a_uri() {
        check("u:1", "u:1", Some(3));
        check("u:1", "u:12", None);
    }

    #[test]
    fn braces_that_do_not_pair_fit_nothing() {
        for broken in ["u:{x", "u:x}", "u:{x}}", "u:{x{y}", "}{"] {
            assert_eq!(UriTemplate::parse(broken), None, "{broken}");
        }
    }
}
