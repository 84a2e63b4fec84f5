//! How GPUs are connected: matrices and NVLinks.

use super::*;
use model::snapshot::NvLinkBond;

#[test]
fn a_topology_has_classes_nvlinks_and_nodes() {
    let machine = of(TOPO);
    let snapshot = &machine.snapshot;
    assert_eq!(snapshot.gpus.len(), 4);
    let ancestor = |one, other| snapshot.pair(pair(one, other)).unwrap().common_ancestor.get();
    assert_eq!(ancestor(0, 2), Some(CommonAncestor::System));
    assert_eq!(ancestor(0, 1), None);
    let bonds: Vec<_> =
        snapshot.bonds.iter().map(|bond| (bond.source, bond.destination, bond.links)).collect();
    assert_eq!(bonds, [(0, 1, 4), (1, 0, 4), (2, 3, 4), (3, 2, 4)]);
    assert_eq!(snapshot.gpus[3].numa_node, Reading::Known(1));
    let origin = machine.pasted.origins.iter().find(|origin| origin.of == "bonds[2→3].links");
    assert_eq!(origin.map(|origin| (origin.line, origin.input.as_str())), Some((4, "in.txt")));
    assert!(machine.measurements.is_none());
}

#[test]
fn more_nvlinks_than_a_gpu_has_lead_to_switches() {
    let row = |own: usize| {
        let cells = (0..8).map(|other| if own == other { "X" } else { "NV18" });
        format!("GPU{own} {}\n", cells.collect::<Vec<_>>().join(" "))
    };
    let header: Vec<_> = (0..8).map(|gpu| format!("GPU{gpu}")).collect();
    let text = format!("{}\n{}", header.join(" "), (0..8).map(row).collect::<String>());
    // One cell differs: no cell is changed.
    let text = text.replacen("GPU3 NV18", "GPU3 NV16", 1);
    let machine = of(&text);
    let bonds = &machine.snapshot.bonds;
    assert!(bonds.len() == 56 && bonds.iter().all(|bond| bond.over_switches));
    let links = |source, destination| {
        let is_it = |bond: &&NvLinkBond| (bond.source, bond.destination) == (source, destination);
        bonds.iter().find(is_it).map(|bond| bond.links)
    };
    assert_eq!((links(3, 0), links(0, 3), links(5, 4)), (Some(16), Some(18), Some(18)));
    // A matrix says nothing of the state of single links.
    assert!(machine.snapshot.gpus[5].nvlinks.known().is_none());
}

#[test]
fn a_list_of_links_that_someone_cut_is_no_lack_of_links() {
    for dots in ["......", "\t ...", "[...]", "<snip>", "…"] {
        let text = NVLINK.lines().enumerate().take(6).map(|(number, line)| match number {
            2 => format!("{dots}\n"),
            _ => format!("{line}\n"),
        });
        let machine = of(&text.collect::<String>());
        assert!(machine.snapshot.gpus[0].nvlinks.known().is_none(), "{dots}");
        let remarks = machine.pasted.remarks.join("\n");
        assert!(remarks.contains("GPU 0 ends with dots"), "{dots}: {remarks}");
    }
    // A link that is down was printed all the same.
    let text: String = NVLINK.lines().take(3).map(|line| format!("{line}\n")).collect();
    let machine = of(&format!("{text}......\n"));
    let problems = machine.snapshot.problems.join("\n");
    assert!(problems.contains("NVLink 1 of GPU 0 is down"), "{problems}");
}

