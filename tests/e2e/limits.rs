//! Tests of process limits. Each run ends with the limit's name and code 3, or is unaffected. None accuses hardware,
//! panics or dies by a signal.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Stdio};

use serde_json::Value;

use crate::common::{
    Ran, check, codes, finish, is_there, list, peerscope, place, program, read_json, say,
};
use crate::common::{skipped, skipped_for_want_of, text_of, with};
use crate::fake::Fake;
use crate::two_checks::{as_nobody, is_root};

const QUICK: [&str; 5] = ["check", "--profile", "quick", "--format", "json"];

/// Runs the command under a limit, which a shell sets.
fn under(limit: &str, command: &Command) -> Command {
    let mut limited = Command::new("bash");
    limited.args(["-c", &format!("ulimit {limit} && exec \"$0\" \"$@\"")]);
    limited.arg(command.get_program()).args(command.get_args()).stdin(Stdio::null());
    for (name, value) in command.get_envs() {
        match value {
            Some(value) => limited.env(name, value),
            None => limited.env_remove(name),
        };
    }
    limited
}

fn simulated(machine: &str) -> Command {
    peerscope(&with(check(machine, "quick"), &["--format", "json"]))
}

/// Checks that the run accuses nothing, and names the limit if not everything was tested.
fn assert_no_accusation(ran: &Ran, limit: &str, what: &str) {
    assert!([Some(0), Some(3)].contains(&ran.code), "{what}: {ran:?}");
    if ran.code == Some(3) {
        assert!(format!("{}{}", ran.stdout, ran.stderr).contains(limit), "{what}: {ran:?}");
    }
    let Ok(report) = serde_json::from_str::<Value>(&ran.stdout) else {
        assert_eq!(ran.code, Some(3), "{what}: no report: {ran:?}");
        return;
    };
    assert!(
        list(&report["findings"]).iter().all(|finding| finding["severity"] != "error"),
        "{what}: {:?}",
        codes(&report)
    );
}

#[test]
fn the_soft_limit_of_open_files_is_raised() {
    for machine in ["h200x8", "two-sockets"] {
        let fake = Fake::new(machine);
        let ran = finish(&mut under("-Sn 24", &fake.command(&QUICK)));
        assert_eq!(ran.code, Some(0), "{machine}: {ran:?}");
        assert_eq!(codes(&ran.json()), [""; 0], "{machine}");
    }
}

#[test]
fn gpus_for_which_there_are_no_files_are_not_accused() {
    for machine in ["h200x8", "two-sockets"] {
        let fake = Fake::new(machine);
        let check = finish(&mut under("-n 24", &fake.command(&QUICK)));
        let topo = finish(&mut under("-n 24", &fake.command(&["topo", "--format", "json"])));
        for (what, ran) in [("check", check), ("topo", topo)] {
            assert_no_accusation(
                &ran,
                "the limit of open files (ulimit -n) is 24",
                &format!("{machine}: {what}"),
            );
            assert_eq!(ran.code, Some(3), "{machine}: {what}: {ran:?}");
            let report = ran.json();
            assert!(
                codes(&report).contains(&"process-limit"),
                "{machine}: {what}: {:?}",
                codes(&report)
            );
        }
    }
}

