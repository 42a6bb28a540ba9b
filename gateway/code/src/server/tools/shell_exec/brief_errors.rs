//! Errors as an agent needs them: one line for a missing module or a network that is not there, and tracebacks without the
//! frames of the functions that call tools.
//!
//! What an interpreter writes of them are kilobytes about its own library, and "temporary failure in name resolution"
//! invites an agent to try again.
//!
//! Invariant: only what the interpreter itself wrote at the end of a failed program is shortened; what the program wrote
//! before stays.

/// How python's description of an uncaught exception begins.
const TRACEBACK: &str = "Traceback (most recent call last):\n";
/// How the error of a module that is not installed begins.
const NO_MODULE: &str = "ModuleNotFoundError: No module named ";
/// What python's errors say where the system has no sockets.
const NO_SOCKETS: [&str; 2] = [
    "Temporary failure in name resolution",
    "Function not implemented",
];
/// How deno's error begins where code may not use the network, and what follows the address.
const NO_NET_ACCESS: &str = "NotCapable: Requires net access to ";
const NET_ACCESS_ADVICE: &str = ", run again with the --allow-net flag";
/// Where a traceback names a line of the program.
const OWN_LINE: &str = "code/main.py\", line ";

/// How a frame of a traceback begins, and a frame of the functions that call tools.
const FRAME: &str = "  File \"";
const RUNTIME_FRAME: &str = "tools/_runtime.py\", line ";

const NO_NETWORK: &str = "code has no network here";

/// The error output of a failed program, with one line in place of a traceback that says no more, and other tracebacks
/// without the frames of the functions that call tools. `wanted_network`: whether the program tried to make a socket and
/// was refused.
pub(super) fn shortened(stderr: &str, wanted_network: bool) -> Option<String> {
    shortened_python(stderr, wanted_network).or_else(|| shortened_deno(stderr))
}

fn shortened_python(stderr: &str, wanted_network: bool) -> Option<String> {
    let start = match stderr.starts_with(TRACEBACK) {
        true => 0,
        false => stderr.find(&format!("\n{TRACEBACK}"))? + 1,
    };
    let (before, traceback) = stderr.split_at_checked(start)?;
    let error = traceback.trim_end().lines().last()?;
    let is_network = wanted_network && NO_SOCKETS.iter().any(|text| error.contains(text));
    if !is_network && !error.starts_with(NO_MODULE) {
        return without_runtime_frames(traceback).map(|shorter| format!("{before}{shorter}"));
    }
    let line = match own_line(traceback) {
        Some(line) => format!(" (line {line})"),
        None => String::new(),
    };
    Some(match is_network {
        true => format!("{before}{NO_NETWORK}: {error}{line}\n"),
        false => format!("{before}{error}{line}: {}\n", module_advice(error)),
    })
}

/// What to do about a module that is not there.
fn module_advice(error: &str) -> &'static str {
    let module = error.strip_prefix(NO_MODULE).unwrap_or_default();
    match module.trim_start_matches('\'').split(['.', '\'']).next() {
        Some("tools") => "tool_search finds what can be imported",
        Some("skills") => "/skills has what can be imported",
        _ => {
            "only the standard library is here, and modules in /scratch after sys.path.append('.')"
        }
    }
}

/// A traceback without the frames of the functions that call tools, which say nothing about the program. None if it has
/// no such frames.
fn without_runtime_frames(traceback: &str) -> Option<String> {
    let mut is_skipped = false;
    let mut shorter = String::with_capacity(traceback.len());
    for line in traceback.split_inclusive('\n') {
        if line.starts_with(FRAME) || !line.starts_with(' ') {
            is_skipped = line.starts_with(FRAME) && line.contains(RUNTIME_FRAME);
        }
        if !is_skipped {
            shorter.push_str(line);
        }
    }
    (shorter.len() < traceback.len()).then_some(shorter)
}

/// The program's last own line that a traceback names.
fn own_line(traceback: &str) -> Option<&str> {
    let (_, rest) = traceback.rsplit_once(OWN_LINE)?;
    let end = rest.find(|character: char| !character.is_ascii_digit());
    rest.get(..end.unwrap_or(rest.len()))
}

