mod bus_and_logs;
mod facts;
mod figures;
mod links;
mod trouble;

use super::samples::*;
use super::*;
use model::flow::Setup;
use model::host::HostDirection;
use model::measurement::{PeerBandwidth, Verified};
use model::pasted::PastedFaultKind;
use model::placement::{Direction, Engine, Pair, Path, Side};
use model::reading::Reading;
use model::snapshot::{BoundDriver, CommonAncestor, FabricState, Gpu, P2pStatus, PciKind};
use model::units::{Generation, Lanes};

fn input(name: &str, text: &str) -> Input {
    Input { name: name.to_owned(), text: text.to_owned(), ..Input::default() }
}

fn of(text: &str) -> Machine {
    read(&[input("in.txt", text)]).unwrap()
}

fn of_all(texts: &[&str]) -> Machine {
    let names = ["a.txt", "b.txt", "c.txt", "d.txt"];
    let inputs: Vec<Input> =
        texts.iter().zip(names).map(|(text, name)| input(name, text)).collect();
    read(&inputs).unwrap()
}

/// Returns the lines that were not understood, and those of known messages, as one text.
fn odd(machine: &Machine) -> String {
    let explained = machine.pasted.explained.iter().flat_map(|one| &one.lines);
    let explained = explained.map(ToString::to_string);
    machine.snapshot.problems.iter().cloned().chain(explained).collect::<Vec<_>>().join("\n")
}

fn pair(source: u32, destination: u32) -> Pair {
    Pair { source, destination }
}

fn generation(gpu: &Gpu) -> Option<u8> {
    gpu.pcie_generation.get().map(Generation::number)
}

fn width(gpu: &Gpu) -> Option<u8> {
    gpu.pcie_width.get().map(Lanes::number)
}

fn rates(machine: &Machine, with: impl Fn(&PeerBandwidth) -> bool) -> Vec<(u32, u32, f64)> {
    let peer = &machine.measurements.as_ref().unwrap().peer;
    let cells = peer.iter().filter(|cell| with(cell));
    cells
        .map(|cell| (cell.pair.source, cell.pair.destination, cell.achieved_gbps.unwrap().0))
        .collect()
}

fn reference(cell: &PeerBandwidth) -> bool {
    cell.setup.with_bytes(Setup::REFERENCE.bytes) == Setup::REFERENCE
}

#[test]
fn every_sample_is_recognised_by_what_it_says() {
    for (kind, text) in ALL {
        let machine = of(text);
        let kinds: Vec<&str> =
            machine.pasted.inputs[0].sections.iter().map(|section| section.kind.as_str()).collect();
        assert!(kinds.contains(kind), "{kind}: {kinds:?}");
    }
    assert!(read(&[input("x", "nothing\n")]).unwrap_err().to_string().starts_with("has no output"));
}

#[test]
fn a_query_has_the_facts_of_each_gpu() {
    let machine = of(QUERY);
    let host = &machine.snapshot.host;
    assert_eq!(host.driver_version, Reading::Known("580.65.06".into()));
    assert_eq!(host.virtual_machine, Reading::Known(false));
    let [first, second] = &machine.snapshot.gpus[..] else {
        panic!("{:?}", machine.snapshot.gpus.len());
    };
    assert_eq!(first.pci, Reading::Known("0000:3b:00.0".parse().unwrap()));
    assert_eq!((generation(first), width(first)), (Some(1), Some(8)));
    assert_eq!(first.pcie_width_max, Reading::Known(Lanes::X16));
    assert_eq!(first.pcie_replays, Reading::Known(3));
    assert_eq!(first.throttle_reasons, Reading::Known(vec!["sw-power-cap".into()]));
    let rows = first.remapped_rows.get().unwrap();
    assert_eq!((rows.corrected, rows.uncorrected, rows.pending, rows.failed), (1, 2, true, false));
    assert_eq!(first.mig, Reading::Known(false));
    assert_eq!(first.processes.known().unwrap()[0].pid, 4711);
    assert_eq!(first.sm_clock_mhz, Reading::Known(210));
    assert_eq!((generation(second), width(second)), (Some(4), Some(16)));
    assert!(second.mig.known().is_none() && second.ecc.known().is_none());
    assert!(first.serial.known().is_none());
    let origin = machine.pasted.origins.iter().find(|origin| origin.of == "gpus[0].pcie_width");
    assert_eq!(origin.unwrap().line, 31);
    assert_eq!(machine.pasted.inputs[0].sections[0].version.as_deref(), Some("580.65.06"));
}

#[test]
fn text_table_and_csv_of_one_machine_agree() {
    let machine = of_all(&[QUERY, TABLE, CSV]);
    assert_eq!(machine.pasted.contradictions, [""; 0]);
    assert_eq!(machine.snapshot.gpus.len(), 2);
    for (text, what) in [(TABLE, "table"), (CSV, "csv")] {
        let gpus = of(text).snapshot.gpus;
        assert_eq!(gpus.len(), 2, "{what}");
        assert_eq!(gpus[1].name, Reading::Known("NVIDIA A40".into()), "{what}");
        assert_eq!(
            gpus[0].memory_total_bytes,
            Reading::Known(model::units::Bytes(46_068 << 20)),
            "{what}"
        );
    }
    assert_eq!(of(TABLE).snapshot.gpus[0].persistence, Reading::Known(true));
    assert_eq!(width(&of(CSV).snapshot.gpus[0]), Some(8));
}