/// Tests contexts that CUDA cannot create because no file descriptor is left, while NVML had enough.
#[test]
fn what_cuda_says_under_a_limit_accuses_no_gpu() {
    let fake = Fake::new("h200x8");
    let run = |limit: &str| {
        let mut command = fake.command(&QUICK);
        command.env(
            fake_machine::FAULTS,
            "cuDevicePrimaryCtxRetain@3=code:304; cuMemcpyPeerAsync@40=code:304; cuMemcpyPeerAsync@100=code:304",
        );
        std::fs::remove_dir_all(fake.state()).unwrap();
        std::fs::create_dir(fake.state()).unwrap();
        finish(&mut under(limit, &command))
    };
    let limited = run("-n 900");
    assert_no_accusation(
        &limited,
        "the limit of open files (ulimit -n) is 900",
        "304 under a limit",
    );
    assert_eq!(limited.code, Some(3), "{limited:?}");
    // A library crashes for lack of file descriptors, twice in the same round.
    let crashing = |limit: &str| {
        let mut command = fake.command(&[
            "check",
            "--machine",
            "crash",
            "--profile",
            "quick",
            "--format",
            "json",
        ]);
        command.env_remove(fake_machine::FAULTS);
        finish(&mut under(limit, &command))
    };
    let crashed = crashing("-n 900");
    assert_no_accusation(
        &crashed,
        "the limit of open files (ulimit -n) is 900",
        "a crash under a limit",
    );
    assert_eq!((crashed.code, crashing("-n 4096").code), (Some(3), Some(1)), "{crashed:?}");
    // The same errors without a limit that explains them.
    let unlimited = run("-n 4096");
    assert_eq!(unlimited.code, Some(1), "{unlimited:?}");
    assert!(!unlimited.stdout.contains("ulimit"), "{unlimited:?}");
}

/// Tests peer access that CUDA grants and then cannot enable because no file descriptor is left.
#[test]
fn peer_access_that_fails_under_a_limit_accuses_no_gpu() {
    let fake = Fake::new("h200x2");
    let run = |limit: &str| {
        let mut command = fake.command(&QUICK);
        finish(&mut under(
            limit,
            command.env(fake_machine::FAULTS, "cuCtxEnablePeerAccess@1+=code:304"),
        ))
    };
    let limited = run("-n 100");
    assert_no_accusation(
        &limited,
        "the limit of open files (ulimit -n) is 100",
        "304 from cuCtxEnablePeerAccess",
    );
    assert_eq!(limited.code, Some(3), "{limited:?}");
    assert!(codes(&limited.json()).contains(&"process-limit"), "{limited:?}");
    let unlimited = run("-n 4096");
    assert_eq!(unlimited.code, Some(1), "{unlimited:?}");
    assert!(codes(&unlimited.json()).contains(&"peer-access-missing"), "{unlimited:?}");
}

/// Tests the driver's errors for a lack of file descriptors, which are not always system errors.
#[test]
fn every_word_of_the_driver_for_a_lack_of_files_names_the_limit() {
    let fake = Fake::new("h200x2");
    let run = |limit: &str, faults: &str| {
        finish(&mut under(limit, fake.command(&QUICK).env(fake_machine::FAULTS, faults)))
    };
    for faults in [
        "cuMemAlloc_v2@1+=code:2",
        "cuStreamCreate@1+=code:2",
        "cuEventCreate@1+=code:2",
        "cuMemHostAlloc@1+=code:2",
        "cuModuleLoadData@1+=code:2",
        "cuModuleLoadData@1+=code:221",
        "cuCtxEnablePeerAccess@1+=code:2",
        "cuDeviceGetCount@1+=code:100",
    ] {
        let limited = run("-n 60", faults);
        assert_eq!(limited.code, Some(3), "{faults}: {limited:?}");
        assert!(
            limited.stdout.contains("the limit of open files (ulimit -n) is 60"),
            "{faults}: {limited:?}"
        );
        assert_no_accusation(&limited, "(ulimit -n)", faults);
        let unlimited = run("-n 4096", faults);
        assert!(!unlimited.stdout.contains("ulimit"), "{faults}: {unlimited:?}");
    }
}

/// Tests that a limit with room for everything explains nothing.
#[test]
fn address_space_without_end_excuses_no_crash() {
    let crash = || peerscope(&with(check("crash", "quick"), &["--format", "json"]));
    let ran = finish(&mut under(&format!("-v {}", 4_u64 << 30), &crash()));
    assert_eq!(ran.code, Some(1), "{ran:?}");
    assert!(!ran.stdout.contains("ulimit"), "{ran:?}");
    let ran = finish(&mut under(&format!("-v {}", 2 << 20), &crash()));
    assert_eq!(ran.code, Some(3), "{ran:?}");
    assert_no_accusation(&ran, "the limit of address space (ulimit -v) is 2097152 KiB", "2 GiB");
}

