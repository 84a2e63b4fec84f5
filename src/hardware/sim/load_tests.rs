use super::*;
use crate::spec::PeerRule;
use model::testing::pcie_link;
use model::units::Bytes;

/// Two GPUs, joined by NVLink. The line numbers below are those of this text.
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
    assert_eq!(*spec.speeds.pcie.copy, 0.8);
    assert_eq!(*spec.speeds.pcie.push, 0.80);
    assert_eq!((*spec.speeds.nvlink.both_ways, *spec.speeds.nvlink.first_us), (0.9885, 9.5));
}

/// Replacements in that text: the old part and the new one. The snapshot `broken` contains the expected errors.
const BROKEN: &[(&str, &str)] = &[
    // Not TOML.
    ("[noise]", "[noise"),
    ("[noise]", "[noise]\npercent = 2"),
    ("copy_engines = 2", "copy_engines ="),
    // Unexpected keys and types.
    ("trained =", "trainde ="),
    ("percent = 1.0", "percents = 1.0"),
    ("copy = 0.8", "cpoy = 0.8"),
    ("name = \"one\"\n", ""),
    ("summary = \"two GPUs\"", ""),
    ("copy_engines = 2", "copy_engines = \"2\""),
    ("copy_engines = 2", "copy_engines = -2"),
    ("percent = 1.0", "percent = true"),
    ("kind = \"root-port\"", "kind = \"rootport\""),
    ("[1, 0]", "1"),
    ("{ crc = 1 }", "{ crcs = 1 }"),
    ("{ slow = {", "{ slower = {"),
    // Text that is no address, link or size.
    ("\"0000:00:01.0\"\nkind", "\"0000:00:21.0\"\nkind"),
    ("Gen3 x4", "Gen3 x3"),
    ("Gen3 x4", "Gen7 x4"),
    ("24GiB", "24GiBit"),
    // PCI tree.
    ("\"0000:02:00.0\"\nparent", "\"0000:01:00.0\"\nparent"),
    ("parent = \"0000:00:03.0\"", "parent = \"0000:00:05.0\""),
    ("parent = \"0000:00:03.0\"", "parent = \"0000:01:00.0\""),
    ("kind = \"root-port\"", "kind = \"bridge\"\nparent = \"0000:00:01.0\""),
    ("trained = \"Gen4 x8\"", "trained = \"Gen5 x8\""),
    ("idle = \"Gen1 x4\"", "idle = \"Gen1 x8\""),
    ("trained = \"Gen4 x8\"", "numa_node = 1"),
    // GPUs.
    ("pci = \"0000:02:00.0\"", "pci = \"0000:09:00.0\""),
    ("pci = \"0000:02:00.0\"", "pci = \"0000:01:00.0\""),
    ("pci = \"0000:02:00.0\"", "pci = \"0000:00:03.0\""),
    ("copy_engines = 2", "copy_engines = 0"),
    ("copy_engines = 2", "local_gbps = nan"),
    ("copy_engines = 2", "memory = 0"),
    ("copy_engines = 2", "memory_free = \"999GiB\""),
    ("copy_engines = 2", "fabric = { state = \"completed\", cluster_uuid = \"xyz\" }"),
    // NVLinks.
    ("{ count = 4", "{ count = 33"),
    ("{ count = 4", "{ count = 0"),
    ("count = 4\n", "count = 3\n"),
    ("{ gpu = 0 }", "{ gpu = 1 }"),
    ("{ gpu = 0 }", "{ gpu = 7 }"),
    ("version = \"3.1\"\n", "version = \"3\"\n"),
    ("14.0625", "-1"),
    // Uplinks, peers, devices.
    ("[\"0000:00:03.0\"]", "[]"),
    ("[\"0000:00:03.0\"]", "[\"0000:00:09.0\"]"),
    ("[\"0000:00:03.0\"]", "[\"0000:02:00.0\"]"),
    ("[\"0000:00:03.0\"]", "[\"0000:00:03.0\", \"0000:00:03.0\"]"),
    ("gbps = 8.0", "gbps = inf"),
    ("{ both = [0, 1] }", "{ both = [0, 2] }"),
    ("{ both = [0, 1] }", "{ both = [1, 1] }"),
    ("[1, 0]", "[1, 2]"),
    ("[1, 0]", "[1, 1]"),
    // Numbers.
    ("copy = 0.8", "copy = 1.5"),
    ("copy = 0.8", "copy = 0"),
    ("copy = 0.8", "each_us = -1.0"),
    ("copy = 0.8", "first_us = 1e300"),
    ("percent = 1.0", "percent = nan"),
    // Faults.
    ("[0, 1] }\nfault", "[0, 5] }\nfault"),
    ("share = 0.5", "share = -0.5"),
    ("{ slow = { share = 0.5 } }", "{ corrupt = { words = 0 } }"),
    ("function = \"0000:02:00.0\"", "function = \"0000:07:00.0\""),
    ("gpu = 0\nlink = 3", "gpu = 0\nlink = 4"),
    ("gpu = 0\nlink = 3", "gpu = 4\nlink = 3"),
    ("gpu = 1\ncode", "gpu = 2\ncode"),
    ("code = 46", "code = 0"),
    ("[[faults.contexts]]", "[faults]\nlost_gpus = [0, 3]\n[[faults.contexts]]"),
    // Faults that depend on other traffic, on the issuer, and on time.
    ("fault = { slow", "engine = \"kernel\"\npath = \"staged\"\nfault = { slow"),
    ("fault = { slow", "both_ways = true\nunder_load = true\nfault = { slow"),
    ("{ slow = { share = 0.5 } }", "\"hangs\"\nunder_load = true"),
    ("{ slow = { share = 0.5 } }", "{ outliers = { one_in = 20, times = 2.0 } }\nboth_ways = true"),
    ("fault = { slow", "beside_third = true\nunder_load = true\nfault = { slow"),
    ("{ slow = { share = 0.5 } }", "\"crashes\"\nbeside_third = true"),
    ("fault = { slow", "flows_at_once = 2\nfault = { slow"),
    ("{ slow = { share = 0.5 } }", "\"hangs\"\nflows_at_once = 1"),
    ("{ slow = { share = 0.5 } }", "\"hangs\"\ntimes = 1"),
    ("{ slow = { share = 0.5 } }", "{ late-error = { code = 1, calls = 9 } }\ntimes = 0"),
    ("{ slow = { share = 0.5 } }", "{ outliers = { one_in = 0, times = 2.0 } }"),
    ("{ slow = { share = 0.5 } }", "{ outliers = { one_in = 20, times = 0.5 } }"),
    ("{ slow = { share = 0.5 } }", "{ late-error = { code = 0, calls = 9 } }"),
    (
        "[[faults.contexts]]",
        "[[faults.talk]]\npairs = \"all\"\nfault = { slow = { times = 1000.5 } }\n[[faults.contexts]]",
    ),
    (
        "[[faults.contexts]]",
        "[[over_time.heat]]\nto_c = 80.0\nminutes = 5.0\npercent_per_c = 100.5\n[[faults.contexts]]",
    ),
    ("{ slow = { share = 0.5 } }", "{ late-error = { code = 719, calls = 0 } }"),
    (
        "[[faults.contexts]]",
        "[[faults.windows]]\ngpu = 1\nfrom = \"30GiB\"\nto = \"20GiB\"\n[[faults.contexts]]",
    ),
    (
        "[[faults.contexts]]",
        "[[faults.windows]]\ngpu = 1\nby = 1\nfrom = \"2GiB\"\nto = \"4GiB\"\n[[faults.contexts]]",
    ),
    (
        "[[faults.contexts]]",
        "[[faults.drifts]]\ngpu = 2\npercent = 10.0\nover_ms = 5.0\n[[faults.contexts]]",
    ),
    (
        "[[faults.contexts]]",
        "[[faults.drifts]]\ngpu = 0\npercent = 100.0\nover_ms = 5.0\n[[faults.contexts]]",
    ),
    (
        "[[faults.contexts]]",
        "[[faults.drifts]]\ngpu = 0\npercent = 10.0\nover_ms = -5.0\n[[faults.contexts]]",
    ),
    ("[[faults.contexts]]", "[[faults.late_gates]]\ngpu = 0\nus = -5.0\n[[faults.contexts]]"),
    ("[[faults.contexts]]", "[[faults.late_gates]]\ngpu = 9\nus = 5.0\n[[faults.contexts]]"),
    // Hops that several flows share.
    (
        "[[faults.contexts]]",
        "[[faults.collapses]]\nat = { pci = \"09:00.0\" }\ngbps = 1.0\n[[faults.contexts]]",
    ),
    (
        "[[faults.contexts]]",
        "[[faults.collapses]]\nat = { pci = \"00:01.0\" }\ngbps = 1.0\n[[faults.contexts]]",
    ),
    (
        "[[faults.contexts]]",
        "[[faults.collapses]]\nat = { pci = \"01:00.0\" }\ngbps = 14.0\n[[faults.contexts]]",
    ),
    (
        "[[faults.contexts]]",
        "[[faults.collapses]]\nat = { uplink = 1 }\ngbps = 1.0\n[[faults.contexts]]",
    ),
    (
        "[[faults.contexts]]",
        "[[faults.collapses]]\nat = \"interconnect\"\ngbps = 0.0\n[[faults.contexts]]",
    ),
    (
        "[[faults.contexts]]",
        "[[faults.collapses]]\nat = { nvlinks = 0 }\ngbps = 1.0\n[[faults.contexts]]",
    ),
    // Ports, links, memory, engines and gates.
    ("trained = \"Gen4 x8\"", "redirect_share = 0.5"),
    ("trained = \"Gen4 x8\"", "acs_redirect = true\nredirect_share = 0.0"),
    (
        "kind = \"root-port\"",
        "kind = \"root-port\"\nwakes = { after_ms = 1.0, for_ms = 1.0, share = 0.5 }",
    ),
    ("trained = \"Gen4 x8\"", "wakes = { after_ms = -1.0, for_ms = 1.0, share = 0.5 }"),
    ("trained = \"Gen4 x8\"", "wakes = { after_ms = 1.0, for_ms = 1.0, share = 1.5 }"),
    ("[noise]", "[[numa_nodes]]\ncpus = \"0\"\nread_gbps = 0.0\n[noise]"),
    ("[noise]", "[[numa_nodes]]\ncpus = \"0\"\nwrite_gbps = inf\n[noise]"),
    ("copy_engines = 2", "host_engines = 0"),
    ("copy_engines = 2", "gate_delay_us = -1.0"),
    ("copy = 0.8", "event_us = -1.0"),
];

