//! 44 to 46: more files, and more in them, than a run may leave.

use mooring_sandbox::{RunEnd, StopReason, Tier};

use crate::attack::{Attack, attack, check_python};
use crate::outside::Control;
use crate::who::everybody_in;

/// A hard limit of the strict tier. The degraded one watches, and stops a run.
const DISK: &[Attack] = &[
    attack(
        44,
        "20 files of 1 MB",
        r#"
made = []
try:
    for number in range(20):
        made.append(f"{SCRATCH}/part-{number}")
        with open(made[-1], "wb") as file:
            file.write(b"x" * (1 << 20))
finally:
    for name in made:
        os.remove(name)"#,
    ),
    attack(
        45,
        "400 files",
        r#"
made = []
try:
    for number in range(400):
        open(f"{SCRATCH}/file-{number}", "wb").close()
        made.append(f"{SCRATCH}/file-{number}")
finally:
    for name in made:
        os.remove(name)"#,
    ),
    attack(
        46,
        "100 MB in /tmp",
        r#"
made = []
try:
    for number in range(100):
        made.append(f"/tmp/abuse-mark-{os.getuid()}-{number}")
        with open(made[-1], "wb") as file:
            file.write(b"x" * (1 << 20))
finally:
    for name in made:
        if os.path.exists(name):
            os.remove(name)"#,
    ),
    attack(
        46,
        "40 MB in /dev/shm",
        r#"
made = []
try:
    for number in range(40):
        made.append(f"/dev/shm/abuse-mark-{os.getuid()}-{number}")
        with open(made[-1], "wb") as file:
            file.write(b"x" * (1 << 20))
finally:
    for name in made:
        if os.path.exists(name):
            os.remove(name)"#,
    ),
];

#[test]
fn the_disk_of_the_strict_tier_has_an_end() {
    let name = "disk::the_disk_of_the_strict_tier_has_an_end";
    everybody_in(&[Tier::Strict], name, |arena| {
        check_python(arena, Control::Plain, &[], DISK);
    });
}

/// 44, 45: where nothing can be laid over the session's files, whoever writes too much is stopped.
#[test]
fn the_disk_of_the_degraded_tier_is_watched() {
    const GREEDY: [(u16, &str); 2] = [
        (
            44,
            "for n in range(20): open(f'part-{n}', 'wb').write(b'x' * (1 << 20))",
        ),
        (45, "for n in range(400): open(f'file-{n}', 'wb').close()"),
    ];
    let name = "disk::the_disk_of_the_degraded_tier_is_watched";
    everybody_in(&[Tier::Degraded], name, |arena| {
        for (number, source) in GREEDY {
            let source =
                format!("{source}\nprint('done', flush=True)\nimport time\ntime.sleep(3)\n");
            let control = arena.python_outside(&source, Control::Plain);
            assert_eq!(control, "done\n", "the control of {number}");
            let run = arena.python(&source);
            assert_eq!(
                run.ended,
                RunEnd::Stopped(StopReason::Disk),
                "{number}: {run:?}"
            );
        }
        arena.is_fine();
    });
}