#[test]
fn what_nvml_says_without_a_limit_stays_what_it_is() {
    let fake = Fake::new("h200x2");
    let run = |limit: &str| {
        let mut command = fake.command(&["topo", "--format", "json"]);
        let faults = "nvmlDeviceGetHandleByIndex_v2@1+=code:999";
        finish(&mut under(limit, command.env(fake_machine::FAULTS, faults)))
    };
    let unlimited = run("-n 4096");
    assert_eq!(
        (unlimited.code, codes(&unlimited.json()).contains(&"gpu-unreachable")),
        (Some(1), true),
        "{unlimited:?}"
    );
    assert_no_accusation(&run("-n 200"), "the limit of open files (ulimit -n) is 200", "999");
}

#[test]
fn any_number_of_open_files_will_do_or_is_named() {
    let fake = Fake::new("nvlink12");
    let mut seen = Vec::new();
    // From 8 on, the loader and the shell have enough file descriptors.
    for files in [8, 10, 12, 14, 17, 20, 28, 40, 60, 100] {
        let limit = format!("the limit of open files (ulimit -n) is {files}");
        for (what, command) in [("fake", fake.command(&QUICK)), ("simulated", simulated("h200x8"))]
        {
            let ran = finish(&mut under(&format!("-n {files}"), &command));
            // A limit does not decide what the fake's own machine has: only its exit code is checked.
            if what == "simulated" || ran.code != Some(0) {
                seen.push((files, what, ran.code));
            }
            if what == "simulated" {
                assert_no_accusation(&ran, &limit, &format!("{what}, {files}"));
            } else {
                assert!([Some(0), Some(3)].contains(&ran.code), "{what}, {files}: {ran:?}");
            }
        }
    }
    say(&format!("open files: {seen:?}"));
}

#[test]
fn without_threads_or_processes_it_ends_with_that_reason() {
    if !is_root() || !is_there("setpriv") {
        return skipped_for_want_of("root, or setpriv, to be a user whom the limit binds");
    }
    let (folder, binary) = place("peerscope");
    std::fs::copy(program(), &binary).unwrap();
    let fake = Fake::new("h200x8");
    for open in [folder.path(), fake.state().parent().unwrap()] {
        std::fs::set_permissions(open, PermissionsExt::from_mode(0o755)).unwrap();
    }
    std::fs::set_permissions(fake.state(), PermissionsExt::from_mode(0o777)).unwrap();
    let mut seen = Vec::new();
    for most in [1, 2, 3, 4, 5, 6, 8, 12, 20, 30] {
        let limit = format!("the limit of processes and threads (ulimit -u) is {most}");
        for (what, command) in [("fake", fake.command(&QUICK)), ("simulated", simulated("h200x8"))]
        {
            let ran = finish(&mut as_limited_nobody(most, &command, &binary));
            seen.push((most, what, ran.code));
            assert_no_accusation(&ran, &limit, &format!("{what}, {most}"));
            assert!(!ran.stdout.contains("no answer within"), "{what}, {most}: {ran:?}");
        }
    }
    say(&format!("processes: {seen:?}"));
    assert!(seen.iter().any(|(.., code)| *code == Some(3)), "no limit was reached: {seen:?}");

    // A container's limit is named before the user's.
    let group = fake.root().join("sys/fs/cgroup");
    std::fs::create_dir_all(&group).unwrap();
    std::fs::create_dir_all(fake.root().join("proc/self")).unwrap();
    std::fs::write(fake.root().join("proc/self/cgroup"), "0::/\n").unwrap();
    std::fs::write(group.join("pids.max"), "32\n").unwrap();
    std::fs::write(group.join("pids.current"), "32\n").unwrap();
    let ran = finish(&mut as_limited_nobody(3, &fake.command(&QUICK), &binary));
    assert_eq!(ran.code, Some(3), "{ran:?}");
    assert_no_accusation(&ran, "container (pids.max) is 32", "container");
}

