//! Tests of two checks of one machine at once: the second names the first, waits or ends, and measures nothing. Live
//! machines are locked, so these tests use the fake driver, whose machines have a lock each.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use crate::common::{
    Ran, codes, finish, is_there, place, read_json, run, signal, skipped_for_want_of, text_of,
    wait, wait_with_output,
};
use crate::fake::Fake;
use crate::provisioning::{IN_SERVICE, health_check, script, stand_in};
use crate::worker_faults::{PATIENCE, child_of, until, until_it_handles_signals};

const QUICK: [&str; 7] = ["check", "--profile", "quick", "--format", "json", "--deadline", "3600"];

/// Starts a check that hangs in one copy, and so holds the machine until [`release`]. Returns once it hangs.
fn holder(fake: &Fake) -> Child {
    let run = hanging(fake.command(&QUICK));
    until_it_is_shown(fake);
    run
}

fn hanging(mut command: Command) -> Child {
    command
        .env(fake_machine::FAULTS, "cuMemcpyPeerAsync@3=hang")
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    command.spawn().unwrap()
}

fn until_it_is_shown(fake: &Fake) {
    let shown = fake.state().join("fault-0.shown");
    until("the hang", PATIENCE, || shown.exists().then_some(()));
}

/// Ends the hang of such a check by the death of its worker: another one makes the measurement. Returns its exit code.
fn release(first: &mut Child) -> Option<i32> {
    signal("KILL", until("a worker", PATIENCE, || child_of(first.id())));
    wait(first).code()
}

fn second(fake: &Fake, more: &[&str]) -> Ran {
    finish(&mut fake.command(&[&QUICK[..], more].concat()))
}

/// Checks that the run measured nothing, reports so, and names this process.
fn assert_refused(ran: &Ran, holder: u32) {
    assert_eq!(ran.code, Some(3), "{ran:?}");
    let words = format!("another peerscope checks this machine: process {holder} of user ");
    assert_eq!(ran.stderr.trim_end().lines().count(), 1, "{ran:?}");
    assert!(ran.stderr.contains(&words) && ran.stderr.contains(", since "), "{ran:?}");
    let report = ran.json();
    assert_eq!(codes(&report), ["nothing-measured"]);
    assert!(report["findings"][0]["message"].as_str().unwrap().contains(&words), "{report}");
    assert_eq!(report["findings"][0]["steps"][0]["id"], "check-in-turn", "{report}");
    assert_eq!(report["verdict"]["verdict"], "inconclusive");
    assert_eq!(report["verdict"]["tested"], 0);
}

#[test]
fn the_second_of_two_says_who_is_there_and_measures_nothing() {
    for machine in ["h200x2", "demo"] {
        let fake = Fake::new(machine);
        let mut first = holder(&fake);
        let ran = second(&fake, &[]);
        assert_refused(&ran, first.id());
        assert!(ran.stderr.contains("--wait TIME"), "{ran:?}");
        let (_folder, file) = place("report.json");
        let line = finish(&mut fake.command(&["check", "--format", "line", "-o", &text_of(&file)]));
        assert_eq!(line.code, Some(3), "{line:?}");
        assert!(
            line.stdout
                .starts_with("PEERSCOPE UNKNOWN - nothing-measured: Nothing was measured: another"),
            "{line:?}"
        );
        assert_eq!(read_json(&file)["verdict"]["exit_code"], 3);
        // Facts disturb nobody, and a simulated machine is never shared.
        let topo = finish(&mut fake.command(&["topo", "--format", "json"]));
        assert_ne!(topo.code, Some(3), "{topo:?}");
        let simulated =
            finish(&mut fake.command(&["check", "--machine", "h200x2", "--profile", "quick"]));
        assert_eq!(simulated.code, Some(0), "{simulated:?}");
        assert!(first.try_wait().unwrap().is_none(), "the first had ended already");
        assert_ne!(release(&mut first), Some(3));
        assert_ne!(second(&fake, &[]).code, Some(3), "it was not given back");
    }
}

