//! Where a server is reached over HTTP: the URL of each instance in one spelling, which is also the instance's name in
//! session records.

use std::fmt;

use http::Uri;
use url::Url;

use crate::reader::Reason;

/// Longest URL in bytes: the limit of an instance's name in a session record.
const URL_BYTES_MAX: usize = 128;

/// Where one instance of a server is reached. Equal instances have equal names, whatever way the URL was
/// written: every gateway of a fleet must know an instance by the same name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Instance {
    name: String,
    uri: Uri,
}

impl Instance {
    /// Parses an absolute http or https URL without credentials and without a fragment.
    pub(crate) fn parse(text: &str) -> Result<Self, Reason> {
        let url = Url::parse(text).map_err(|error| format!("it is not a URL: {error}"))?;
        if !matches!(url.scheme(), "http" | "https") {
            return Err(format!("its scheme is {:?}", url.scheme()));
        }
        if !url.username().is_empty() || url.password().is_some() {
            return Err("it holds credentials; put them into `headers`".to_owned());
        }
        if url.fragment().is_some() {
            return Err("it has a fragment, which never reaches a server".to_owned());
        }
        let name = url.to_string();
        if name.len() > URL_BYTES_MAX {
            return Err(format!(
                "it has {} bytes, more than {URL_BYTES_MAX}, the longest name of an instance in a \
                 session record",
                name.len()
            ));
        }
        let uri = name
            .parse()
            .map_err(|error| format!("it cannot be requested: {error}"))?;
        Ok(Self { name, uri })
    }

    /// The URL in its one spelling; what session records call this instance.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The URL as the HTTP client wants it.
    pub fn uri(&self) -> &Uri {
        &self.uri
    }
}

impl fmt::Display for Instance {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.name)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

    use super::*;

    #[test]
    fn one_instance_has_one_name() {
        #[track_caller]
        fn check(written: &str, name: &str) {
            let instance = Instance::parse(written).unwrap();
            assert_eq!(instance.name(), name);
            assert_eq!(instance.uri().to_string(), name);
        }
        check("http://127.0.0.1:9001/mcp", "http://127.0.0.1:9001/mcp");
        check("HTTP://Tools.Example:80/mcp", "http://tools.example/mcp");
        check("https://tools.example", "https://tools.example/");
        check(
            "http://[::1]:9001/a/../mcp?x=1",
            "http://[::1]:9001/mcp?x=1",
        );
    }
}