/// A control group for this test's processes, with a limit on their number; removed on drop.
struct Group(std::path::PathBuf);

impl Group {
    fn of(most: u32) -> Option<Self> {
        let roots = ["/sys/fs/cgroup/pids", "/sys/fs/cgroup"];
        let group = roots.iter().find_map(|root| {
            let group =
                Self(Path::new(root).join(format!("peerscope-test-{}-{most}", std::process::id())));
            std::fs::create_dir(&group.0).ok()?;
            Some(group).filter(|group| group.0.join("pids.max").exists())
        })?;
        std::fs::write(group.0.join("pids.max"), most.to_string()).ok()?;
        Some(group)
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir(&self.0);
    }
}

/// Tests with a real control group, like that of a container.
#[test]
fn a_container_that_is_full_is_named() {
    let mut seen = Vec::new();
    for most in [2, 4, 8, 12, 16, 60] {
        let Some(group) = Group::of(most) else {
            return skipped("no control group can be made for processes");
        };
        let command = simulated("h200x8");
        let mut inside = Command::new("bash");
        let join = format!("echo $$ > {}/cgroup.procs && exec \"$0\" \"$@\"", group.0.display());
        inside
            .args(["-c", &join])
            .arg(command.get_program())
            .args(command.get_args())
            .env("PEERSCOPE_LOCK", "full");
        let ran = finish(inside.stdin(Stdio::null()));
        seen.push((most, ran.code));
        assert_no_accusation(
            &ran,
            &format!("container (pids.max) is {most}"),
            &format!("{most} processes"),
        );
    }
    say(&format!("processes of a container: {seen:?}"));
    assert!(seen[0].1 == Some(3) && seen.last().unwrap().1 == Some(0), "{seen:?}");
}

/// Runs as a user of its own, so that no other process of the user counts.
fn as_limited_nobody(most: u32, command: &Command, binary: &Path) -> Command {
    let mut plain = Command::new(binary);
    plain.args(command.get_args());
    for (name, value) in command.get_envs() {
        match value {
            Some(value) => plain.env(name, value),
            None => plain.env_remove(name),
        };
    }
    // The limit comes last: a shell needs processes too.
    let mut other = as_nobody(plain, binary);
    let arguments: Vec<_> = other.get_args().map(std::ffi::OsStr::to_owned).collect();
    let at = arguments.iter().position(|argument| argument == binary.as_os_str()).unwrap();
    let mut limited = Command::new("prlimit");
    limited
        .arg(format!("--nproc={most}"))
        .arg("setpriv")
        .args(&arguments[..at])
        .args(&arguments[at..]);
    for (name, value) in other.env("RUST_BACKTRACE", "0").get_envs() {
        match value {
            Some(value) => limited.env(name, value),
            None => limited.env_remove(name),
        };
    }
    limited.stdin(Stdio::null());
    limited
}

