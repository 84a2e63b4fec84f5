//! Tests of what a run says of the runs before it.

use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

use crate::common::{
    Ran, check, codes, finish, list, peerscope, place, run, text_of, wait_with_output, with, write,
};

/// The built-in machine with a narrow link and a pair without access, and the same without faults.
const NARROW: &str = include_str!("../../src/hardware/sim/machines/demo.toml");

fn healthy() -> String {
    let text = NARROW.replace("trained = \"Gen4 x4\", ", "");
    let text: Vec<_> = text.lines().filter(|line| !line.starts_with("exceptions")).collect();
    text.join("\n")
}

/// Returns the description with these facts of its host.
fn with_host(text: &str, host: &str) -> String {
    text.replacen("numa_nodes", &format!("host = {{ {host} }}\nnuma_nodes"), 1)
}

/// A machine that changes, and the folder for state of its runs.
struct Machine {
    _folder: tempfile::TempDir,
    file: String,
    state: PathBuf,
}

impl Machine {
    fn new(description: &str) -> Self {
        let (folder, state) = place("state");
        let file = write(folder.path(), "machine.toml", description);
        Self { _folder: folder, file, state }
    }

    fn becomes(&self, description: &str) {
        std::fs::write(&self.file, description).unwrap();
    }

    fn command(&self, args: &[&str]) -> std::process::Command {
        let mut command = peerscope(&[&["--machine", &self.file], args].concat());
        command.env("XDG_STATE_HOME", &self.state).env("COLUMNS", "80");
        command
    }

    fn run(&self, args: &[&str]) -> Ran {
        finish(&mut self.command(args))
    }

    fn check(&self) -> Ran {
        self.run(&["check", "--profile", "quick"])
    }

    /// Returns what the text says of the runs before it, an item for each change.
    fn changes(&self) -> Vec<String> {
        changes(&self.check())
    }

    /// Returns the kept reports, the oldest first.
    fn kept(&self) -> Vec<PathBuf> {
        let machines = std::fs::read_dir(self.state.join("peerscope/history"));
        let folders = machines.into_iter().flatten().map(|entry| entry.unwrap().path());
        let files = folders.flat_map(|folder| std::fs::read_dir(folder).unwrap());
        let mut files: Vec<_> = files.map(|entry| entry.unwrap().path()).collect();
        files.sort();
        files
    }

    /// Changes a kept report.
    fn rewrite(&self, file: &Path, change: impl FnOnce(&mut Value)) {
        let mut report = unpacked(file);
        change(&mut report);
        // What is not packed is read too.
        std::fs::write(file, report.to_string()).unwrap();
    }

    /// Gives the newest report another start, as if its run had been on this day of a month long ago.
    fn moved_to(&self, day: usize) {
        let newest = self.kept().pop().unwrap();
        let time = format!("2025-06-{day:02}T02:58:00Z");
        self.rewrite(&newest, |report| report["started_at"] = time.as_str().into());
        let name = newest.file_name().unwrap().to_str().unwrap();
        let (_, rest) = name.split_once('-').unwrap();
        let stamp = time.replace([':', '-'], "");
        std::fs::rename(&newest, newest.with_file_name(format!("{stamp}-{rest}"))).unwrap();
    }
}

fn unpacked(file: &Path) -> Value {
    let bytes = std::fs::read(file).unwrap();
    if bytes.starts_with(b"{") {
        return serde_json::from_slice(&bytes).unwrap();
    }
    serde_json::from_reader(flate2::read::GzDecoder::new(&*bytes)).unwrap()
}

fn changes(ran: &Ran) -> Vec<String> {
    let mut items: Vec<String> = Vec::new();
    let below = ran.stdout.lines().skip_while(|line| !line.starts_with("Since the last"));
    for line in below.skip(1).take_while(|line| !line.is_empty()) {
        // An item begins with a capital or a label, or goes on.
        let is_first = !line.starts_with("         ") || line.trim_start().contains(": ");
        let text = line.split_whitespace().collect::<Vec<_>>().join(" ");
        match items.last_mut().filter(|_| !is_first) {
            Some(last) if last.contains(": ") => *last += &format!(" {text}"),
            _ => items.push(text),
        }
    }
    items
}

