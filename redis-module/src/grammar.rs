//! The declaration of a command's arguments, from which COMMAND DOCS, the reference page and the parser are generated.
//!
//! Invariant: the description of an argument and its parser are in the same row.

/// Declares the arguments of a command: the list `ARGUMENTS`, and the function `parse` that reads them.
///
/// `parse<'a>(key) -> Request { rows }` reads a key first, `parse<'a>()` does not. Each row names a variable. Positional
/// rows come first; a client may send the others in any order:
///
/// - `text(NAME, reader)`, `integer(NAME, reader)`: one word, read by a function of its bytes; `secret(NAME, reader)`: a
///   text that SLOWLOG and MONITOR do not show;
/// - `rest(SPEC, reader)`: all remaining words, read by a function of the parser; `None` if there are none;
/// - `required(TOKEN, value)`, `optional(TOKEN, value)`: an option, whose value is one word as above, or a
///   `block(NAME, PARTS, reader)` of several words, read by a function of the parser;
/// - `either(NAME, TOKEN => value, TOKEN => value)`: one of two options, or none; the values have one type;
/// - `repeated(TOKEN, block(..))`: the same any number of times, gathered by a function of the parser and the variable;
/// - `word(TOKEN, NAME, absent => given)`: a token without a value.
///
/// The request is the struct of all variables, or what follows `=>`.
macro_rules! grammar {
    (parse<$a:lifetime>($($key:ident)?) -> $request:ty {
        $($name:ident: $kind:ident $row:tt,)*
    } => $built:expr) => {
        /// The arguments as registered with Redis.
        const ARGUMENTS: &[$crate::command_spec::ArgumentSpec] = &[
            $($crate::command_spec::ArgumentSpec::$key(),)?
            $($crate::grammar::grammar!(@spec $kind $row),)*
        ];

        /// Parses the words of the command, its name first.
        pub(super) fn parse<$a>(
            words: impl $crate::arguments::Words<$a>,
        ) -> Result<$request, $crate::failure::Failure> {
            let mut words = $crate::arguments::Parser::new(words);
            let read = read_words(&mut words);
            if read.is_err() {
                words.redact_all(ARGUMENTS);
            }
            read
        }

        #[allow(unused_variables, reason = "some commands have no options")]
        fn read_words<$a>(
            words: &mut $crate::arguments::Parser<impl $crate::arguments::Words<$a>>,
        ) -> Result<$request, $crate::failure::Failure> {
            $(words.$key()?;)?
            $($crate::grammar::grammar!(@begin words $name $kind $row);)*
            let mut seen = $crate::arguments::SeenOptions::default();
            while let Some(token) = words.option(ARGUMENTS, &mut seen)? {
                $($crate::grammar::grammar!(@take words token $name $kind $row);)*
            }
            $($crate::grammar::grammar!(@end $name $kind $row);)*
            $built
        }
    };
    (parse<$a:lifetime>($($key:ident)?) -> $request:ident { $($name:ident: $kind:ident $row:tt,)* }) => {
        $crate::grammar::grammar! {
            parse<$a>($($key)?) -> $request { $($name: $kind $row,)* } => Ok($request { $($name),* })
        }
    };

    // The description for the server.
    (@spec text($name:expr, $read:expr)) => { $crate::command_spec::ArgumentSpec::text($name) };
    (@spec secret($name:expr, $read:expr)) => { $crate::command_spec::ArgumentSpec::secret($name) };
    (@spec integer($name:expr, $read:expr)) => { $crate::command_spec::ArgumentSpec::integer($name) };
    (@spec block($name:expr, $parts:expr, $read:expr)) => {
        $crate::command_spec::ArgumentSpec::block($name, $parts)
    };
    (@spec rest($spec:expr, $read:expr)) => { $spec };
    (@spec required($token:expr, $kind:ident $value:tt)) => {
        $crate::grammar::grammar!(@spec $kind $value).after($token)
    };
    (@spec optional($token:expr, $kind:ident $value:tt)) => {
        $crate::grammar::grammar!(@spec $kind $value).after($token).optional()
    };
    (@spec repeated($token:expr, $kind:ident $value:tt)) => {
        $crate::grammar::grammar!(@spec $kind $value).after($token).optional().multiple()
    };
    (@spec either(
        $name:expr,
        $first:expr => $first_kind:ident $first_value:tt,
        $second:expr => $second_kind:ident $second_value:tt
    )) => {{
        const ALTERNATIVES: &[$crate::command_spec::ArgumentSpec] = &[
            $crate::grammar::grammar!(@spec $first_kind $first_value).after($first),
            $crate::grammar::grammar!(@spec $second_kind $second_value).after($second),
        ];
        $crate::command_spec::ArgumentSpec::either($name, ALTERNATIVES)
    }};
    (@spec word($token:expr, $name:expr, $absent:expr => $given:expr)) => {
        $crate::command_spec::ArgumentSpec::word($name, $token)
    };

    // The variable before the options are read.
    (@begin $words:ident $name:ident rest($spec:expr, $read:expr)) => {
        let $name = if $words.is_at_end() { None } else { Some($read($words)?) };
    };
    (@begin $words:ident $name:ident required $row:tt) => { let mut $name = None; };
    (@begin $words:ident $name:ident optional $row:tt) => { let mut $name = None; };
    (@begin $words:ident $name:ident either $row:tt) => { let mut $name = None; };
    (@begin $words:ident $name:ident repeated $row:tt) => { let mut $name = Default::default(); };
    (@begin $words:ident $name:ident word($token:expr, $name_shown:expr, $absent:expr => $given:expr)) => {
        let mut $name = $absent;
    };
    (@begin $words:ident $name:ident $kind:ident $row:tt) => {
        let $name = $crate::grammar::grammar!(@read $words $kind $row);
    };

    // What follows an option's token.
    (@take $words:ident $seen:ident $name:ident required($token:expr, $kind:ident $value:tt)) => {
        if $seen == $token {
            $name = Some($crate::grammar::grammar!(@read $words $kind $value));
        }
    };
    (@take $words:ident $seen:ident $name:ident optional($token:expr, $kind:ident $value:tt)) => {
        $crate::grammar::grammar!(@take $words $seen $name required($token, $kind $value));
    };
    (@take $words:ident $seen:ident $name:ident either(
        $shown:expr,
        $first:expr => $first_kind:ident $first_value:tt,
        $second:expr => $second_kind:ident $second_value:tt
    )) => {
        $crate::grammar::grammar!(@take $words $seen $name required($first, $first_kind $first_value));
        $crate::grammar::grammar!(@take $words $seen $name required($second, $second_kind $second_value));
    };
    (@take $words:ident $seen:ident $name:ident repeated($token:expr, block($shown:expr, $parts:expr, $read:expr))) => {
        if $seen == $token {
            $read($words, &mut $name)?;
        }
    };
    (@take $words:ident $seen:ident $name:ident word($token:expr, $shown:expr, $absent:expr => $given:expr)) => {
        if $seen == $token {
            $name = $given;
        }
    };
    (@take $words:ident $seen:ident $name:ident $kind:ident $row:tt) => {};

    (@read $words:ident block($name:expr, $parts:expr, $read:expr)) => { $read($words)? };
    (@read $words:ident secret($name:expr, $read:expr)) => { $words.secret($read)? };
    (@read $words:ident $kind:ident($name:expr, $read:expr)) => { $words.name($read)? };

    // The variable after that.
    (@end $name:ident required($token:expr, $kind:ident $value:tt)) => {
        let $name = $name.ok_or($crate::failure::Failure::Missing($token))?;
    };
    (@end $name:ident $kind:ident $row:tt) => {};
}

pub(crate) use grammar;