#[test]
fn what_is_wrong_is_reported_with_line_and_key() {
    let mut reported = String::new();
    for (from, to) in BROKEN {
        assert!(TWO.contains(from), "{from}");
        let error = parse(&TWO.replacen(from, to, 1)).expect_err(to).to_string();
        assert!(!error.contains('\n'), "{error}");
        reported += &format!("{to:?}\n    {error}\n");
    }
    insta::assert_snapshot!("broken", reported);
}

/// A key that no table has, in every table there is. serde's error then names the existing keys.
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
    ("fault = { slow", "issuer = \"x\"\nfault = { slow"),
    ("{ slow = { share = 0.5 } }", "{ outliers = { x = 1 } }"),
    ("{ slow = { share = 0.5 } }", "{ late-error = { x = 1 } }"),
    ("[[faults.contexts]]", "[[faults.drifts]]\nx = 1\n[[faults.contexts]]"),
    ("[[faults.contexts]]", "[[faults.collapses]]\nx = 1\n[[faults.contexts]]"),
    ("[[faults.contexts]]", "[[faults.collapses]]\nat = { x = 1 }\n[[faults.contexts]]"),
    ("trained = \"Gen4 x8\"", "wakes = { x = 1 }"),
    ("[speeds.pcie]", "[over_time]\nx = 1\n[speeds.pcie]"),
    ("[speeds.pcie]", "[[over_time.heat]]\nx = 1\n[speeds.pcie]"),
    ("[speeds.pcie]", "[[over_time.flaps]]\nx = 1\n[speeds.pcie]"),
    ("[speeds.pcie]", "[[over_time.nvlinks]]\nx = 1\n[speeds.pcie]"),
    ("[speeds.pcie]", "[[over_time.copies]]\nx = 1\n[speeds.pcie]"),
    ("[speeds.pcie]", "[[over_time.programs]]\nx = 1\n[speeds.pcie]"),
    ("[speeds.pcie]", "[speeds.host]\nx = 1\n[speeds.pcie]"),
    ("[[faults.contexts]]", "[[faults.host]]\nx = 1\n[[faults.contexts]]"),
    (
        "[[faults.contexts]]",
        "[[faults.host]]\nfault = \"hangs\"\nmemory = \"x\"\n[[faults.contexts]]",
    ),
    (
        "[[faults.contexts]]",
        "[[faults.host]]\nfault = \"hangs\"\ndirection = \"x\"\n[[faults.contexts]]",
    ),
];

