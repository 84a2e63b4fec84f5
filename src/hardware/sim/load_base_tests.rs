//! Descriptions that are differences to another machine.

use super::*;
use crate::spec::{Engines, Ratio};

/// A built-in machine and its differences. The line numbers below are those of this text.
const ON_BASE: &str = r#"base = "h200x2"
summary = "one link is narrow"

[[pci]]
address = "00:07.0"
trained = "Gen5 x8"

[[pci]]
address = "0000:00:08.0"
id = "8086:1533"

[[gpus]]
pci = "0000:00:07.0"
copy_engines = 3

[speeds.pcie]
copy = 0.5

[[faults.nvlinks]]
gpu = 0
link = 3
errors = { crc = 1 }
"#;

#[test]
fn a_description_on_a_base_is_the_base_with_the_differences() {
    let mut wanted = crate::builtin::get("h200x2").unwrap();
    let spec = parse(ON_BASE).unwrap();
    wanted.summary = "one link is narrow".into();
    wanted.pci[2].trained = Some(pcie_link(5, 8));
    wanted.pci.push(spec.pci[3].clone());
    wanted.gpus[1].copy_engines = Engines(3);
    wanted.speeds.pcie.copy = Ratio(0.5);
    wanted.faults.nvlinks = spec.faults.nvlinks.clone();
    assert_eq!(spec, wanted);
    assert_eq!(spec.pci[3].id, (0x8086, 0x1533));
    assert_eq!(spec.faults.nvlinks.len(), 1);
    // Other lists are replaced as a whole.
    let spec = parse("base = 'h200x2'\nnuma_nodes = [{ cpus = '0-3' }]").unwrap();
    assert_eq!(spec.numa_nodes.len(), 1);
    assert_eq!(spec.numa_nodes[0].read_gbps, None);
    // Lists by address keep the base's entries.
    let spec = parse("base = 'h200x2'\ngpus = []").unwrap();
    assert_eq!(spec.gpus.len(), 2);
}

#[test]
fn a_mistake_on_a_base_has_line_and_key_and_one_in_the_base_names_it() {
    let folder = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| std::fs::write(folder.path().join(name), text).unwrap();
    write("sound.toml", TWO);
    write("broken.toml", &TWO.replacen("Gen3 x4", "Gen3 x5", 1));
    write("no-toml.toml", "pci = [");
    write("on-a-base.toml", ON_BASE);
    write("long.toml", &"#".repeat((4 << 20) + 1));
    let wrong = |text: &str| {
        let error = load_in(text, folder.path()).unwrap_err().to_string();
        assert!(!error.contains('\n'), "{error}");
        error
    };
    for (from, to, message) in [
        // Mistakes in the differences from the base.
        ("x8", "x5", "line 6, pci[2].trained: 'Gen5 x5' is not a PCIe link"),
        ("copy = 0.5", "copy = 2.0", "line 17, speeds.pcie.copy: "),
        (
            "copy_engines = 3",
            "copy_engine = 3",
            "line 14, gpus[1].copy_engine: unknown key `copy_engine`",
        ),
        ("gpu = 0", "gpu = 7", "line 20, faults.nvlinks[0]"),
        ("\"0000:00:08.0\"", "\"00:07.0\"", "line 9, pci[3].address: "),
        (
            "pci = \"0000:00:07.0\"",
            "pci = \"0000:00:09.0\"",
            "line 12, gpus[2]: missing key `name`",
        ),
        ("id = \"8086:1533\"", "parent = \"0000:00:0a.0\"", "line 10, pci[3].parent: "),
        // Mistakes in the base.
        ("\"h200x2\"", "2", "line 1, base: a base is the name of a machine, in quotes"),
        (
            "\"h200x2\"",
            "\"h200x3\"",
            "line 1, base: there is no machine 'h200x3': a base is a built-in machine, or a file that ends in .toml; did you mean 'h200x8'?",
        ),
        ("\"h200x2\"", "\"\"", "line 1, base: there is no machine ''"),
        ("\"h200x2\"", "\"live\"", "line 1, base: there is no machine 'live'"),
        (
            "\"h200x2\"",
            "\"x.toml\"",
            "line 1, base: cannot read the machine 'x.toml': No such file",
        ),
        ("\"h200x2\"", "\"./\"", "line 1, base: cannot read the machine './': Is a directory"),
        (
            "\"h200x2\"",
            "\"long.toml\"",
            "line 1, base: cannot read the machine 'long.toml': it is longer than 4194304 bytes",
        ),
        (
            "\"h200x2\"",
            "\"broken.toml\"",
            "line 1, base: the machine 'broken.toml' is not usable: line 18, pci[2].max: 'Gen3 x5'",
        ),
        (
            "\"h200x2\"",
            "\"no-toml.toml\"",
            "line 1, base: the machine 'no-toml.toml' is not usable: line 1",
        ),
        (
            "\"h200x2\"",
            "\"on-a-base.toml\"",
            "line 1, base: the machine 'on-a-base.toml' is not usable: it has a base itself",
        ),
        // Conflicts between the base and the rest.
        (
            "[speeds.pcie]",
            "[[adapters]]\nname = 'x'\nkind = 'rdma'\npci = '0000:00:07.0'\n[speeds.pcie]",
            "line 19, adapters[1].pci: 0000:00:07.0 is where gpus[1] is already",
        ),
    ] {
        assert!(ON_BASE.contains(from), "{from}");
        let error = wrong(&ON_BASE.replacen(from, to, 1));
        assert!(error.starts_with(message), "{to}: {error}");
    }
    let spec = load_in("base = 'sound.toml'\nsummary = 'same'", folder.path()).unwrap();
    assert_eq!(spec.gpus, parse(TWO).unwrap().gpus);
    let error = parse("base = 'sound.toml'").unwrap_err().to_string();
    assert!(error.starts_with("line 1, base: there is no machine 'sound.toml'"), "{error}");
}