#[test]
fn outputs_that_contradict_each_other_are_named_with_their_lines() {
    let other = TABLE.replace("580.65.06", "570.10.01");
    let machine = of_all(&[QUERY, &other]);
    let all = machine.pasted.contradictions.join("\n");
    assert!(
        all.contains(
            "host.driver_version is 580.65.06 (line 4 of a.txt) and 570.10.01 (line 2 of b.txt)"
        ),
        "{all}"
    );
    // A link at rest lowers its generation: that is no contradiction, and the higher one counts.
    let busy = QUERY.replace("Current                   : 1\n", "Current                   : 4\n");
    let machine = of_all(&[QUERY, &busy]);
    assert_eq!(machine.pasted.contradictions, [""; 0]);
    assert_eq!(generation(&machine.snapshot.gpus[0]), Some(4));
}

#[test]
fn facts_of_a_fabric_are_read() {
    let text = QUERY.replace(
        "    Compute Mode                          : Default\n",
        "    Compute Mode                          : Default\n    Fabric\n        State                             : In Progress\n",
    );
    let machine = of(&text);
    assert_eq!(machine.snapshot.gpus[0].fabric.known().unwrap().state, FabricState::InProgress);
}

#[test]
fn several_outputs_of_one_paste_are_one_machine() {
    let paste = format!(
        "My node is slow.\n\n$ nvidia-smi -q\n```\n{QUERY}```\nand\n```\n{NVBANDWIDTH}```\n> quoted\n{LSPCI}\nThanks!\n"
    );
    let machine = of(&paste.replace("12080", "13000"));
    let kinds: Vec<&str> =
        machine.pasted.inputs[0].sections.iter().map(|section| section.kind.as_str()).collect();
    assert_eq!(kinds, ["smi-query", "nvbandwidth", "lspci"]);
    assert_eq!(machine.snapshot.gpus.len(), 2);
    assert_eq!(machine.pasted.contradictions, [""; 0]);
    assert_eq!(rates(&machine, reference).len(), 2);
}

#[test]
fn the_outputs_of_a_real_machine_read_together_agree() {
    let machine = of_all(&[
        include_str!("../../tests/data/pasted/h200x8/nvidia-smi-topo-m.txt"),
        include_str!("../../tests/data/pasted/h200x8/nvidia-smi-topo-p2p.txt"),
        include_str!("../../tests/data/pasted/h200x8/p2pBandwidthLatencyTest.txt"),
        include_str!("../../tests/data/pasted/h200x8/nvidia-smi-nvlink.txt"),
    ]);
    assert_eq!(machine.pasted.contradictions, [""; 0]);
    let snapshot = &machine.snapshot;
    assert_eq!(snapshot.gpus.len(), 8);
    let words = |pair: Pair| {
        let said = snapshot.pair(pair).unwrap();
        [
            said.p2p_read.get(),
            said.p2p_write.get(),
            said.p2p_nvlink.get(),
            said.p2p_atomics.get(),
            said.p2p_pci.get(),
        ]
    };
    let ok = Some(P2pStatus::Ok);
    assert_eq!(words(pair(7, 0)), [ok, ok, ok, ok, Some(P2pStatus::NotSupported)]);
    assert_eq!(snapshot.gpus[2].active_nvlinks(), Some(18));
    assert_eq!(snapshot.gpus[7].pci, Reading::Known("0000:00:0d.0".parse().unwrap()));
}

#[test]
fn the_outputs_of_one_real_gpu_agree_and_lack_nothing() {
    let part = |name: &str| {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/data/pasted/h200x1/");
        input(name, &std::fs::read_to_string(format!("{folder}{name}.txt")).unwrap())
    };
    let names = [
        "nvidia-smi",
        "nvidia-smi-q",
        "nvidia-smi-query-gpu",
        "nvidia-smi-list",
        "nvidia-smi-topo-m",
        "nvidia-smi-topo-p2p",
        "lspci-vvv",
        "lspci-nn",
        "nvbandwidth",
        "dmesg",
    ];
    let inputs = names.map(part);
    let machine = read(&inputs).unwrap();
    assert_eq!(machine.pasted.contradictions, [""; 0]);
    assert_eq!(machine.pasted.missing, []);
    let [gpu] = &machine.snapshot.gpus[..] else {
        panic!("{:?}", machine.snapshot.gpus.len());
    };
    assert_eq!(gpu.vbios, Reading::Known("96.00.A5.00.1A".into()));
    assert_eq!((generation(gpu), width(gpu)), (Some(5), Some(16)));
    assert_eq!(gpu.numa_node, Reading::Known(0));
    assert!(gpu.uuid.known().is_none());
    assert_eq!(machine.snapshot.host.virtual_machine, Reading::Known(true));
    let measured = machine.measurements.unwrap();
    assert_eq!((measured.host.len(), measured.local.len()), (2, 1));
    // The same in one paste, with the commands above each output.
    let paste: String =
        inputs.iter().map(|input| format!("$ {}\n{}\n", input.name, input.text)).collect();
    assert_eq!(machine.snapshot.problems, [""; 0]);
    assert_eq!(of(&paste).snapshot, machine.snapshot);
}
