use super::*;
use crate::hardware::sim::spec::{PeerRule, Speeds};
use crate::model::testing::pcie_link;
use crate::model::units::Bytes;

/// Two GPUs, joined by NVLink; line numbers below are those of this text.
const TWO: &str = r#"summary = "two GPUs"
visible_devices = [1, 0]

[[pci]]
address = "0000:00:01.0"
kind = "root-port"
max = "Gen4 x16"

[[pci]]
address = "0000:01:00.0"
parent = "0000:00:01.0"
max = "Gen4 x16"
trained = "Gen4 x8"

[[pci]]
address = "0000:00:03.0"
kind = "root-port"
max = "Gen3 x4"

[[pci]]
address = "0000:02:00.0"
parent = "0000:00:03.0"
max = "Gen4 x16"
idle = "Gen1 x4"

[[gpus]]
name = "one"
pci = "0000:01:00.0"
copy_engines = 2
nvlinks = [{ count = 4, version = "3.1", remote = { gpu = 1 }, link_gbps = 14.0625 }]

[[gpus]]
name = "other"
pci = "0000:02:00.0"
memory = "24GiB"

[[gpus.nvlinks]]
count = 4
version = "3.1"
remote = { gpu = 0 }

[[uplinks]]
ports = ["0000:00:03.0"]
gbps = 8.0

[[peers.exceptions]]
pairs = { both = [0, 1] }
rule = { nvml = "CNS", cuda = "refused" }

[speeds.pcie]
copy = 0.8

[noise]
percent = 1.0

[[faults.pairs]]
pairs = { ordered = [0, 1] }
fault = { slow = { share = 0.5 } }

[[faults.links]]
function = "0000:02:00.0"
trains_down_to = "Gen1 x4"

[[faults.nvlinks]]
gpu = 0
link = 3
errors = { crc = 1 }

[[faults.contexts]]
gpu = 1
code = 46
meaning = "busy"
compute_mode = "exclusive-process"
"#;

#[test]
fn what_is_left_out_is_filled_in() {
    let spec = parse(TWO).unwrap();
    assert_eq!(spec.pci[0].host_bridge, "pci0000:00");
    assert_eq!(spec.pci[1].host_bridge, "pci0000:00");
    assert_eq!((spec.pci[0].class, spec.pci[1].class), (0x06_0400, 0x03_0200));
    assert_eq!(spec.pci[1].trained, Some(pcie_link(4, 8)));
    assert_eq!(spec.numa_nodes.len(), 1);
    assert_eq!(spec.peers.limit, Some(8));
    assert_eq!(spec.peers.rule, PeerRule::default());
    assert_eq!(spec.gpus[1].memory_free, Bytes(24 << 30));
    assert!(spec.gpus[0].nvlinks[0].active);
    assert!((spec.speeds.pcie.copy - 0.8).abs() < 1e-9);
    assert_eq!(spec.speeds.pcie.push, Speeds::default().pcie.push);
    assert_eq!(spec.speeds.nvlink, Speeds::default().nvlink);
}

