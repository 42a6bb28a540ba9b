//! `[telemetry]`: where traces of requests are sent, and of how many.
//!
//! The names of the OpenTelemetry specification are read too, after those of the gateway: they are in the environment of
//! many deployments already.

use http::Uri;
use percent_encoding::percent_decode_str;

use super::reader::{Reader, Reason, list, text};
use super::rows::settings;
use super::servers::{Instance, UpstreamHeaders, parse_headers};
use super::setting::Text;

/// Most resource attributes.
const ATTRIBUTES_MAX: usize = 64;
/// Longest resource attribute, in bytes.
const ATTRIBUTE_BYTES_MAX: usize = 512;

settings! {
    /// Where traces of requests are sent, and of how many.
    pub struct TelemetrySettings {
        /// The collector that gets the traces of requests, over OTLP with protobuf in HTTP: `/v1/traces` is added to the
        /// URL. Port 4318 is usual; the other usual port, 4317, is gRPC, which is not spoken.
        pub otlp_endpoint: Option<Uri> =
            Text("telemetry.otlp_endpoint", 2048, "an http or https URL, without credentials, a query and a fragment", None)
                .contextforge_name("OTEL_EXPORTER_OTLP_ENDPOINT")
                .unset("nothing is traced") => text(parse_endpoint),
        /// Headers that every request to the collector carries, such as its credentials. A value `env:NAME` is taken from
        /// the environment variable NAME. Values are never logged. Those of OTEL_EXPORTER_OTLP_HEADERS are sent too.
        pub headers: UpstreamHeaders = Map("telemetry.headers", 32,
            "a table of header names, each with a text of printable characters or \"env:NAME\"")
            .unset("none") => parse_headers,
        /// Which part of the requests is traced whose senders have not decided that: 1 for all, 0 for none. A sender that
        /// names its trace (`traceparent`, as a header or in `_meta`) has decided.
        pub sample_ratio: f64 = Text("telemetry.sample_ratio", 32, "a text with a number from 0 to 1, such as \"0.05\"", Some("1"))
            .contextforge_name("OTEL_TRACES_SAMPLER_ARG") => parse_ratio,
        /// What the traces call this service; the worker's name and boot are its instance.
        pub service_name: String = Text("telemetry.service_name", 256, "1 to 256 bytes", Some("mooring"))
            .contextforge_name("OTEL_SERVICE_NAME")
            => |reader, row| reader.text(row, |name| Ok(name.to_owned())).unwrap_or_default(),
        /// What else the traces say of this process, such as `deployment.environment.name=production`.
        pub resource_attributes: Vec<(String, String)> = List("telemetry.resource_attributes", ATTRIBUTES_MAX,
            ATTRIBUTE_BYTES_MAX, "name=value, with other characters than letters and digits of a value as %XX where needed")
            .contextforge_name("OTEL_RESOURCE_ATTRIBUTES")
            .unset("none") => list(parse_attribute),
    }
}

fn parse_endpoint(text: &str) -> Result<Uri, Reason> {
    let uri = Instance::parse(text)?.uri().clone();
    match uri.query() {
        Some(_) => Err("it has a query".to_owned()),
        None => Ok(uri),
    }
}

fn parse_ratio(reader: &mut Reader<'_>, row: &'static Text) -> f64 {
    let ratio = reader.text(row, |text| {
        let number = text.parse::<f64>().map_err(|_| Reason::new())?;
        let is_ratio = (0.0..=1.0).contains(&number);
        is_ratio.then_some(number).ok_or_else(Reason::new)
    });
    // A value that was refused is never used.
    ratio.unwrap_or_default()
}

fn parse_attribute(text: &str) -> Result<(String, String), Reason> {
    let (name, value) = text.split_once('=').ok_or("it has no =")?;
    let (name, value) = (name.trim(), percent_decode_str(value.trim()));
    let value = value.decode_utf8().map_err(|_| "its value is not UTF-8")?;
    match name.is_empty() {
        true => Err("it has no name".to_owned()),
        false => Ok((name.to_owned(), value.into_owned())),
    }
}