const DOCS: &str = include_str!("../../../docs/machines.md");
const KEYS: &str = include_str!("../../../docs/machine-keys.md");

#[test]
fn every_key_and_word_is_documented() {
    let mut known = std::collections::BTreeSet::new();
    for (from, to) in EVERY_TABLE {
        assert!(TWO.contains(from), "{from}");
        let error = parse(&TWO.replacen(from, to, 1)).expect_err(to).to_string();
        if let Some((_, keys)) = error.split_once(", available keys: ") {
            known.extend(keys.split(", ").map(str::to_owned));
            continue;
        }
        let (wrong, right) =
            error.split_once(", expected ").unwrap_or_else(|| panic!("{to}: {error}"));
        assert!(wrong.contains("unknown"), "{error}");
        known.extend(right.split('`').skip(1).step_by(2).map(str::to_owned));
    }
    // Some hundred keys, and the words of every list.
    assert!(known.len() > 110, "{}", known.len());
    let missing: Vec<_> = known
        .iter()
        .filter(|word| {
            let forms = [format!("`{word}`"), format!("\"{word}\""), format!("{word} = ")];
            !forms.iter().any(|form| KEYS.contains(form.as_str()) || DOCS.contains(form.as_str()))
        })
        .collect();
    assert!(missing.is_empty(), "docs/machine-keys.md says nothing of {missing:?}");
}

