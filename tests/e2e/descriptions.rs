//! Tests with machines that are described in a file.

use crate::common::{check, codes, list, place, read_json, run, text_of, with, write};

/// A desktop as a user would describe it.
const DESKTOP: &str = r#"
summary = "two cards"
pci = [
  { address = "00:01.0", kind = "root-port", max = "Gen4 x16" },
  { address = "01:00.0", parent = "00:01.0", max = "Gen4 x16" },
  { address = "00:03.0", kind = "root-port", max = "Gen4 x16" },
  { address = "02:00.0", parent = "00:03.0", max = "Gen4 x16", trained = "Gen4 x4" },
]
gpus = [{ name = "NVIDIA L40S", pci = "01:00.0" }, { name = "NVIDIA L40S", pci = "02:00.0" }]
"#;

#[test]
fn a_short_description_is_a_whole_machine() {
    let (folder, path) = place("report.json");
    let file = write(folder.path(), "desktop.toml", DESKTOP);
    let ran = run(&with(check(&file, "quick"), &["-o", &text_of(&path)]));
    assert_eq!(ran.code, Some(1), "{ran:?}");
    let report = read_json(&path);
    assert_eq!(report["machine"].as_str(), Some(file.as_str()));
    assert!(codes(&report).contains(&"pcie-narrow"), "{:?}", codes(&report));
    assert_eq!(list(&report["snapshot"]["gpus"]).len(), 2);
}

#[test]
fn what_is_wrong_is_reported_with_file_line_and_key() {
    let (folder, _) = place("");
    let text = DESKTOP.replacen("Gen4 x4", "Gen4 x5", 1);
    let file = write(folder.path(), "broken.toml", &text);
    let ran = run(&["topo", "--machine", &file]);
    assert_eq!((ran.code, ran.stdout.as_str()), (Some(2), ""), "{ran:?}");
    let told = format!(
        "the machine '{file}' is not usable: line 7, pci[3].trained: 'Gen4 x5' is not a PCIe link"
    );
    assert!(ran.stderr.contains(&told), "{}", ran.stderr);
    let ran = run(&["topo", "--machine", "not/there.toml"]);
    assert!(
        ran.code == Some(2) && ran.stderr.contains("cannot read the machine 'not/there.toml'"),
        "{ran:?}"
    );
}

#[test]
fn a_share_that_no_machine_has_accuses_no_gpu() {
    let (folder, _) = place("");
    let text = "base = \"h200x2\"\nsummary = \"slower than time\"\n\
                [faults]\npairs = [{ pairs = \"all\", fault = { slow = { share = 1e-300 } } }]\n";
    let file = write(folder.path(), "slow.toml", text);
    let ran = run(&["check", "--machine", &file, "--profile", "quick"]);
    assert_eq!((ran.code, ran.stderr.as_str()), (Some(3), ""), "{ran:?}");
}
