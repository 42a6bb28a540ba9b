//! The macros by which a setting is one row: [`settings!`] makes the fields of a struct from rows, [`inherited!`] makes
//! rows that a server can override, and [`words!`] makes an enum from the words of a choice. From a row follow the
//! field, its parser, its messages and its place in every generated document.
//!
//! A row is the help text as a doc comment, the field with its type, and the shape with its key, its limits and what
//! [`SettingInfo`](crate::setting::SettingInfo) may add to it:
//!
//! ```text
//! /// How long a session lives after its last use.
//! pub session_ttl: Duration = Integer("affinity.ttl_seconds", "seconds", 3600, 1..=2_592_000)
//!     .contextforge_name("MCPGATEWAY_SESSION_AFFINITY_TTL"),
//! ```
//!
//! Where the type alone does not say how it is read ([`SettingValue`](crate::reader::SettingValue)), a function or
//! closure of the reader and the row follows behind `=>`. A field without a shape is no row; it is computed by what
//! follows behind `=>` from the reader and from the fields above it.

/// A struct of settings, or a list of rows that several structs share; see the module.
macro_rules! settings {
    (
        $(#[$attribute:meta])*
        $vis:vis struct $name:ident $(($($argument:ident: $argument_type:ty),+))? {
            $(
                $(#[doc = $doc:literal])+
                $field_vis:vis $field:ident: $type:ty
                $(= $shape:ident($key:literal $(, $value:expr)* $(,)?) $(.$modifier:ident($text:expr))*)?
                $(=> $read:expr)?
            ),+ $(,)?
        }
    ) => {
        $(#[$attribute])*
        #[derive(Debug, Clone, PartialEq)]
        $vis struct $name {
            $($(#[doc = $doc])+ $field_vis $field: $type,)+
        }

        #[allow(non_upper_case_globals, reason = "a row has the name of its field")]
        impl $name {
            $($crate::rows::settings! {
                @row [$($doc),+] $field: $type; $($shape($key $(, $value)*) [$($modifier($text))*])?
            })+

            /// Its rows.
            pub(crate) const ROWS: &'static [$crate::setting::Setting] =
                &[$($($crate::setting::Setting::$shape(&Self::$field),)?)+];

            /// Reads every field in turn. What is wrong is noted.
            pub(crate) fn read(
                reader: &mut $crate::reader::Reader<'_>
                $($(, $argument: $argument_type)+)?
            ) -> Self {
                $(let $field: $type =
                    $crate::rows::settings!(@read reader $field [$($shape)?] [$($read)?]);)+
                Self { $($field),+ }
            }

            /// The keys of the fields that `other` has otherwise; of a computed field its name.
            #[allow(dead_code, reason = "not every struct is compared field by field")]
            pub(crate) fn changed_keys(&self, other: &Self) -> Vec<&'static str> {
                let mut keys = Vec::new();
                $(if self.$field != other.$field {
                    keys.push($crate::rows::settings!(@key $field $($key)?));
                })+
                keys
            }
        }
    };
    (
        $(#[$attribute:meta])*
        $vis:vis const $rows:ident {
            $(
                $(#[doc = $doc:literal])+
                $name:ident = $shape:ident($key:literal $(, $value:expr)* $(,)?)
                $(.$modifier:ident($text:expr))*
            ),+ $(,)?
        }
    ) => {
        $(
            $(#[doc = $doc])+
            pub(crate) const $name: $crate::setting::$shape = $crate::setting::$shape::new(
                $crate::setting::SettingInfo::new($key, concat!($($doc),+)) $(.$modifier($text))*,
                $($value),*
            );
        )+

        $(#[$attribute])*
        $vis const $rows: &[$crate::setting::Setting] =
            &[$($crate::setting::Setting::$shape(&$name)),+];
    };
    (@row [$($doc:literal),+] $field:ident: $type:ty;) => {};
    (@row [$($doc:literal),+] $field:ident: $type:ty; Choice($key:literal) [$($modifier:ident($text:expr))*]) => {
        pub(crate) const $field: $crate::setting::Choice = $crate::setting::Choice::new(
            $crate::setting::SettingInfo::new($key, concat!($($doc),+)) $(.$modifier($text))*,
            $crate::setting::words::<$type>
        );
    };
    (
        @row [$($doc:literal),+] $field:ident: $type:ty;
        $shape:ident($key:literal $(, $value:expr)*) [$($modifier:ident($text:expr))*]
    ) => {
        pub(crate) const $field: $crate::setting::$shape = $crate::setting::$shape::new(
            $crate::setting::SettingInfo::new($key, concat!($($doc),+)) $(.$modifier($text))*,
            $($value),*
        );
    };
    (@key $field:ident $key:literal) => {
        $key
    };
    (@key $field:ident) => {
        stringify!($field)
    };
    (@read $reader:ident $field:ident [$shape:ident] []) => {
        $reader.read(&Self::$field)
    };
    (@read $reader:ident $field:ident [$shape:ident] [$read:expr]) => {
        $reader.read_by(&Self::$field, $read)
    };
    (@read $reader:ident $field:ident [] [$read:expr]) => {
        $reader.compute($read)
    };
}

/// A struct of settings that `[code]` has as the default of all servers. A row whose key is followed by `/` and the name
/// of a field of `[[servers]]`, and by `/` and another name of that field if it has one, can be set for each server too.
macro_rules! inherited {
    (
        $(#[$attribute:meta])*
        $vis:vis struct $name:ident {
            $(
                $(#[doc = $doc:literal])+
                $field_vis:vis $field:ident: $type:ty
                = $shape:ident($key:literal $(/ $own:literal $(/ $alias:literal)?)? $(, $value:expr)* $(,)?)
                $(.$modifier:ident($text:expr))*
                $(=> $read:expr)?
            ),+ $(,)?
        }
    ) => {
        $(#[$attribute])*
        #[derive(Debug, Clone, PartialEq)]
        $vis struct $name {
            $($(#[doc = $doc])+ $field_vis $field: $type,)+
        }

        #[allow(non_upper_case_globals, reason = "a row has the name of its field")]
        impl $name {
            $(const $field: $crate::setting::InheritedSetting<$crate::setting::$shape> = $crate::setting::InheritedSetting {
                standard: $crate::rows::inherited!(
                    @row $type; $shape($($value),*)
                    $crate::setting::SettingInfo::new($key, concat!($($doc),+)) $(.$modifier($text))*
                ),
                own: $crate::rows::inherited!(
                    @own [$($doc),+] $key $(/ $own $(/ $alias)?)?; $type; $shape($($value),*)
                ),
            };)+

            /// The rows of `[code]`.
            pub(crate) const ROWS: &'static [$crate::setting::Setting] =
                &[$($crate::setting::Setting::$shape(&Self::$field.standard)),+];

            /// The rows of one server.
            pub(crate) const OWN_ROWS: &'static [$crate::setting::Setting] = &[$($(
                match ($own, &Self::$field.own) {
                    (_, Some(own)) => $crate::setting::Setting::$shape(own),
                    (_, None) => $crate::setting::Setting::$shape(&Self::$field.standard),
                },
            )?)+];

            /// Reads what `[code]` says or, with the result of that, what one server says.
            pub(crate) fn read(
                reader: &mut $crate::reader::Reader<'_>,
                standard: Option<&Self>,
            ) -> Self {
                $(let $field: $type = reader.inherit(
                    &Self::$field,
                    standard.map(|standard| &standard.$field),
                    $crate::rows::inherited!(@read $($read)?),
                );)+
                Self { $($field),+ }
            }
        }
    };
    (@row $type:ty; Choice() $about:expr) => {
        $crate::setting::Choice::new($about, $crate::setting::words::<$type>)
    };
    (@row $type:ty; $shape:ident($($value:expr),*) $about:expr) => {
        $crate::setting::$shape::new($about, $($value),*)
    };
    (@own [$($doc:literal),+] $key:literal; $($row:tt)*) => {
        None
    };
    (@own [$($doc:literal),+] $key:literal / $own:literal $(/ $alias:literal)?; $($row:tt)*) => {
        Some($crate::rows::inherited!(
            @row $($row)*
            $crate::setting::SettingInfo::new(concat!("servers.", $own), concat!($($doc),+))
                .aliases(&[$($alias)?])
                .unset(concat!("as `", $key, "` says"))
        ))
    };
    (@read) => {
        |reader, row| reader.read(row)
    };
    (@read $read:expr) => {
        $read
    };
}

/// An enum whose variants are the words of a choice, each with its meaning as its doc comment; the first is the default.
/// A word may have another one that means the same.
macro_rules! words {
    (
        $(#[$attribute:meta])*
        $vis:vis enum $name:ident {
            $(#[doc = $doc:literal])+ $variant:ident = $word:literal
            $(, $(#[doc = $docs:literal])+ $variants:ident = $words:literal $(or $alias:literal)?)* $(,)?
        }
    ) => {
        $(#[$attribute])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        $vis enum $name {
            $(#[doc = $doc])+ $variant,
            $($(#[doc = $docs])+ $variants,)*
        }

        impl $crate::setting::Words for $name {
            const DEFAULT: $crate::setting::Word<Self> = ($word, Self::$variant, concat!($($doc),+));
            const OTHERS: &'static [$crate::setting::Word<Self>] = &[$(
                ($words, Self::$variants, concat!($($docs),+)),
                $(($alias, Self::$variants, concat!("the same as `", $words, "`")),)?
            )*];
        }
    };
}

pub(crate) use {inherited, settings, words};