/// What to put in place of what, and the sentence that must come of it.
const BROKEN: &[(&str, &str, &str)] = &[
    // No TOML.
    ("[noise]", "[noise", "line 53: unclosed table, expected `]`"),
    ("[noise]", "[noise]\npercent = 2", "line 55: duplicate key"),
    ("copy_engines = 2", "copy_engines =", "line 29: string values must be quoted, expected literal string"),
    // Other keys and types than there should be.
    ("trained =", "trainde =", "line 13, pci[1].trainde: unknown key `trainde`, expected one of `address`, "),
    ("percent = 1.0", "percents = 1.0", "line 54, noise.percents: unknown key `percents`"),
    ("copy = 0.8", "cpoy = 0.8", "line 51, speeds.pcie.cpoy: unknown key `cpoy`"),
    ("name = \"one\"\n", "", "line 26, gpus[0]: missing key `name`"),
    ("summary = \"two GPUs\"", "", "line 1: missing key `summary`"),
    (
        "copy_engines = 2",
        "copy_engines = \"2\"",
        "line 29, gpus[0].copy_engines: invalid type: string \"2\", expected u32",
    ),
    (
        "copy_engines = 2",
        "copy_engines = -2",
        "line 29, gpus[0].copy_engines: invalid value: integer `-2`, expected u32",
    ),
    ("percent = 1.0", "percent = true", "line 54, noise.percent: invalid type: boolean `true`, expected f64"),
    (
        "kind = \"root-port\"",
        "kind = \"rootport\"",
        "line 6, pci[0].kind: unknown variant `rootport`, expected one of `root-port`, ",
    ),
    ("[1, 0]", "1", "line 2, visible_devices: invalid type: integer `1`, expected a sequence"),
    ("{ crc = 1 }", "{ crcs = 1 }", "line 67, faults.nvlinks[0].errors.crcs: unknown key `crcs`"),
    (
        "{ slow = {",
        "{ slower = {",
        "line 58, faults.pairs[0].fault.slower: unknown variant `slower`, expected one of `dropped`, ",
    ),
    // Text that is no address, link or size.
    (
        "\"0000:00:01.0\"\nkind",
        "\"0000:00:21.0\"\nkind",
        "line 5, pci[0].address: '0000:00:21.0' is not a PCI address such as 0000:3b:00.0",
    ),
    (
        "Gen3 x4",
        "Gen3 x3",
        "line 18, pci[2].max: 'Gen3 x3' is not a PCIe link such as \"Gen4 x16\": generations are 1 to 6, lanes are 1, 2, 4, 8, 12, 16 or 32",
    ),
    ("Gen3 x4", "Gen7 x4", "line 18, pci[2].max: 'Gen7 x4' is not a PCIe link"),
    (
        "24GiB",
        "24GiBit",
        "line 35, gpus[1].memory: '24GiBit' is not a size: write for example 64MiB, 1GiB or a number of bytes",
    ),
    // The tree.
    (
        "\"0000:02:00.0\"\nparent",
        "\"0000:01:00.0\"\nparent",
        "line 21, pci[3].address: 0000:01:00.0 is the address of pci[1] already",
    ),
    (
        "parent = \"0000:00:03.0\"",
        "parent = \"0000:00:05.0\"",
        "line 22, pci[3].parent: no [[pci]] has the address 0000:00:05.0",
    ),
    (
        "parent = \"0000:00:03.0\"",
        "parent = \"0000:01:00.0\"",
        "line 22, pci[3].parent: 0000:01:00.0 is an endpoint, and nothing hangs below one: give it the kind of a port",
    ),
    (
        "kind = \"root-port\"",
        "kind = \"bridge\"\nparent = \"0000:00:01.0\"",
        "line 7, pci[0].parent: from 0000:00:01.0 the parents never end at a root port, or only after more than 64",
    ),
    (
        "trained = \"Gen4 x8\"",
        "trained = \"Gen5 x8\"",
        "line 13, pci[1].trained: Gen5 x8 is more than this end can do, which is Gen4 x16",
    ),
    (
        "idle = \"Gen1 x4\"",
        "idle = \"Gen1 x8\"",
        "line 24, pci[3].idle: Gen1 x8 is more than the port above can do, which is Gen3 x4",
    ),
    (
        "trained = \"Gen4 x8\"",
        "numa_node = 1",
        "line 13, pci[1].numa_node: there is no NUMA node 1: 1 stands in numa_nodes, counted from 0",
    ),
    // GPUs.
    (
        "pci = \"0000:02:00.0\"",
        "pci = \"0000:09:00.0\"",
        "line 34, gpus[1].pci: no [[pci]] has the address 0000:09:00.0",
    ),
    (
        "pci = \"0000:02:00.0\"",
        "pci = \"0000:01:00.0\"",
        "line 34, gpus[1].pci: 0000:01:00.0 is where gpus[0] is already",
    ),
    (
        "pci = \"0000:02:00.0\"",
        "pci = \"0000:00:03.0\"",
        "line 34, gpus[1].pci: 0000:00:03.0 is a port of the tree: a device needs an endpoint",
    ),
    (
        "copy_engines = 2",
        "copy_engines = 0",
        "line 29, gpus[0].copy_engines: 0 is not between 1 and 64: without a copy engine no copy ends",
    ),
    ("copy_engines = 2", "local_gbps = nan", "line 29, gpus[0].local_gbps: NaN is not above 0 and up to 1000000 GB/s"),
    ("copy_engines = 2", "memory = 0", "line 29, gpus[0].memory: 0 B is not between 1 byte and 65536 GiB"),
    (
        "copy_engines = 2",
        "memory_free = \"999GiB\"",
        "line 29, gpus[0].memory_free: 999 GiB is more than the GPU's memory, which is 45.0 GiB",
    ),
    (
        "copy_engines = 2",
        "fabric = { state = \"completed\", cluster_uuid = \"xyz\" }",
        "line 29, gpus[0].fabric.cluster_uuid: 'xyz' is not 32 hexadecimal digits",
    ),
    // NVLinks.
    ("{ count = 4", "{ count = 33", "line 30, gpus[0].nvlinks: 33 links are more than NVML counts, which is 32"),
    ("{ count = 4", "{ count = 0", "line 30, gpus[0].nvlinks[0].count: 0 links are none: leave the entry out"),
    (
        "count = 4\n",
        "count = 3\n",
        "line 30, gpus[0].nvlinks[0].remote: GPU 0 has 4 links to GPU 1, which has 3 to GPU 0",
    ),
    ("{ gpu = 0 }", "{ gpu = 1 }", "line 40, gpus[1].nvlinks[0].remote: a GPU has no links to itself"),
    (
        "{ gpu = 0 }",
        "{ gpu = 7 }",
        "line 40, gpus[1].nvlinks[0].remote: there is no GPU 7: 2 stand in gpus, counted from 0",
    ),
    (
        "version = \"3.1\"\n",
        "version = \"3\"\n",
        "line 39, gpus[1].nvlinks[0].version: there is no NVLink '3': choose 1.0, 2.0, 2.2, 3.0, 3.1, 4.0, 5.0",
    ),
    ("14.0625", "-1", "line 30, gpus[0].nvlinks[0].link_gbps: -1.0 is not above 0 and up to 1000000 GB/s"),
    // Uplinks, peers, devices.
    ("[\"0000:00:03.0\"]", "[]", "line 43, uplinks[0].ports: an uplink without ports carries nothing"),
    ("[\"0000:00:03.0\"]", "[\"0000:00:09.0\"]", "line 43, uplinks[0].ports: no [[pci]] has the address 0000:00:09.0"),
    (
        "[\"0000:00:03.0\"]",
        "[\"0000:02:00.0\"]",
        "line 43, uplinks[0].ports: 0000:02:00.0 is not at the root: it has a parent",
    ),
    (
        "[\"0000:00:03.0\"]",
        "[\"0000:00:03.0\", \"0000:00:03.0\"]",
        "line 43, uplinks[0].ports: 0000:00:03.0 stands at an uplink already",
    ),
    ("gbps = 8.0", "gbps = inf", "line 44, uplinks[0].gbps: inf is not above 0 and up to 1000000 GB/s"),
    (
        "{ both = [0, 1] }",
        "{ both = [0, 2] }",
        "line 47, peers.exceptions[0].pairs: there is no GPU 2: 2 stand in gpus, counted from 0",
    ),
    ("{ both = [0, 1] }", "{ both = [1, 1] }", "line 47, peers.exceptions[0].pairs: GPU 1 is no pair with itself"),
    ("[1, 0]", "[1, 2]", "line 2, visible_devices[1]: there is no GPU 2: 2 stand in gpus, counted from 0"),
    ("[1, 0]", "[1, 1]", "line 2, visible_devices[1]: GPU 1 is there twice"),
    // Numbers.
    ("copy = 0.8", "copy = 1.5", "line 51, speeds.pcie.copy: 1.5 is not above 0 and up to 1"),
    ("copy = 0.8", "copy = 0", "line 51, speeds.pcie.copy: 0.0 is not above 0 and up to 1"),
    ("copy = 0.8", "each_us = -1.0", "line 51, speeds.pcie.each_us: -1.0 is not between 0 and 1000000 us"),
    ("copy = 0.8", "first_us = 1e300", "line 51, speeds.pcie.first_us: 1e300 is not between 0 and 1000000 us"),
    ("percent = 1.0", "percent = nan", "line 54, noise.percent: NaN is not between 0 and 1000 per cent"),
    // Faults.
    ("[0, 1] }\nfault", "[0, 5] }\nfault", "line 57, faults.pairs[0].pairs: there is no GPU 5"),
    ("share = 0.5", "share = -0.5", "line 58, faults.pairs[0].fault.slow.share: -0.5 is not above 0 and up to 1"),
    (
        "{ slow = { share = 0.5 } }",
        "{ corrupt = { words = 0 } }",
        "line 58, faults.pairs[0].fault.corrupt.words: 0 wrong words are no fault",
    ),
    (
        "function = \"0000:02:00.0\"",
        "function = \"0000:07:00.0\"",
        "line 61, faults.links[0].function: no [[pci]] has the address 0000:07:00.0",
    ),
    (
        "gpu = 0\nlink = 3",
        "gpu = 0\nlink = 4",
        "line 66, faults.nvlinks[0].link: GPU 0 has no link 4: it has 4, counted from 0",
    ),
    ("gpu = 0\nlink = 3", "gpu = 4\nlink = 3", "line 65, faults.nvlinks[0].gpu: there is no GPU 4"),
    ("gpu = 1\ncode", "gpu = 2\ncode", "line 70, faults.contexts[0].gpu: there is no GPU 2"),
    ("code = 46", "code = 0", "line 71, faults.contexts[0].code: 0 is CUDA's code for success"),
    (
        "[[faults.contexts]]",
        "[faults]\nlost_gpus = [0, 3]\n[[faults.contexts]]",
        "line 70, faults.lost_gpus[1]: there is no GPU 3",
    ),
];