#[test]
fn a_fault_that_comes_is_repaired_and_returns_is_told_on_three_of_thirty_days() {
    let before = with_host(&healthy(), "boot_id = \"a\"");
    let machine = Machine::new(&before);
    let after = "boot_id = \"b\", driver_version = \"580.105.08\"";
    let mut told = Vec::new();
    for day in 1..=30 {
        match day {
            10 => machine.becomes(&with_host(NARROW, "boot_id = \"a\"")),
            15 => machine.becomes(&with_host(&healthy(), after)),
            23 => machine.becomes(&with_host(NARROW, after)),
            _ => {}
        }
        let ran = machine.check();
        assert_eq!(ran.stderr, "", "day {day}");
        let is_faulty = (10..15).contains(&day) || day >= 23;
        assert_eq!(ran.code, Some(i32::from(is_faulty)), "day {day}");
        if ran.stdout.contains("Since the last") {
            let since = format!("Since the last check, 2025-06-{:02} 02:58 UTC:", day - 1);
            assert!(ran.stdout.contains(&since), "day {day}: {}", ran.stdout);
            told.push((day, changes(&ran)));
        }
        machine.moved_to(day);
        assert_eq!(machine.kept().len(), day.min(20));
    }
    let [narrow, access] =
        ["pcie-narrow of GPU 5 (slot 6)", "peer-access-missing of GPU 1 → GPU 6"];
    let copies = |figures| format!("Copies between GPU 5 (slot 6) and 7 GPUs: {figures}");
    let day = |day, lines: Vec<String>| (day, lines);
    let came = |runs| {
        let figures = format!("26.1 GB/s for {runs} runs, 6.5 now");
        vec![format!("NEW {narrow}"), format!("NEW {access}"), copies(figures)]
    };
    let repaired = vec![
        format!("FIXED {narrow}"),
        format!("FIXED {access}"),
        "The machine was started again".to_owned(),
        "2 pairs with peer access that had none".to_owned(),
        "driver 580.105.08, was 580.95.05".to_owned(),
        // Of a rise the least counts, as of a fall the most.
        copies("6.5 GB/s for 5 runs, 26.0 or more now".to_owned()),
    ];
    assert_eq!(told, [day(10, came(9)), day(15, repaired), day(23, came(8))]);
}

#[test]
fn the_changes_are_in_every_page_and_never_in_the_verdict() {
    let machine = Machine::new(NARROW);
    machine.check();
    machine.becomes(&healthy());
    let (folder, _) = place("");
    let file = |name: &str| text_of(&folder.path().join(name));
    let [html, markdown, json] = ["r.html", "r.md", "r.json"].map(file);
    let args = ["check", "--profile", "quick", "-o", &html, "-o", &markdown, "-o", &json];
    let ran = machine.run(&args);
    assert_eq!(ran.code, Some(0));
    for page in [&html, &markdown] {
        let text = std::fs::read_to_string(page).unwrap();
        assert!(text.contains("pcie-narrow of GPU 5 (slot 6)"), "{text}");
    }
    let report: Value = serde_json::from_str(&std::fs::read_to_string(&json).unwrap()).unwrap();
    assert_eq!(report["verdict"]["verdict"], "healthy");
    let fixed = &report["changes"]["list"][0];
    assert_eq!(
        *fixed,
        serde_json::json!({
            "what": "fixed", "code": "pcie-narrow", "subject": { "kind": "gpu", "index": 5 },
            "text": "pcie-narrow of GPU 5 (slot 6)",
        })
    );
    // The paths are those of the two reports, and `compare` reads them.
    let paths: Vec<_> =
        list(&report["changes"]["reports"]).iter().map(|path| path.as_str().unwrap()).collect();
    let kept = machine.kept();
    assert_eq!(paths, kept.iter().map(|path| path.to_str().unwrap()).collect::<Vec<_>>());
    let compared = run(&["compare", paths[0], paths[1]]);
    assert_eq!(compared.code, Some(0), "{compared:?}");
}

#[test]
fn what_this_run_did_not_test_is_not_said_to_be_fixed() {
    let machine = Machine::new(NARROW);
    machine.check();
    machine.becomes(&healthy());
    // GPU 5 is left out, and so is the other end of the pair.
    let ran = machine.run(&["check", "--profile", "quick", "--gpus", "0-4"]);
    assert_eq!(changes(&ran), [""; 0], "{}", ran.stdout);
}

#[test]
fn two_runs_at_once_are_both_kept_and_say_nothing_wrong() {
    let machine = Machine::new(&healthy());
    let start = || {
        let mut command = machine.command(&["check", "--profile", "quick"]);
        command.stdout(std::process::Stdio::piped()).stderr(std::process::Stdio::piped());
        command.spawn().unwrap()
    };
    for child in [start(), start()] {
        let output = wait_with_output(child);
        assert_eq!(output.status.code(), Some(0));
        assert!(!String::from_utf8_lossy(&output.stdout).contains("Since the last"));
    }
    let kept = machine.kept();
    assert_eq!(kept.len(), 2);
    kept.iter().for_each(|file| assert_eq!(unpacked(file)["verdict"]["verdict"], "healthy"));
    assert_eq!(machine.changes(), [""; 0]);
}

