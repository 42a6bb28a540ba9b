//! 101 to 108: machines that lack a wall. The sandbox refuses to run there and says which wall it was, or goes on with
//! all that it claims.
//!
//! What a machine lacks is taken away from one process: by a system call filter, as container engines do, or by mounts
//! and limits in a user namespace.

use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::Command;

use mooring_sandbox::{Program, RunError, Runtime, Sandbox, StopHandle, Tier};
use seccompiler::{BpfProgram, TargetArch, compile_from_json};
use serde_json::{Value, json};

use crate::arena::{limits, options, trees};
use crate::driver::{HIDDEN_MEMORY, Scene, command};
use crate::planted::Planted;
use crate::who::{Binaries, TIERS, as_each};

/// The filter that `docker-compose.yml` puts the gateways under.
const OWN_PROFILE: &str = "../../deploy/seccomp.json";

/// 101: what container engines deny by default, and what the profile of this repository gives back.
#[test]
fn a_container_needs_the_profile_that_is_shipped() {
    as_each(
        "platform::a_container_needs_the_profile_that_is_shipped",
        |planted| {
            let shipped = profile(|_| true);
            let said = say(planted, Tier::Strict, &shipped);
            assert_works(&said);

            let default = profile(|comment| !comment.starts_with("What the sandbox needs"));
            let said = say(planted, Tier::Strict, &default);
            assert!(
                said.contains("refused: sandbox_unavailable: namespaces"),
                "{said}"
            );
            assert_works(&say(planted, Tier::Degraded, &default));
        },
    );
}

/// 101: a machine that was set to have none.
#[test]
fn no_user_namespaces_no_strict_tier() {
    as_each("platform::no_user_namespaces_no_strict_tier", |planted| {
        let script = "echo 0 > /proc/sys/user/max_user_namespaces";
        let said = output(&mut in_namespaces(
            script,
            &command(Scene::Probe, Tier::Strict, planted),
        ));
        assert!(
            said.contains("refused: sandbox_unavailable: namespaces"),
            "{said}"
        );
    });
}

/// 102, 103: without the kernel's own walls neither tier runs anything.
#[test]
fn without_landlock_or_seccomp_nothing_runs() {
    as_each(
        "platform::without_landlock_or_seccomp_nothing_runs",
        |planted| {
            for tier in TIERS {
                let landlock = denied(
                    &json!([{ "syscall": "landlock_create_ruleset" }]),
                    libc::ENOSYS,
                );
                let said = say(planted, tier, &[landlock]);
                assert!(
                    said.contains("refused: sandbox_unavailable: landlock"),
                    "{tier}: {said}"
                );

                let prctl = json!({
                    "syscall": "prctl",
                    "args": [{ "index": 0, "type": "dword", "op": "eq", "val": libc::PR_SET_SECCOMP }],
                });
                let seccomp = denied(&json!([{ "syscall": "seccomp" }, prctl]), libc::EINVAL);
                let said = say(planted, tier, &[seccomp]);
                assert!(
                    said.contains("refused: sandbox_unavailable: seccomp"),
                    "{tier}: {said}"
                );
            }
        },
    );
}

/// 104: a session's directory that no overlay can stand on, here because it is two overlays deep already.
#[test]
fn without_an_overlay_nothing_runs() {
    as_each("platform::without_an_overlay_nothing_runs", |planted| {
        let script = format!(
            "mount -t tmpfs none {outside} && cd {outside} && mkdir a b c upper work one
             mount -t overlay none -o lowerdir=a,upperdir=upper,workdir=work one
             mount -t overlay none -o lowerdir=one:b {scratch} && cd /",
            outside = planted.outside().display(),
            scratch = planted.scratch().display(),
        );
        let said = output(&mut in_namespaces(
            &script,
            &command(Scene::Probe, Tier::Strict, planted),
        ));
        assert!(
            said.contains("layers: "),
            "the control has to stand where a session lies elsewhere: {said}"
        );
        assert!(
            said.contains("run refused: sandbox_unavailable: overlay"),
            "{said}"
        );
        assert!(!said.contains("fine"), "{said}");
    });
}

/// 105: no control group can be made, and the memory of a run is bounded all the same.
#[test]
fn without_control_groups_a_watchdog_stands_in() {
    as_each(
        "platform::without_control_groups_a_watchdog_stands_in",
        |planted| {
            let script = "mount -t tmpfs -o ro none /sys/fs/cgroup";
            let driver = command(Scene::Probe, Tier::Strict, planted);
            let said = output(&mut in_namespaces(script, &driver));
            assert!(said.contains("Watchdog"), "{said}");
            assert_works(&said);
        },
    );
}

