//! Two real processes that share memory over the fake driver, and what keeps them from it.

use std::process::{Command, Stdio};

use serde_json::Value;

use crate::common::{Ran, codes, finish, list, skipped};
use crate::fake::Fake;

const SHARE: [&str; 5] = ["check", "--only", "share", "--format", "json"];

/// Returns the ways of a report between these GPUs, each with whether it works.
fn ways(report: &Value, owner: u64, user: u64) -> Vec<(&str, &Value)> {
    let cells = list(&report["measurements"]["sharing"]).iter();
    cells
        .filter(|cell| cell["owner"] == owner && cell["user"] == user)
        .map(|cell| (cell["rung"].as_str().unwrap(), &cell["works"]))
        .collect()
}

fn way<'a>(report: &'a Value, rung: &str) -> &'a Value {
    let cells = list(&report["measurements"]["sharing"]).iter();
    let mut of_rung = cells.filter(|cell| cell["rung"] == rung);
    let cell = of_rung.next().unwrap_or_else(|| panic!("{report}"));
    assert!(of_rung.next().is_none(), "{report}");
    cell
}

#[test]
fn two_processes_share_memory_in_every_way_that_the_driver_has() {
    let fake = Fake::new("h200x2");
    let ran = finish(&mut fake.command(&SHARE));
    let report = ran.json();
    assert_eq!(ran.code, Some(0), "{ran:?}");
    let ways = ways(&report, 0, 1);
    assert_eq!(ways.len(), 3, "{ways:?}");
    for (rung, works) in ways {
        assert_eq!(*works, true, "{rung}: {report}");
        assert_eq!(way(&report, rung)["verified"], "ok", "{report}");
    }
    assert_eq!(report["verdict"]["untested"], 0);
}

#[test]
fn one_gpu_is_enough() {
    let fake = Fake::new("single");
    let ran = finish(&mut fake.command(&SHARE));
    let report = ran.json();
    assert_eq!((ran.code, codes(&report).len()), (Some(0), 0), "{ran:?}");
    assert_eq!(ways(&report, 0, 0).len(), 3);
}

#[test]
fn a_call_that_hangs_costs_its_way_and_other_processes_go_on() {
    let fake = Fake::new("single");
    let mut command = fake.command(&SHARE);
    command.env(fake_machine::FAULTS, "cuIpcOpenMemHandle_v2@1+=hang");
    let ran = finish(&mut command);
    let report = ran.json();
    for (rung, works) in ways(&report, 0, 0) {
        match rung {
            "legacy-memory" => assert!(works.is_null(), "{rung}"),
            _ => assert_eq!(*works, true, "{rung}: {report}"),
        }
    }
    assert_eq!(way(&report, "legacy-memory")["status"], "hung");
    assert!(codes(&report).contains(&"sharing-refused"));
}

#[test]
fn a_refusal_names_its_process_and_its_call() {
    let fake = Fake::new("single");
    let mut command = fake.command(&SHARE);
    command.env(fake_machine::FAULTS, "cuIpcGetMemHandle@1+=code:201");
    let report = finish(&mut command).json();
    let cell = way(&report, "legacy-memory");
    assert_eq!((&cell["works"], &cell["status"]), (&false.into(), &"measured".into()));
    let refused = cell["refused"].as_str().unwrap();
    assert!(
        refused.contains("cuIpcGetMemHandle") && refused.contains("the process that has it"),
        "{refused}"
    );
}

/// Runs a command in namespaces of its own, with a /dev/shm of this size. None if that is not allowed here.
fn in_namespaces(command: &Command, size: &str) -> Option<Ran> {
    let allowed = Command::new("unshare")
        .args(["--user", "--map-root-user", "--ipc", "--mount", "true"])
        .stderr(Stdio::null())
        .status();
    if !allowed.is_ok_and(|status| status.success()) {
        return None;
    }
    let script = format!("mount -t tmpfs -o size={size} tmpfs /dev/shm && exec \"$0\" \"$@\"");
    let mut inside = Command::new("unshare");
    inside
        .args(["--user", "--map-root-user", "--ipc", "--mount", "sh", "-c", &script])
        .arg(command.get_program())
        .args(command.get_args())
        .stdin(Stdio::null());
    for (name, value) in command.get_envs() {
        match value {
            Some(value) => inside.env(name, value),
            None => inside.env_remove(name),
        };
    }
    Some(finish(&mut inside))
}

#[test]
fn in_a_namespace_of_its_own_the_refused_way_is_named_with_its_cause() {
    let fake = Fake::new("single");
    let Some(ran) = in_namespaces(&fake.command(&SHARE), "64k") else {
        return skipped("unshare may not make namespaces here");
    };
    let report = ran.json();
    let cell = way(&report, "shared-memory");
    assert_eq!(cell["works"], false, "{cell}");
    assert_eq!(cell["obstacles"], serde_json::json!(["shared-memory-full"]), "{cell}");
    let finding = list(&report["findings"])
        .iter()
        .find(|finding| finding["code"] == "sharing-refused")
        .unwrap();
    let message = finding["message"].as_str().unwrap();
    assert!(message.contains("/dev/shm has too little room"), "{message}");
    // What needs no room of it works there all the same.
    for rung in ["legacy-memory", "descriptor"] {
        assert_eq!(way(&report, rung)["works"], true, "{rung}");
    }
    // The twin: with room enough, nothing is refused.
    let ran = in_namespaces(&fake.command(&SHARE), "16m").unwrap();
    let report = ran.json();
    assert_eq!(way(&report, "shared-memory")["works"], true, "{ran:?}");
    assert_eq!(codes(&report).len(), 0, "{ran:?}");
}

#[test]
fn no_file_of_shared_memory_is_left() {
    let fake = Fake::new("single");
    let mut command = fake.command(&SHARE);
    command.env(fake_machine::FAULTS, "cuMemHostRegister_v2@1+=code:801");
    let ran = finish(&mut command);
    let own = format!("peerscope-{}-", std::process::id());
    let left: Vec<_> = std::fs::read_dir("/dev/shm")
        .unwrap()
        .filter_map(|entry| entry.unwrap().file_name().into_string().ok())
        .filter(|name| name.starts_with("peerscope-") && !name.starts_with(&own))
        .filter(|name| {
            // Other tests run at the same time.
            let process = name.split('-').nth(1).unwrap_or_default();
            !std::path::Path::new("/proc").join(process).exists()
        })
        .collect();
    assert!(left.is_empty(), "{left:?}; {ran:?}");
}

#[test]
fn what_one_gpu_measures_with_itself_can_be_read_back() {
    let folder = tempfile::tempdir().unwrap();
    let path = crate::common::text_of(&folder.path().join("report.json"));
    for only in ["live", "share"] {
        let options = ["--profile", "full", "--only", only, "-o", &path];
        let command = [&["check", "--machine", "single"], options.as_slice()].concat();
        assert_eq!(crate::common::run(&command).code, Some(0), "{only}");
        let again = crate::common::run(&["diagnose", &path]);
        assert_eq!(again.code, Some(0), "{only}: {again:?}");
    }
}
