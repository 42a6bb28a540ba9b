//! The table of the metrics of one file: help text, kind, name, and the series that a scrape shows before the first event.

/// A row for each metric, whose doc comment is its help text; `zero` registers its series with the value 0, by the values
/// of a label or without one. `fn describe` is the function that registers all.
///
/// ```ignore
/// metrics! {
///     pub(super) fn describe;
///     /// Log lines that were not written, by reason.
///     LOST = counter("mooring_log_lines_lost_total").zero("reason", LogLoss::VARIANTS);
/// }
/// ```
#[macro_export]
macro_rules! metrics {
    (
        $(#[$describe_attribute:meta])* $describe_visibility:vis fn $describe:ident;
        $($(#[doc = $help:literal])+ $visibility:vis $name:ident = $kind:ident($metric:literal)
            $(.zero($($label:literal, $values:expr)?))?;)+
    ) => {
        $($(#[doc = $help])+ $visibility const $name: &str = $metric;)+

        /// Every metric of this file.
        #[cfg(test)]
        pub(crate) const ALL: &[&str] = &[$($name),+];

        $(#[$describe_attribute])*
        $describe_visibility fn $describe() {
            $(
                let help = concat!($($help),+).trim().trim_end_matches('.');
                $crate::metrics!(@describe $kind $name help);
                $($crate::metrics!(@zero $kind $name $($label, $values)?);)?
            )+
        }
    };
    (@describe counter $name:ident $help:ident) => { ::metrics::describe_counter!($name, $help) };
    (@describe gauge $name:ident $help:ident) => { ::metrics::describe_gauge!($name, $help) };
    (@describe histogram $name:ident $help:ident) => { ::metrics::describe_histogram!($name, $help) };
    (@zero counter $name:ident) => { ::metrics::counter!($name).absolute(0) };
    (@zero gauge $name:ident) => { ::metrics::gauge!($name).set(0.0) };
    (@zero counter $name:ident $label:literal, $values:expr) => {
        for value in $values {
            ::metrics::counter!($name, $label => <&'static str>::from(value)).absolute(0);
        }
    };
    (@zero gauge $name:ident $label:literal, $values:expr) => {
        for value in $values {
            ::metrics::gauge!($name, $label => <&'static str>::from(value)).set(0.0);
        }
    };
}