/// 112: the watchdog counts what no process's resident pages show.
#[test]
fn without_control_groups_hidden_memory_is_bounded() {
    as_each(
        "platform::without_control_groups_hidden_memory_is_bounded",
        |planted| {
            for (name, source) in HIDDEN_MEMORY {
                let mut control = Command::new("/usr/bin/python3");
                control.args(["-I", "-S", "-c", source]);
                control.current_dir(planted.outside().join("scratch"));
                assert_eq!(output(&mut control), "done\n", "the control of {name}");
                let _ = std::fs::remove_file(planted.outside().join("scratch/sparse"));
            }
            let script = "mount -t tmpfs -o ro none /sys/fs/cgroup";
            let driver = command(Scene::HiddenMemory, Tier::Strict, planted);
            let said = output(&mut in_namespaces(script, &driver));
            assert!(said.contains("Watchdog"), "{said}");
            let stopped = said.matches("run: Stopped(Memory)").count();
            assert_eq!(stopped, HIDDEN_MEMORY.len(), "{said}");
        },
    );
}

/// 113: the watchdog sees that a run has as many processes and threads as it may have.
#[test]
fn without_control_groups_a_run_with_all_its_processes_is_told() {
    as_each(
        "platform::without_control_groups_a_run_with_all_its_processes_is_told",
        |planted| {
            let script = "mount -t tmpfs -o ro none /sys/fs/cgroup";
            let driver = command(Scene::ManyThreads, Tier::Strict, planted);
            let said = output(&mut in_namespaces(script, &driver));
            assert!(said.contains("Watchdog"), "{said}");
            assert!(
                said.contains("16 threads: Stopped(WallTime) [Processes]"),
                "{said}"
            );
            assert!(said.contains("4 threads: Stopped(WallTime) []"), "{said}");
        },
    );
}

/// 106: a machine on which nothing can be written.
#[test]
fn a_read_only_machine_will_do() {
    as_each("platform::a_read_only_machine_will_do", |planted| {
        let script = "mount -o remount,bind,ro / && ! touch /tmp/abuse-mark 2>/dev/null";
        assert_works(&output(&mut in_namespaces(
            script,
            &command(Scene::Probe, Tier::Strict, planted),
        )));
    });
}

/// 107: a runtime that is not there is named, and how to get it; the others go on.
#[test]
fn a_missing_runtime_is_named() {
    as_each("platform::a_missing_runtime_is_named", |planted| {
        let mut options = options(Tier::Strict, &Binaries::of_this_process());
        options.deno = Some("/nowhere/deno".into());
        let sandbox = Sandbox::probe(options).unwrap();
        assert!(matches!(sandbox.runtimes().deno, Runtime::Missing { .. }));
        let run = |program| {
            let job = mooring_sandbox::Job {
                program,
                trees: trees(planted),
                limits: limits(),
                bridge: None,
                network: mooring_sandbox::Network::None,
            };
            sandbox.run(job, &StopHandle::new().unwrap())
        };
        let refused = run(Program::TypeScript {
            source: "1".to_owned(),
        })
        .unwrap_err();
        let RunError::RuntimeMissing { name, remedy } = &refused else {
            panic!("{refused}");
        };
        assert!(name == "deno" && remedy.contains("install"), "{refused}");
        assert_eq!(
            run(Program::Python {
                source: "1".to_owned()
            })
            .unwrap()
            .stdout
            .bytes,
            b""
        );
    });
}

/// 108: the disk is full when a run is to be kept: the files of the session stay as they were, and the next run is kept.
#[test]
fn a_full_disk_keeps_the_old_files() {
    as_each("platform::a_full_disk_keeps_the_old_files", |planted| {
        let script = format!(
            "mount -t tmpfs -o size=256k,mode=755 none {session}
             mkdir -p {scratch} {results} && echo old > {scratch}/old.txt",
            session = planted.session().display(),
            scratch = planted.scratch().display(),
            results = planted.results().display(),
        );
        let driver = command(Scene::Commit, Tier::Strict, planted);
        let said = output(&mut in_namespaces(&script, &driver));
        let lines: Vec<&str> = said.lines().filter(|line| line.contains(": ")).collect();
        let at = lines
            .iter()
            .position(|line| line.contains("commit refused: "))
            .expect(&said);
        assert_eq!(lines[at + 1], "scratch: [\"old.txt\"]", "{said}");
        assert_eq!(lines[at + 2], "committed: 8000 bytes", "{said}");
        assert_eq!(
            lines[at + 3],
            "scratch: [\"new.txt\", \"old.txt\"]",
            "{said}"
        );
    });
}