#[test]
fn every_example_of_the_docs_is_a_machine() {
    let blocks: Vec<_> =
        DOCS.split("```toml\n").skip(1).filter_map(|rest| rest.split("```").next()).collect();
    assert_eq!(blocks.len(), 5);
    for block in blocks {
        parse(block).unwrap_or_else(|error| panic!("{error}\n{block}"));
    }
    for name in crate::builtin::names() {
        assert!(DOCS.contains(&format!("`{name}`")), "docs/machines.md says nothing of {name}");
    }
}

#[test]
fn the_defaults_are_those_of_the_docs() {
    let spec = parse(DOCS.split("```toml\n").nth(1).unwrap().split("```").next().unwrap()).unwrap();
    let (gpu, speeds) = (&spec.gpus[0], &spec.speeds);
    let said = |key: &str, value: String| {
        let mut rows = KEYS.lines().filter(|line| line.starts_with(&format!("| `{key}` |")));
        assert!(rows.any(|row| row.contains(&value)), "{key} is {value}");
    };
    said("architecture", "that of the model".into());
    said("memory", "that of the model".into());
    said("copy_engines", gpu.copy_engines.to_string());
    said("host_engines", gpu.host_engines.to_string());
    said("gate_delay_us", gpu.gate_delay_us.to_string());
    said("driver_version", spec.host.driver_version.clone());
    said("interconnect_gbps", speeds.interconnect_gbps.to_string());
    said("host_memory_gbps", speeds.host_memory_gbps.to_string());
    for (key, of) in [
        ("copy", (|path| *path.copy) as fn(&crate::spec::PathSpeed) -> f64),
        ("push", |path| *path.push),
        ("pull", |path| *path.pull),
        ("both_ways", |path| *path.both_ways),
        ("each_us", |path| *path.each_us),
        ("least_us", |path| *path.least_us),
        ("first_us", |path| *path.first_us),
        ("from_destination_us", |path| *path.from_destination_us),
        ("event_us", |path| *path.event_us),
        ("event_from_destination_us", |path| *path.event_from_destination_us),
    ] {
        let paths = [&speeds.nvlink, &speeds.pcie, &speeds.cross_socket, &speeds.staged].map(of);
        let row = KEYS.lines().find(|line| line.starts_with(&format!("| `{key}` |"))).unwrap();
        let told: Vec<f64> = row.split('|').filter_map(|cell| cell.trim().parse().ok()).collect();
        assert_eq!(told.len(), 4, "{row}");
        assert!(
            told.iter().zip(paths).all(|(told, is)| (told - is).abs() < 0.001),
            "{row}: {paths:?}"
        );
    }
}

fn load_in(text: &str, folder: &std::path::Path) -> Result<MachineSpec, LoadError> {
    parse_in(text, Some(folder))
}

#[test]
fn a_list_of_more_than_can_be_simulated_is_refused() {
    let machine = |entries: usize| {
        format!(
            "summary = 'x'\npci = []\ngpus = []\n[host]\niommu_parameters = {:?}\n",
            vec!["a"; entries]
        )
    };
    parse(&machine(1024)).unwrap();
    let why = parse(&machine(1025)).unwrap_err().to_string();
    assert!(why.contains("host.iommu_parameters: 1025 are more than can be simulated"), "{why}");
}

#[path = "load_base_tests.rs"]
mod base;

#[path = "load_models_tests.rs"]
mod models;