#[test]
fn access_is_read_by_the_command_above_it() {
    let machine = of(P2P);
    let said = machine.snapshot.pair(pair(1, 0)).unwrap();
    assert_eq!(said.p2p_read, Reading::Known(P2pStatus::ChipsetNotSupported));
    assert_eq!(said.p2p_write, Reading::Known(P2pStatus::Ok));
    // Without its command, a matrix says which pairs are refused, and no more.
    let bare: String = P2P.lines().skip(1).take(3).map(|line| format!("{line}\n")).collect();
    let machine = of(&bare);
    assert_eq!(machine.pasted.inputs[0].sections[0].kind, "smi-p2p");
    let read_of = |machine: &Machine, one, other| {
        machine.snapshot.pair(pair(one, other)).unwrap().p2p_read.get()
    };
    assert_eq!(
        (read_of(&machine, 1, 0), read_of(&machine, 0, 1)),
        (Some(P2pStatus::ChipsetNotSupported), None)
    );
    for (word, status) in [
        ("GNS", P2pStatus::GpuNotSupported),
        ("TNS", P2pStatus::TopologyNotSupported),
        ("NS", P2pStatus::NotSupported),
    ] {
        let other = bare.replace("CNS", word);
        assert_eq!(read_of(&of(&other), 1, 0), Some(status), "{word}");
        // As driver 580 prints it, and as it arrives where the escapes are lost.
        let coloured = other.replacen(" \tGPU0\tGPU1\t", " \t\u{1b}[4mGPU0\tGPU1\u{1b}[0m\t", 1);
        assert!(coloured.contains('\u{1b}'));
        for text in [coloured.replace('\u{1b}', ""), coloured] {
            assert_eq!(read_of(&of(&text), 1, 0), Some(status), "{text:?}");
        }
    }
    // A matrix of PCIe refuses GPUs with NVLinks, which have access.
    let joined = format!("{TOPO}\n{}", bare.replace("CNS", "NS"));
    assert_eq!(read_of(&of(&joined), 1, 0), None);
}

#[test]
fn links_have_states_rates_and_errors() {
    let machine = of(NVLINK);
    let gpu = &machine.snapshot.gpus[0];
    let links = gpu.nvlinks.known().unwrap();
    assert_eq!(links[0].active, Reading::Known(true));
    assert_eq!(links[0].speed_mbps, Reading::Known(25_000));
    assert_eq!(links[0].version, Reading::Known("3.0".into()));
    let errors = (&links[0].crc_errors, &links[0].replay_errors, &links[0].recovery_errors);
    assert_eq!(errors, (&Reading::Known(12), &Reading::Known(7), &Reading::Known(1)));
    assert_eq!(links[1].active, Reading::Known(false));
    assert!(links[1].speed_mbps.known().is_none());
    assert_eq!(gpu.uuid, Reading::Known("GPU-a1b2c3d4-0000-0000-0000-000000000001".into()));
}

#[test]
fn error_counters_of_newer_drivers_are_read() {
    let machine = of(NVLINK_ERRORS);
    let links = machine.snapshot.gpus[0].nvlinks.known().unwrap();
    let crc: Vec<_> = links.iter().map(|link| link.crc_errors.get()).collect();
    assert_eq!(crc, [Some(88), Some(0), Some(0), Some(0), Some(0), Some(0)]);
    assert!(links[0].replay_errors.known().is_none());
    assert_eq!(links[5].replay_errors, Reading::Known(0));
    let fifth = machine.snapshot.gpus[1].nvlinks.known().unwrap();
    assert_eq!(fifth.len(), 2);
    assert!(fifth[0].recovery_errors.known().is_none());
}

#[test]
fn a_list_of_links_that_was_cut_is_no_lack_of_links() {
    let cut: String = NVLINK.lines().take(5).map(|line| format!("{line}\n")).collect();
    let machine = of(&cut);
    assert_eq!(machine.snapshot.gpus[0].nvlinks.known().unwrap().len(), 2);
    assert!(machine.snapshot.gpus[1].nvlinks.known().is_none());
    assert!(machine.pasted.remarks.iter().any(|remark| remark.contains("it was cut")));
    // A prompt behind it.
    assert_eq!(of(&format!("{cut}root@n1:~#\n")).snapshot.gpus[1].nvlinks.known(), None);
}