#[test]
fn a_file_that_was_cut_off_is_passed_over_and_left_there() {
    let machine = Machine::new(NARROW);
    machine.check();
    machine.moved_to(1);
    machine.becomes(&healthy());
    machine.check();
    let newest = machine.kept().pop().unwrap();
    let bytes = std::fs::read(&newest).unwrap();
    std::fs::write(&newest, &bytes[..bytes.len() / 2]).unwrap();
    let unfinished =
        newest.with_file_name(format!(".{}", newest.file_name().unwrap().to_str().unwrap()));
    std::fs::write(&unfinished, "{").unwrap();
    let ran = machine.check();
    assert_eq!(ran.stderr, "");
    assert_eq!(changes(&ran)[0], "FIXED pcie-narrow of GPU 5 (slot 6)");
    assert!(newest.exists() && unfinished.exists());
}

#[test]
fn a_store_that_cannot_be_written_is_one_remark() {
    let machine = Machine::new(&healthy());
    std::fs::create_dir_all(machine.state.join("peerscope")).unwrap();
    std::fs::write(machine.state.join("peerscope/history"), "no folder").unwrap();
    for args in [&["check", "--profile", "quick"][..], &["topo"]] {
        let ran = machine.run(args);
        assert_eq!(ran.code, Some(0));
        assert_eq!(ran.stderr.lines().count(), 1, "{}", ran.stderr);
        assert!(ran.stderr.contains("this report is not kept"), "{}", ran.stderr);
    }
    let ran = machine.run(&["topo", "--no-history"]);
    assert_eq!(ran.stderr, "");
    // A file where the folder of the machine should be.
    let machine = Machine::new(&healthy());
    machine.run(&["topo"]);
    let folder = machine.kept()[0].parent().unwrap().to_owned();
    std::fs::remove_dir_all(&folder).unwrap();
    std::fs::write(folder, "no folder").unwrap();
    let ran = machine.run(&["topo"]);
    assert_eq!(ran.code, Some(0));
    assert!(ran.stderr.contains("not a directory"), "{}", ran.stderr);
}

#[test]
fn nothing_is_kept_of_a_write_that_fails() {
    let machine = Machine::new(&healthy());
    machine.check();
    let command = machine.command(&["check", "--profile", "quick", "--journal", "none"]);
    // A limit on files is as a full disk.
    let mut limited = std::process::Command::new("sh");
    limited.args(["-c", "ulimit -f 4; exec \"$@\"", "sh"]).arg(command.get_program());
    limited.args(command.get_args());
    for (key, value) in command.get_envs() {
        match value {
            Some(value) => limited.env(key, value),
            None => limited.env_remove(key),
        };
    }
    let ran = finish(&mut limited);
    assert_eq!(ran.code, Some(0), "{ran:?}");
    assert!(ran.stderr.contains("this report is not kept"), "{}", ran.stderr);
    assert_eq!(machine.kept().len(), 1);
}

#[test]
fn the_store_of_another_machine_says_nothing() {
    let machine = Machine::new(NARROW);
    machine.check();
    for file in machine.kept() {
        machine.rewrite(&file, |report| {
            for gpu in report["snapshot"]["gpus"].as_array_mut().unwrap() {
                gpu["uuid"] = format!("GPU-of-another-{}", gpu["index"]).into();
            }
        });
    }
    machine.becomes(&healthy());
    assert_eq!(machine.changes(), [""; 0]);
    // From here on it is its own.
    machine.becomes(NARROW);
    assert_eq!(machine.changes()[0], "NEW pcie-narrow of GPU 5 (slot 6)");
}

#[test]
fn a_gpu_that_was_replaced_is_named() {
    let machine = Machine::new(&healthy());
    machine.check();
    machine.rewrite(&machine.kept()[0], |report| {
        let gpu = &mut report["snapshot"]["gpus"][3];
        (gpu["uuid"], gpu["serial"]) = ("GPU-before".into(), "A".into());
    });
    let told = machine.changes();
    assert_eq!(told, ["GPU 3 (slot 4) was replaced (serial A, now 0000000000003)"]);
}

#[test]
fn topo_has_a_history_of_its_own() {
    let machine = Machine::new(&healthy());
    assert_eq!(changes(&machine.run(&["topo"])), [""; 0]);
    // A check is not compared with it.
    machine.becomes(NARROW);
    assert_eq!(machine.changes(), [""; 0]);
    let ran = machine.run(&["topo"]);
    assert!(ran.stdout.contains("Since the last topo, "), "{}", ran.stdout);
    assert_eq!(changes(&ran)[0], "NEW pcie-narrow of GPU 5 (slot 6)");
}