#[test]
fn what_is_wrong_is_told_with_line_and_key() {
    let mut other = String::new();
    for (from, to, sentence) in BROKEN {
        assert!(TWO.contains(from), "{from}");
        let text = TWO.replacen(from, to, 1);
        let error = parse(&text).map_or_else(|error| error.to_string(), |_| "nothing".into());
        if !error.starts_with(sentence) || error.contains('\n') {
            other += &format!("{to}\n  gives    {error}\n  expected {sentence}\n");
        }
    }
    assert!(other.is_empty(), "{other}");
}

/// A key that no table has, at every table there is; serde then names those that there are.
const EVERY_TABLE: &[(&str, &str)] = &[
    ("summary =", "x = 1\nsummary ="),
    ("[noise]", "[host]\nx = 1\n[noise]"),
    ("[noise]", "[[numa_nodes]]\ncpus = \"0\"\nx = 1\n[noise]"),
    ("kind =", "x = 1\nkind ="),
    ("kind = \"root-port\"", "kind = \"x\""),
    ("gbps = 8.0", "x = 1"),
    ("[noise]", "[[adapters]]\nx = 1\n[noise]"),
    ("[noise]", "[[adapters]]\nname = \"eth0\"\nkind = \"x\"\n[noise]"),
    ("copy_engines", "x"),
    ("count = 4\n", "x = 4\n"),
    ("remote = { gpu = 0 }", "remote = \"x\""),
    ("remote = { gpu = 0 }", "remote = \"switch\"\nerrors = { x = 1 }"),
    ("copy_engines = 2", "fabric = { x = 1 }"),
    ("copy_engines = 2", "fabric = { state = \"x\" }"),
    ("copy_engines = 2", "state = { x = 1 }"),
    ("copy_engines = 2", "state = { compute_mode = \"x\" }"),
    ("[[peers.exceptions]]", "[peers]\nx = 1\n[[peers.exceptions]]"),
    ("{ nvml = \"CNS\"", "{ x = 1"),
    ("\"CNS\"", "\"x\""),
    ("\"refused\"", "\"x\""),
    ("{ both = [0, 1] }", "{ x = [0, 1] }"),
    ("rule = { nvml", "x = { nvml"),
    ("[speeds.pcie]", "[speeds]\nx = 1\n[speeds.pcie]"),
    ("copy = 0.8", "x = 0.8"),
    ("percent", "x"),
    ("[[faults.pairs]]", "[faults]\nx = 1\n[[faults.pairs]]"),
    ("fault = ", "x = "),
    ("{ slow = { share = 0.5 } }", "{ x = 1 }"),
    ("fault = { slow", "engine = \"x\"\nfault = { slow"),
    ("trains_down_to", "x"),
    ("link = 3", "x = 3"),
    ("code = 46", "x = 46"),
    ("[[faults.contexts]]", "[faults.cuda_init]\nx = 1\n[[faults.contexts]]"),
];