/// The walls stood, a plain run worked, and one that wanted too much memory did not get it.
fn assert_works(said: &str) {
    assert!(said.contains("layers: "), "{said}");
    assert!(said.contains("run: Exited(0) fine"), "{said}");
    assert!(
        !said.contains("run refused") && !said.contains("314572800"),
        "{said}"
    );
}

/// What the probe says under these filters.
fn say(planted: &Planted, tier: Tier, filters: &[BpfProgram]) -> String {
    let mut command = command(Scene::Probe, tier, planted);
    let filters = filters.to_vec();
    let install = move || {
        for filter in &filters {
            seccompiler::apply_filter(filter).map_err(|_| std::io::Error::last_os_error())?;
        }
        Ok(())
    };
    // SAFETY: what is called between fork and exec makes two system calls for each filter, and allocates nothing.
    unsafe { command.pre_exec(install) };
    output(&mut command)
}

/// `command` after `script`, as the root of a user namespace with mounts of its own.
fn in_namespaces(script: &str, command: &Command) -> Command {
    let mut outer = Command::new("/usr/bin/unshare");
    outer.args(["--user", "--map-root-user", "--mount", "/bin/sh", "-euc"]);
    outer
        .arg(format!("{script}\nexec \"$0\" \"$@\""))
        .arg(command.get_program())
        .args(command.get_args());
    for (name, value) in command.get_envs() {
        outer.env(name, value.unwrap_or_default());
    }
    outer
}

fn output(command: &mut Command) -> String {
    let output = command.output().unwrap();
    [output.stdout, output.stderr]
        .map(|bytes| String::from_utf8_lossy(&bytes).into_owned())
        .concat()
}

/// The shipped profile as the kernel gets it from a container engine, with those entries whose comments are `kept`.
fn profile(kept: impl Fn(&str) -> bool) -> [BpfProgram; 2] {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join(OWN_PROFILE);
    let profile: Value = serde_json::from_str(&std::fs::read_to_string(file).unwrap()).unwrap();
    assert_eq!(profile["defaultAction"], "SCMP_ACT_ERRNO");
    let mut allowed = Vec::new();
    let mut missing = Vec::new();
    for entry in profile["syscalls"].as_array().unwrap() {
        for name in entry["names"].as_array().unwrap() {
            if entry["action"] == "SCMP_ACT_ERRNO" {
                assert_eq!(entry["errnoRet"], libc::ENOSYS);
                missing.push(json!({ "syscall": name }));
                // The engine has one filter with two answers; here, the second filter's is the stricter one.
                allowed.push(json!({ "syscall": name }));
            } else if kept(entry["comment"].as_str().unwrap()) {
                allowed.push(rule(name, &entry["args"]));
            } else if name == "clone" {
                let none = json!({ "masked_eq": 0x7E02_0000_u64 });
                allowed.push(json!({
                    "syscall": name,
                    "args": [{ "index": 0, "type": "qword", "op": none, "val": 0 }],
                }));
            }
        }
    }
    let main = json!({ "mismatch_action": { "errno": libc::EPERM }, "match_action": "allow", "filter": allowed });
    [compile(&main), denied(&Value::Array(missing), libc::ENOSYS)]
}

fn rule(name: &Value, arguments: &Value) -> Value {
    let Some(arguments) = arguments.as_array() else {
        return json!({ "syscall": name });
    };
    let arguments: Vec<Value> = arguments
        .iter()
        .map(|argument| {
            assert_eq!(argument["op"], "SCMP_CMP_EQ");
            json!({ "index": argument["index"], "type": "qword", "op": "eq", "val": argument["value"] })
        })
        .collect();
    json!({ "syscall": name, "args": arguments })
}

/// Allows everything but these, which get `errno`.
fn denied(calls: &Value, errno: i32) -> BpfProgram {
    compile(
        &json!({ "mismatch_action": "allow", "match_action": { "errno": errno }, "filter": calls }),
    )
}

fn compile(filter: &Value) -> BpfProgram {
    let text = json!({ "filter": filter }).to_string();
    let architecture = TargetArch::try_from(std::env::consts::ARCH).unwrap();
    compile_from_json(text.as_bytes(), architecture)
        .unwrap()
        .remove("filter")
        .unwrap()
}