fn shortened_deno(stderr: &str) -> Option<String> {
    let (head, rest) = stderr.split_once(NO_NET_ACCESS)?;
    let (address, stack) = rest.split_once(NET_ACCESS_ADVICE)?;
    let is_uncaught = head.rsplit('\n').next()?.contains("Uncaught");
    let is_last = stack
        .lines()
        .skip(1)
        .all(|line| line.starts_with(' ') || line.is_empty());
    let before = head
        .rfind('\n')
        .map_or("", |end| head.get(..=end).unwrap_or_default());
    (is_uncaught && is_last).then(|| format!("{before}{NO_NETWORK}: {NO_NET_ACCESS}{address}\n"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(stderr: &str, wanted_network: bool, expected: Option<&str>) {
        assert_eq!(
            shortened(stderr, wanted_network).as_deref(),
            expected,
            "{stderr}"
        );
    }

    #[test]
    fn each_error_that_one_line_says_is_one_line() {
        let module = "Traceback (most recent call last):\n  File \"/code/main.py\", line 3, in <module>\n    import pandas\n\
                      ModuleNotFoundError: No module named 'pandas'\n";
        let short = "ModuleNotFoundError: No module named 'pandas' (line 3): only the standard library is here, and \
                     modules in /scratch after sys.path.append('.')\n";
        check(module, false, Some(short));
        check(
            &format!("a warning\n{module}"),
            false,
            Some(&format!("a warning\n{short}")),
        );
        let network = "Traceback (most recent call last):\n  File \"/usr/lib/python3.11/socket.py\", line 5, in f\n\
                       socket.gaierror: [Errno -3] Temporary failure in name resolution\n\n\
                       During handling of the above exception, another exception occurred:\n\n\
                       Traceback (most recent call last):\n  File \"/run/7/code/main.py\", line 12, in <module>\n\
                       urllib.error.URLError: <urlopen error [Errno -3] Temporary failure in name resolution>\n";
        check(
            network,
            true,
            Some(
                "code has no network here: urllib.error.URLError: <urlopen error [Errno -3] Temporary failure in name \
                 resolution> (line 12)\n",
            ),
        );
        check(network, false, None);
        check(
            "error: Uncaught (in promise) NotCapable: Requires net access to \"a.example:443\", run again with the \
             --allow-net flag\nawait fetch(1)\n",
            false,
            None,
        );
        check(
            "first\nerror: Uncaught (in promise) NotCapable: Requires net access to \"a.example:443\", run again with the \
             --allow-net flag\n    at main (file:///code/main.ts:1:7)\n",
            false,
            Some(
                "first\ncode has no network here: NotCapable: Requires net access to \"a.example:443\"\n",
            ),
        );
    }

    #[test]
    fn frames_of_the_functions_that_call_tools_are_left_out() {
        let failed = "Traceback (most recent call last):\n  File \"/code/main.py\", line 2, in <module>\n    \
                      print(get_order(id=999))\n          ^^^^^^^^^^^^^^^^^\n  File \"/tools/_runtime.py\", line 411, in \
                      invoke\n    return call(server, name)\n           ^^^^\n  File \"/tools/_runtime.py\", line 240, in \
                      _result\n    raise ToolError(message)\ntools._runtime.ToolError: no order 999\n  and a second line\n";
        let expected = "last\nTraceback (most recent call last):\n  File \"/code/main.py\", line 2, in <module>\n    \
                        print(get_order(id=999))\n          ^^^^^^^^^^^^^^^^^\ntools._runtime.ToolError: no order \
                        999\n  and a second line\n";
        check(&format!("last\n{failed}"), false, Some(expected));
        let missing = "Traceback (most recent call last):\n  File \"/code/main.py\", line 1, in <module>\n\
                       ModuleNotFoundError: No module named 'tools.github'\n";
        let expected = "ModuleNotFoundError: No module named 'tools.github' (line 1): tool_search finds what can be imported\n";
        check(missing, false, Some(expected));
    }

    #[test]
    fn other_errors_keep_their_tracebacks() {
        let other = "Traceback (most recent call last):\n  File \"/code/main.py\", line 1, in <module>\n\
                     ValueError: ModuleNotFoundError: No module named 'a'\n";
        check(other, true, None);
        check("ModuleNotFoundError: No module named 'a'\n", true, None);
        check("", true, None);
    }
}