#[test]
fn links_that_are_all_inactive_are_a_fact_of_their_gpu() {
    for words in ["all links are inActive", "all  Links are Inactive"] {
        let text = format!(
            "GPU 0: NVIDIA A40 (UUID: GPU-a)\nNVML: Unable to retrieve NVLink information as {words}\n"
        );
        let machine = of(&text).snapshot;
        assert_eq!(
            (machine.gpus[0].active_nvlinks(), machine.problems.len()),
            (Some(0), 0),
            "{words}"
        );
    }
    let alone = "NVML: Unable to retrieve NVLink information as all links are inActive\n";
    assert_eq!(of(alone).snapshot.problems.len(), 1);
    // DCGM.
    let explained = of("|   | GPU 1's NvLink link 3 is currently down. Run |\n").pasted.explained;
    assert!(explained[0].meaning.contains("an NVLink of GPU 1 (as the line counts) down"));
}

#[test]
fn a_column_of_nvlinks_without_a_row_is_a_gpu_that_was_cut_off() {
    let machine = of("GPU0 X NV12 NV12 NODE\nGPU1 NV12 X NV12 NODE\n");
    assert_eq!(machine.snapshot.gpus.len(), 3);
    assert!(
        machine
            .pasted
            .remarks
            .iter()
            .any(|remark| remark.contains("GPU 2 has a column and no row"))
    );
}

#[test]
fn a_matrix_without_its_header_or_with_glued_cells_is_read_as_the_whole() {
    let whole = of(TOPO).snapshot;
    let headless: String = TOPO.lines().skip(1).map(|line| format!("{line}\n")).collect();
    assert_eq!(of(&headless).snapshot, whole);
    assert_eq!(of(&TOPO.replace("SYS\tSYS\tPIX", "SYS\tSYSPIX")).snapshot, whole);
    assert_eq!(of(&format!("$ nvidia-smi topo -m {TOPO}")).snapshot, whole);
    let table = "| | GPU0 | GPU1 |\n|---|:--:|---|\n| GPU0 | X | `NV16` |\n| GPU1 | NV16 | X |\n";
    let bonds = of(&table.replace('`', "")).snapshot.bonds;
    assert_eq!(bonds.iter().map(|bond| bond.links).collect::<Vec<_>>(), [16, 16]);
    // A GPU that is only named is none.
    let prose = format!("{TOPO}\nthe docs show, for example:\n    GPU7: NV12 to all\n");
    assert_eq!(of(&prose).snapshot.gpus.len(), 4);
}

#[test]
fn links_are_read_below_a_gpu_without_its_uuid() {
    for head in ["GPU 0: NVIDIA A40", "GPU 0: NVIDIA A40 (UUID: ...)", "GPU 0:"] {
        let machine = of(&format!("{head}\n\t Link 0: 14.062 GB/s\n\t Link 1: <inactive>\n$\n"));
        let links = machine.snapshot.gpus[0].nvlinks.known().unwrap();
        let active: Vec<_> = links.iter().map(|link| link.active.get()).collect();
        assert_eq!(active, [Some(true), Some(false)], "{head}");
    }
}

#[test]
fn of_two_runs_the_later_one_counts() {
    let run = |cell: &str| format!("\tGPU0\tGPU1\nGPU0\t X \t{cell}\nGPU1\t{cell}\t X \n");
    let machine = of(&format!("before:\n{}\nafter:\n{}", run("SYS"), run("NV4")));
    assert_eq!(machine.snapshot.bonds.len(), 2);
    let remarks = machine.pasted.remarks.join("\n");
    assert!(remarks.contains("GPU 0 and GPU 1 had no NVLink in an earlier output, and later NV4"));
    let machine = of(&format!("before:\n{}\nafter:\n{}", run("NV4"), run("SYS")));
    assert_eq!(machine.snapshot.bonds, []);
    let problems = machine.snapshot.problems.join("\n");
    assert!(problems.contains("had NV4 in an earlier output, and later none"), "{problems}");
}

#[test]
fn counts_of_links_that_cannot_be_are_told() {
    let matrix = |cell: &str| {
        format!("GPU0 GPU1 NIC0\nGPU0 X {cell} PIX\nGPU1 {cell} X SYS\nNIC0 PIX SYS X\n")
    };
    let beyond = of(&format!("GPU 0: NVIDIA A100-SXM4-40GB\n{}", matrix("NV24")));
    let bond = &beyond.snapshot.bonds[0];
    assert_eq!((bond.links, &bond.version, bond.over_switches), (24, &None, false));
}