const DOCS: &str = include_str!("../../../docs/machines.md");

#[test]
fn every_key_and_word_is_documented() {
    let mut known = std::collections::BTreeSet::new();
    for (from, to) in EVERY_TABLE {
        assert!(TWO.contains(from), "{from}");
        let error = parse(&TWO.replacen(from, to, 1)).expect_err(to).to_string();
        let (wrong, right) = error.split_once(", expected ").unwrap_or_else(|| panic!("{to}: {error}"));
        assert!(wrong.contains("unknown"), "{error}");
        known.extend(right.split('`').skip(1).step_by(2).map(str::to_owned));
    }
    // Some hundred keys, and the words of every list.
    assert!(known.len() > 110, "{}", known.len());
    let missing: Vec<_> = known
        .iter()
        .filter(|word| {
            let forms = [format!("`{word}`"), format!("\"{word}\""), format!("{word} = ")];
            !forms.iter().any(|form| DOCS.contains(form.as_str()))
        })
        .collect();
    assert!(missing.is_empty(), "docs/machines.md says nothing of {missing:?}");
}

#[test]
fn every_example_of_the_docs_is_a_machine() {
    let blocks: Vec<_> = DOCS.split("```toml\n").skip(1).filter_map(|rest| rest.split("```").next()).collect();
    assert_eq!(blocks.len(), 3);
    for block in blocks {
        parse(block).unwrap_or_else(|error| panic!("{error}\n{block}"));
    }
    for name in builtin::names() {
        assert!(DOCS.contains(&format!("`{name}`")), "docs/machines.md says nothing of {name}");
    }
}