/// Containers have networks of their own and share the driver's control device.
#[test]
fn a_check_of_another_container_is_noticed() {
    let fake = Fake::new("h200x2");
    let command = fake.command(&QUICK);
    let root = command.get_envs().find(|(name, _)| *name == "PEERSCOPE_FSROOT").unwrap().1.unwrap();
    let device = Path::new(root).join("dev/nvidiactl");
    std::fs::create_dir_all(device.parent().unwrap()).unwrap();
    let device = std::fs::File::create(device).unwrap();
    assert_eq!(second(&fake, &[]).code, Some(0), "nobody holds it");
    rustix::fs::flock(&device, rustix::fs::FlockOperation::LockExclusive).unwrap();
    let ran = second(&fake, &[]);
    assert_eq!((ran.code, codes(&ran.json())), (Some(3), vec!["nothing-measured"]), "{ran:?}");
    assert!(
        ran.stderr.contains("another peerscope checks this machine: a process that cannot be seen"),
        "{ran:?}"
    );
    drop(device);
    assert_eq!(second(&fake, &[]).code, Some(0), "it was given back");
}

#[test]
fn a_check_can_wait_for_its_turn() {
    let fake = Fake::new("h200x2");
    let mut first = holder(&fake);
    let short = second(&fake, &["--wait", "0.2"]);
    assert_eq!(short.code, Some(3), "{short:?}");
    assert!(short.stderr.contains("did not end within 0.2 s"), "{short:?}");
    let (folder, heard) = place("stderr");
    let out = folder.path().join("stdout");
    let file = |path: &Path| std::fs::File::create(path).unwrap();
    let mut command = fake.command(&[&QUICK[..], &["--wait", "3600"]].concat());
    command.stdout(file(&out)).stderr(file(&heard));
    let mut long = command.spawn().unwrap();
    let words = format!("process {}", first.id());
    until("its wait", PATIENCE, || {
        let told = std::fs::read_to_string(&heard).unwrap();
        (told.contains(&words) && told.contains("waiting for up to")).then_some(())
    });
    assert!(long.try_wait().unwrap().is_none(), "it did not wait");
    let now = finish(Command::new("date").args(["-u", "+%Y-%m-%dT%H:%M:%SZ"])).stdout;
    assert_eq!(release(&mut first), Some(0));
    assert_eq!(wait(&mut long).code(), Some(0));
    let started_at = read_json(&out)["started_at"].as_str().unwrap().to_owned();
    assert!(
        started_at.as_str() >= now.trim(),
        "the wait is no part of the run: {started_at}, {now}"
    );
}

#[test]
fn of_several_that_start_at_once_one_measures() {
    let fake = Fake::new("nvlink12");
    let mut runs: Vec<_> = (0..4).map(|_| hanging(fake.command(&QUICK))).collect();
    until_it_is_shown(&fake);
    until("the end of three", PATIENCE, || {
        let ended = |run: &mut Child| run.try_wait().unwrap().is_some();
        (runs.iter_mut().filter_map(|run| ended(run).then_some(())).count() == 3).then_some(())
    });
    let mut codes = Vec::new();
    for run in &mut runs {
        codes.push(match run.try_wait().unwrap() {
            Some(status) => status.code(),
            None => release(run),
        });
    }
    codes.sort_unstable();
    assert_eq!(codes, [Some(0), Some(3), Some(3), Some(3)]);
}

#[test]
fn what_a_killed_check_leaves_behind_does_no_harm() {
    let fake = Fake::new("h200x2");
    let mut first = holder(&fake);
    first.kill().unwrap();
    first.wait().unwrap();
    let ran = second(&fake, &[]);
    assert_eq!(ran.code, Some(0), "{ran:?}");
}

#[test]
fn a_wait_can_be_interrupted() {
    let fake = Fake::new("h200x2");
    let mut first = holder(&fake);
    let mut command = fake.command(&[&QUICK[..], &["--wait", "3600"]].concat());
    let waiting = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    until_it_handles_signals(waiting.id());
    signal("INT", waiting.id());
    let output = wait_with_output(waiting);
    assert_eq!(output.status.code(), Some(130), "{output:?}");
    let report: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(
        (&report["measurements"]["interrupted"], &report["verdict"]["tested"]),
        (&true.into(), &0.into())
    );
    release(&mut first);
}

/// A check of another user is seen as well, in both directions.
#[test]
fn users_see_each_other() {
    if !is_root() || !is_there("setpriv") {
        return skipped_for_want_of("root, or setpriv, to be another user");
    }
    let fake = Fake::new("h200x2");
    let (folder, binary) = place("peerscope");
    std::fs::copy(env!("CARGO_BIN_EXE_peerscope"), &binary).unwrap();
    for open in [folder.path(), fake.state().parent().unwrap()] {
        std::fs::set_permissions(open, PermissionsExt::from_mode(0o755)).unwrap();
    }
    std::fs::set_permissions(fake.state(), PermissionsExt::from_mode(0o777)).unwrap();
    let mut first = holder(&fake);
    let ran = finish(&mut as_nobody(fake.command(&QUICK), &binary));
    assert_refused(&ran, first.id());
    assert!(ran.stderr.contains("of user root"), "{ran:?}");
    release(&mut first);

    std::fs::remove_file(fake.state().join("fault-0.shown")).unwrap();
    let mut first = hanging(as_nobody(fake.command(&QUICK), &binary));
    until_it_is_shown(&fake);
    let ran = second(&fake, &[]);
    assert_refused(&ran, first.id());
    assert!(!ran.stderr.contains("of user root"), "{ran:?}");
    release(&mut first);
}

