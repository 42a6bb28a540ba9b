//! 50 to 54: floods of output, input that never comes, and output that is a trap for whoever reads it.

use mooring_sandbox::RunEnd;

use crate::arena::limits;
use crate::outside::Control;
use crate::who::everybody;

/// 50, 51: whatever is written is taken, so that nobody waits for a reader, and little of it is kept.
#[test]
fn floods_are_drained_and_cut() {
    const FLOODS: [(u16, &str); 3] = [
        (
            50,
            "import os\nfor _ in range(256): os.write(1, b'x' * 65536)",
        ),
        (
            51,
            "import os\nfor _ in range(256): os.write(2, b'x' * 65536)",
        ),
        (
            51,
            "import os\nfor _ in range(128): os.write(2, b'x' * 65536); os.write(1, b'x' * 65536)",
        ),
    ];
    const WRITTEN: u64 = 256 * 65_536;
    everybody("output::floods_are_drained_and_cut", |arena| {
        for (number, source) in FLOODS {
            let control = arena.python_outside(source, Control::Plain);
            assert_eq!(control.len() as u64, WRITTEN, "the control of {number}");
            let run = arena.python(source);
            let kept = (run.stdout.len() + run.stderr.len()) as u64;
            assert_eq!(run.ended, RunEnd::Exited(0), "{number}");
            assert_eq!(run.stdout_written + run.stderr_written, WRITTEN, "{number}");
            assert!(
                kept > 0 && kept <= 2 * limits().output_bytes as u64,
                "{number}: {kept} bytes are kept"
            );
        }
        arena.is_fine();
    });
}

/// 52: nobody types anything, and nobody waits for it.
#[test]
fn reading_the_input_ends_at_once() {
    everybody("output::reading_the_input_ends_at_once", |arena| {
        let run = arena.python("import sys; print(repr(sys.stdin.read()))");
        assert_eq!(
            (run.ended, run.stdout.as_str()),
            (RunEnd::Exited(0), "''\n")
        );
        let run = arena.typescript_within(
            "console.log(await new Response(Deno.stdin.readable).text(), 'end')",
            limits(),
        );
        assert_eq!(
            (run.ended, run.stdout.as_str()),
            (RunEnd::Exited(0), " end\n"),
            "{}",
            run.stderr
        );
    });
}

/// 54: what a run says is bytes; nobody here unpacks or parses them.
#[test]
fn a_bomb_in_the_output_is_only_bytes() {
    everybody("output::a_bomb_in_the_output_is_only_bytes", |arena| {
        let nested = "print('[' * 100000 + ']' * 100000)";
        let parse = "import json\ntry:\n    json.loads('[' * 100000)\nexcept RecursionError:\n    print('done')";
        assert_eq!(arena.python_outside(parse, Control::Plain), "done\n");
        let run = arena.python(nested);
        assert_eq!((run.ended, run.stdout.len()), (RunEnd::Exited(0), 200_001));
        let run =
            arena.python("import os; os.write(1, bytes(range(256)) * 100 + b'\\x1b[2J\\xff\\xfe')");
        assert_eq!((run.ended, run.stdout_written), (RunEnd::Exited(0), 25_606));
    });
}