#[test]
fn the_defaults_are_those_of_the_docs() {
    let spec = parse(DOCS.split("```toml\n").nth(1).unwrap().split("```").next().unwrap()).unwrap();
    let (gpu, speeds) = (&spec.gpus[0], &spec.speeds);
    let said = |key: &str, value: String| {
        let row = DOCS.lines().find(|line| line.starts_with(&format!("| `{key}` |"))).unwrap_or_default();
        assert!(row.contains(&value), "{key} is {value}: {row}");
    };
    said("architecture", format!("{:?}", gpu.architecture));
    said("memory", "46068MiB".into());
    assert_eq!(gpu.memory, Bytes(46_068 << 20));
    said("local_gbps", format!("{:?}", gpu.local_gbps));
    said("copy_engines", gpu.copy_engines.to_string());
    said("driver_version", spec.host.driver_version.clone());
    said("interconnect_gbps", speeds.interconnect_gbps.to_string());
    said("host_memory_gbps", speeds.host_memory_gbps.to_string());
    for (key, of) in [
        ("copy", (|path| path.copy) as fn(&crate::hardware::sim::spec::PathSpeed) -> f64),
        ("push", |path| path.push),
        ("pull", |path| path.pull),
        ("both_ways", |path| path.both_ways),
        ("each_us", |path| path.each_us),
        ("first_us", |path| path.first_us),
        ("from_destination_us", |path| path.from_destination_us),
    ] {
        let paths = [&speeds.nvlink, &speeds.pcie, &speeds.cross_socket, &speeds.staged].map(of);
        let row = DOCS.lines().find(|line| line.starts_with(&format!("| `{key}` |"))).unwrap();
        let told: Vec<f64> = row.split('|').filter_map(|cell| cell.trim().parse().ok()).collect();
        assert_eq!(told.len(), 4, "{row}");
        assert!(told.iter().zip(paths).all(|(told, is)| (told - is).abs() < 0.001), "{row}: {paths:?}");
    }
}