pub(crate) fn is_root() -> bool {
    let id = Command::new("id").arg("-u").output();
    id.is_ok_and(|output| output.stdout == b"0\n")
}

/// Returns the same command for a user without rights, with this copy of the program.
pub(crate) fn as_nobody(command: Command, binary: &Path) -> Command {
    let mut other = Command::new("setpriv");
    other
        .args(["--reuid", "65534", "--regid", "65534", "--clear-groups"])
        .arg(binary)
        .args(command.get_args());
    for (name, value) in command.get_envs() {
        match value {
            Some(value) => other.env(name, value),
            None => other.env_remove(name),
        };
    }
    // The test's own state folder does not belong to this user.
    other.env("XDG_STATE_HOME", binary.parent().unwrap().join("state")).stdin(Stdio::null());
    other
}

#[test]
fn a_wait_that_is_no_time_is_refused() {
    for wait in ["-1", "soon", "1e9"] {
        assert_eq!(
            run(&["check", "--machine", "h200x2", &format!("--wait={wait}")]).code,
            Some(2),
            "{wait}"
        );
    }
}

#[test]
fn slurm_does_not_drain_a_node_that_somebody_checks() {
    let fake = Fake::new("h200x2");
    let mut first = holder(&fake);
    let (folder, said) = place("scontrol.log");
    let scontrol = format!(
        "[ \"$1\" = show ] && {{ echo '   State=IDLE '; exit; }}\necho \"$@\" >>{}",
        said.display()
    );
    stand_in(folder.path(), "scontrol", &scontrol);
    stand_in(folder.path(), "logger", &format!("echo \"$@\" >>{}/logged", folder.path().display()));
    let checked = fake.command(&["--version"]);
    let mut health_check = script("slurm-health-check");
    for (name, value) in checked.get_envs().filter_map(|(name, value)| Some((name, value?))) {
        health_check.env(name, value);
    }
    health_check.env("PEERSCOPE", checked.get_program()).env("PEERSCOPE_REPORTS", folder.path());
    health_check
        .env("PATH", format!("{}:{}", folder.path().display(), std::env::var("PATH").unwrap()));
    let ran = finish(health_check.env("PEERSCOPE_ARGS", "--wait 0").env_remove("SLURM_JOB_ID"));
    assert_eq!(ran.code, Some(0), "{ran:?}");
    assert!(!said.exists(), "{}", std::fs::read_to_string(&said).unwrap());
    let logged = std::fs::read_to_string(folder.path().join("logged")).unwrap();
    assert!(logged.contains("left as it is: nothing-measured"), "{logged}");
    release(&mut first);
}

/// The wait used up the time: it is unknown if the check would have ended.
#[test]
fn slurm_does_not_drain_a_node_whose_check_had_to_wait() {
    let fake = Fake::new("h200x2");
    let hangs = |first: bool| {
        let mut first = first.then(|| holder(&fake));
        let (ran, asked, _reports) = health_check(IN_SERVICE, None, |command| {
            let checked = fake.command(&["--version"]);
            for (name, value) in checked.get_envs().filter_map(|(name, value)| Some((name, value?)))
            {
                if name != "PATH" {
                    command.env(name, value);
                }
            }
            command
                .env(fake_machine::FAULTS, "cuMemcpyPeerAsync@1+=hang")
                .env("PEERSCOPE_LIMIT", "6");
            command.env("PEERSCOPE_ARGS", "--wait 30 --deadline 60 --journal=none");
        });
        first.as_mut().map(release);
        assert_eq!(ran.code, Some(0), "{ran:?}");
        (ran.stderr, asked)
    };
    let (logged, asked) = hangs(true);
    assert_eq!(asked, "", "{logged}");
    assert!(
        logged.contains("left as it is: the wait for another check used up the limit of 6 s"),
        "{logged}"
    );
    let (logged, asked) = hangs(false);
    assert!(asked.contains("Reason=peerscope: no answer within 6 s"), "{logged}");
}