#[test]
fn the_last_report_can_be_the_baseline() {
    let machine = Machine::new(&healthy());
    for args in [&["check", "--profile", "quick"][..], &["topo"], &["soak", "--for", "1s"]] {
        let ran = machine.run(&[args, &["--baseline", "last"]].concat());
        assert_eq!(ran.code, Some(2), "{ran:?}");
        assert_eq!(ran.stderr.lines().count(), 1, "{}", ran.stderr);
        assert!(ran.stderr.contains(&format!("no complete report of 'peerscope {}'", args[0])));
    }
    machine.check();
    machine.becomes(NARROW);
    let last = ["check", "--profile", "quick", "--format", "json", "--baseline"];
    let ran = machine.run(&[&last[..], &["last"]].concat());
    assert!(codes(&ran.json()).contains(&"fell-since-baseline"), "{}", ran.stdout);
    let ran = machine.run(&[&last[..], &["./last"]].concat());
    assert_eq!(ran.code, Some(2));
    assert!(ran.stderr.contains("cannot read ./last"), "{}", ran.stderr);
}

#[test]
fn without_history_nothing_is_kept_or_compared() {
    let machine = Machine::new(NARROW);
    machine.run(&["check", "--profile", "quick", "--no-history"]);
    machine.run(&["topo", "--no-history"]);
    assert_eq!(machine.kept(), [""; 0].map(PathBuf::from));
    machine.check();
    machine.becomes(&healthy());
    let ran = machine.run(&["check", "--profile", "quick", "--no-history"]);
    assert_eq!((changes(&ran), machine.kept().len()), (Vec::new(), 1));
}

#[test]
fn folders_and_files_are_for_this_user_alone() {
    use std::os::unix::fs::PermissionsExt;

    let machine = Machine::new(&healthy());
    machine.check();
    let mode = |path: &Path| std::fs::metadata(path).unwrap().permissions().mode() & 0o777;
    let file = &machine.kept()[0];
    assert_eq!(mode(file), 0o600);
    let above: Vec<_> = file.ancestors().skip(1).take(3).map(mode).collect();
    assert_eq!(above, [0o700; 3]);
    // A name of a machine leads nowhere else.
    let ran = run(&with(check("../../x", "quick"), &[]));
    assert_eq!(ran.code, Some(2));
}

#[test]
fn a_run_on_some_gpus_is_not_compared_with_one_on_all() {
    let machine = Machine::new(NARROW);
    machine.check();
    let some = machine.run(&["check", "--profile", "quick", "--gpus", "0,1"]);
    assert_eq!(changes(&some), Vec::<String>::new(), "{some:?}");
    assert_eq!(machine.changes(), Vec::<String>::new());
}

#[test]
fn a_report_that_unpacks_to_far_too_much_is_passed_over() {
    let machine = Machine::new(NARROW);
    machine.check();
    let newest = machine.kept().pop().unwrap();
    let bomb = Command::new("sh")
        .args(["-c", &format!("head -c 300000000 /dev/zero | gzip > '{}'", newest.display())])
        .status();
    assert!(bomb.unwrap().success());
    assert_eq!(machine.check().code, Some(1));
}

#[test]
fn ports_that_go_down_are_told_and_not_fixed_by_others_that_go_too() {
    let base = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/cases/bases/h100x8-adapters.toml");
    let with_down = |places: &[&str]| {
        let down = |place: &&str| {
            format!(
                "{{ pci = \"0000:{place}4:00.0\", state = \"down\", physical_state = \"Polling\", \
                 rate_mbit = 10000 }}"
            )
        };
        let down: Vec<String> = places.iter().map(down).collect();
        format!("base = \"{base}\"\nsummary = \"x\"\nadapters = [{}]\n", down.join(", "))
    };
    let machine = Machine::new(&with_down(&["4"]));
    let first = machine.run(&["topo"]);
    assert!(first.stdout.contains("adapter-port-degraded"), "{first:?}");
    assert!(first.stdout.contains("GPU 2 mlx5_2 down (PIX)"), "{first:?}");
    // With most of them down the rule does not judge any more.
    machine.becomes(&with_down(&["4", "0", "2", "6"]));
    let second = changes(&machine.run(&["topo"]));
    assert!(second.iter().all(|line| !line.contains("FIXED")), "{second:?}");
    assert!(
        second.iter().any(|line| line.contains("mlx5_1: port 1 is down, was active")),
        "{second:?}"
    );
    machine.becomes(&with_down(&[]));
    let third = changes(&machine.run(&["topo"]));
    assert!(
        third.iter().any(|line| line.contains("mlx5_2: port 1 is active, was down")),
        "{third:?}"
    );
}