/// Without memory the program aborts, or the loader, the kernel or the standard library ends it. Then there is no
/// report. If only the worker ends, the report gives the reason.
#[test]
fn running_out_of_memory_accuses_nothing() {
    // peerscope does not read the limit of data (-d): there is only the error code.
    for (option, limit) in [("-v", Some("the limit of address space (ulimit -v) is")), ("-d", None)]
    {
        let mut seen = Vec::new();
        for mib in [4, 8, 12, 16, 18, 20, 24, 28, 40, 64, 80, 130, 200, 260, 700, 3000] {
            // Do not use the fake driver: its libraries may crash without memory.
            let output =
                under(&format!("{option} {}", mib << 10), &simulated("h200x8")).output().unwrap();
            let what = format!("{option}, {mib} MiB: {output:?}");
            let code = output.status.code();
            seen.push((mib, code));
            match serde_json::from_slice::<Value>(&output.stdout) {
                Ok(report) => {
                    assert!([Some(0), Some(3)].contains(&code), "{what}");
                    let findings = list(&report["findings"]);
                    assert!(findings.iter().all(|one| one["severity"] != "error"), "{what}");
                    let text = String::from_utf8_lossy(&output.stdout);
                    let is_named = limit.is_none_or(|limit| text.contains(limit));
                    assert!(code == Some(0) || is_named, "{what}");
                }
                Err(_) => assert!(![Some(0), Some(1)].contains(&code), "{what}"),
            }
        }
        say(&format!("ulimit {option}: {seen:?}"));
        assert!(seen.iter().any(|(.., code)| *code != Some(0)), "no limit was reached: {seen:?}");
    }
}

#[test]
fn a_driver_that_finds_no_address_space_accuses_no_gpu() {
    let fake = Fake::new("h200x8");
    for faults in [
        "cuInit@1+=code:2",
        "cuInit@1+=code:304",
        "cuDevicePrimaryCtxRetain@2+=code:2",
        "nvmlInit_v2@1+=code:20",
    ] {
        let mut command = fake.command(&QUICK);
        let ran = finish(&mut under("-v 4000000", command.env(fake_machine::FAULTS, faults)));
        assert_eq!(ran.code, Some(3), "{faults}: {ran:?}");
        assert_no_accusation(&ran, "the limit of address space (ulimit -v) is 4000000 KiB", faults);
    }
}

#[test]
fn a_file_that_may_not_grow_is_an_error_and_no_signal() {
    let fake = Fake::new("h200x2");
    for (what, command) in [("fake", fake.command(&QUICK)), ("simulated", simulated("h200x2"))] {
        // Only the journal is missing: everything is tested, and stderr reports what the journal lacks.
        let ran = finish(&mut under("-f 1", &command));
        assert_eq!(ran.code, Some(0), "{what}: {ran:?}");
        assert!(ran.stderr.contains("cannot write the journal"), "{what}: {ran:?}");
        assert!(
            ran.stderr.contains("the limit of the size of files (ulimit -f) is 1024 bytes"),
            "{what}: {ran:?}"
        );

        let (_folder, report) = place("report.json");
        let mut command = under("-f 1", &command);
        let ran = finish(command.args(["-o", &text_of(&report), "--journal=none"]));
        assert_eq!(ran.code, Some(3), "{what}: {ran:?}");
        assert!(
            ran.stderr.contains(&text_of(&report))
                && ran.stderr.contains("(ulimit -f) is 1024 bytes"),
            "{what}: {ran:?}"
        );
        assert!(!report.exists(), "half a report was left");

        let (_folder, stdout) = place("stdout.json");
        let mut to_file = under("-f 1", &simulated("h200x2"));
        let ran = to_file
            .stdout(std::fs::File::create(&stdout).unwrap())
            .stderr(Stdio::piped())
            .output()
            .unwrap();
        let stderr = String::from_utf8(ran.stderr).unwrap();
        assert_eq!(ran.status.code(), Some(3), "{what}: {stderr}");
        assert!(
            stderr.contains("cannot write to stdout") && stderr.contains("(ulimit -f)"),
            "{what}: {stderr}"
        );
    }
    // A full disk is not a limit of the process.
    if Path::new("/dev/full").exists() {
        let mut command = simulated("h200x2");
        let full = std::fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
        let ran = command.stdout(full).stderr(Stdio::piped()).output().unwrap();
        assert_eq!(ran.status.code(), Some(2));
    }
    let (_folder, report) = place("whole.json");
    let ran = finish(under("-f unlimited", &simulated("h200x2")).args(["-o", &text_of(&report)]));
    assert_eq!((ran.code, &read_json(&report)["verdict"]["exit_code"]), (Some(0), &Value::from(0)));
}
