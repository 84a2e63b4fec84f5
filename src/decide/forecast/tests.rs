//! The forecast of real and simulated machines. What NCCL did on 2 x H200 is from its own log.

use model::forecast::{AllReduceForecast, Engine, PairsForecast, Runs, Transport};
use model::measurement::{Status, Verified};
use model::reading::Reading;
use model::report::Report;
use model::snapshot::P2pStatus;
use model::topology::LinkClass;
use model::units::{Bytes, MIB};

use super::{Version, forecast};

const H200X2: &str = include_str!("../../../tests/data/h200x2-standard.json");

/// Returns the recorded report of 2 x H200, with facts that its version did not read yet: these variables, and that CUDA
/// has virtual memory management (`cuMemCreate` works there).
fn h200x2(variables: &[&str]) -> Report {
    let mut report: Report = serde_json::from_str(H200X2).unwrap();
    set(&mut report, variables);
    let devices = &mut report.measurements.as_mut().unwrap().driver.devices;
    for device in devices {
        device.attributes = Some(model::cuda::CudaAttributes {
            integrated: Reading::Known(false),
            registers_memory: Reading::Known(true),
            pageable_access: Reading::Known(false),
            host_page_tables: Reading::Known(false),
            virtual_memory: Reading::Known(true),
            rdma_of_virtual_memory: Reading::Known(true),
        });
    }
    report
}

fn set(report: &mut Report, variables: &[&str]) {
    let set = variables.iter().map(ToString::to_string).collect();
    report.snapshot.host.nccl_variables = Reading::Known(set);
}

fn groups(report: &Report, version: &str) -> Vec<PairsForecast> {
    let version: Version = version.parse().unwrap();
    forecast(report, version).unwrap().nccl.groups
}

/// Returns the forecast of the only group.
fn only(report: &Report) -> PairsForecast {
    let mut groups = groups(report, "2.30");
    assert_eq!(groups.len(), 1, "{groups:#?}");
    groups.remove(0)
}

fn all_reduce(report: &Report, engine: Engine, gpus: u32) -> AllReduceForecast {
    let mut all = forecast(report, Version::default()).unwrap().all_reduce.into_iter();
    all.find(|one| one.engine == engine && one.gpus == gpus).unwrap()
}

#[test]
fn as_nccl_logged_it_on_two_h200_in_four_settings() {
    let logged = [
        (None, Transport::P2pCumem),
        (Some("NCCL_CUMEM_ENABLE=0"), Transport::P2pIpc),
        (Some("NCCL_P2P_DISABLE=1"), Transport::Shm),
        (Some("NCCL_P2P_LEVEL=LOC"), Transport::Shm),
    ];
    for (variable, transport) in logged {
        let report = h200x2(variable.as_slice());
        let found = only(&report);
        assert_eq!(found.transport, Some(transport), "{variable:?}: {found:?}");
        assert_eq!(found.pairs.len(), 1, "a pair stands for both directions");
        let nvlink = found.ll128 == Some(true);
        assert_eq!(nvlink, transport != Transport::Shm, "{variable:?}: {found:?}");
        if let Some(variable) = variable {
            assert!(found.because.contains(variable), "{found:?}");
        }
    }
}

#[test]
fn what_a_report_lacks_is_not_assumed() {
    let mut report: Report = serde_json::from_str(H200X2).unwrap();
    let found = forecast(&report, Version::default()).unwrap().nccl;
    assert_eq!(found.needs.len(), 1, "variables: {found:?}");
    let group = &found.groups[0];
    assert_eq!(group.transport, Some(Transport::P2p));
    assert!(group.needs[0].contains("virtual memory management"), "{group:?}");

    set(&mut report, &["NCCL_P2P_DISABLE=1"]);
    let group = only(&report);
    assert_eq!(group.transport, Some(Transport::Shm));
    // Both are asked for in the order in which they matter.
    assert_eq!(group.needs, ["the size of /dev/shm"], "{group:?}");

    let mut report = h200x2(&[]);
    for pair in &mut report.snapshot.pairs {
        pair.p2p_read = Reading::unsupported();
    }
    let group = only(&report);
    assert_eq!(group.transport, None);
    assert!(group.needs[0].contains("NVML"), "{group:?}");

    let mut report = h200x2(&[]);
    report.measurements = None;
    let group = only(&report);
    assert_eq!(group.transport, None, "CUDA was not asked: {group:?}");
    assert!(group.needs[0].contains("CUDA"), "{group:?}");
    for route in &mut report.topology.pairs {
        route.class = LinkClass::Unknown;
    }
    assert!(only(&report).needs[0].contains("PCI tree"));
}

#[test]
fn rules_of_versions_differ_where_their_sources_do() {
    let report = h200x2(&[]);
    let transport = |version| groups(&report, version)[0].transport.unwrap();
    assert_eq!(transport("2.18.5"), Transport::P2pIpc);
    assert_eq!(transport("2.19"), Transport::P2pCumem);
    let mut without_rdma = report.clone();
    for device in &mut without_rdma.measurements.as_mut().unwrap().driver.devices {
        device.attributes.as_mut().unwrap().rdma_of_virtual_memory = Reading::Known(false);
    }
    assert_eq!(groups(&without_rdma, "2.23")[0].transport, Some(Transport::P2pIpc));
    assert_eq!(groups(&without_rdma, "2.24")[0].transport, Some(Transport::P2pCumem));

    let mut ada = report.clone();
    for gpu in &mut ada.snapshot.gpus {
        gpu.architecture = Reading::Known("Ada".into());
    }
    assert_eq!(groups(&ada, "2.26")[0].ll128, Some(false));
    assert_eq!(groups(&ada, "2.27")[0].ll128, Some(true));
    let mut ampere = ada.clone();
    for gpu in &mut ampere.snapshot.gpus {
        gpu.architecture = Reading::Known("Ampere".into());
    }
    let group = &groups(&ampere, "2.26")[0];
    assert_eq!(group.ll128, None);
    assert!(group.needs.iter().any(|needs| needs.contains("compute capability")));
    let mut mixed = report;
    mixed.snapshot.gpus[1].architecture = Reading::Known("Blackwell".into());
    mixed.snapshot.gpus[1].name = Reading::Known("NVIDIA B200".into());
    assert_eq!(groups(&mixed, "2.29")[0].ll128, Some(false));
    assert_eq!(groups(&mixed, "2.30")[0].ll128, Some(true));
    for wrong in ["2.17", "2.31", "3.0", "2", "", "2.x", "2.30.7.1"] {
        assert!(wrong.parse::<Version>().is_err(), "{wrong}");
    }
}

/// Returns 2 x H200 with their pair below PCIe alone.
fn over_pcie(class: LinkClass, cpu: &str, variables: &[&str]) -> Report {
    let mut report = h200x2(variables);
    report.snapshot.host.cpu = Reading::Known(cpu.into());
    for route in &mut report.topology.pairs {
        route.class = class;
    }
    for pair in &mut report.snapshot.pairs {
        pair.p2p_nvlink = Reading::Known(P2pStatus::NotSupported);
    }
    report
}

#[test]
fn paths_across_host_bridges_go_through_the_host_unless_two_gpus_are_below_amd() {
    let (intel, amd) = ("Intel(R) Xeon(R) Processor", "AMD EPYC 7543 32-Core Processor");
    let transport = |class, cpu, version| groups(&over_pcie(class, cpu, &[]), version)[0].transport;
    let cumem = Some(Transport::P2pCumem);
    assert_eq!(transport(LinkClass::Pxb, intel, "2.30"), cumem);
    assert_eq!(transport(LinkClass::Phb, intel, "2.30"), Some(Transport::Shm));
    assert_eq!(transport(LinkClass::Phb, amd, "2.30"), cumem);
    assert_eq!(transport(LinkClass::Sys, amd, "2.30"), cumem);
    assert_eq!(transport(LinkClass::Phb, "unheard of", "2.30"), None);
    assert_eq!(transport(LinkClass::Pix, "unheard of", "2.30"), cumem);
    let raised = over_pcie(LinkClass::Sys, intel, &["NCCL_P2P_LEVEL=SYS"]);
    assert_eq!(only(&raised).transport, cumem);
    assert_eq!(only(&raised).ll128, Some(false), "there is no NVLink");
    let forced = over_pcie(LinkClass::Pix, intel, &["NCCL_PROTO=LL128"]);
    assert_eq!(only(&forced).ll128, Some(true), "whatever the path");
}

#[test]
fn four_gpus_below_amd_cross_host_bridges_only_by_older_rules() {
    let report = check(&two_nodes("[\"NCCL_DEBUG=INFO\"]", None));
    let far = |version| {
        let groups = groups(&report, version);
        let far = groups.iter().find(|group| {
            let mut pairs = group.pairs.iter();
            pairs.any(|pair| (pair.source, pair.destination) == (0, 2))
        });
        far.unwrap().transport
    };
    assert_eq!(far("2.22"), Some(Transport::P2pCumem));
    assert_eq!(far("2.30"), Some(Transport::Shm));
}

/// Checks a machine. Its bytes arrive; these checks do not look at them.
fn check(description: &str) -> Report {
    let mut report = crate::testing::check(description);
    for cell in &mut report.measurements.as_mut().unwrap().peer {
        cell.verified = Verified::Ok;
    }
    report
}

/// Returns a machine of 4 GPUs, two below each of two processors of AMD.
fn two_nodes(variables: &str, shm: Option<u64>) -> String {
    let node = "{ cpus = \"0-31\", memory = \"256GiB\" }";
    let mut text = format!("summary = \"test\"\nnuma_nodes = [{node}, {node}]\n[host]\n");
    text += &format!("nccl_variables = {variables}\n");
    if let Some(size) = shm {
        text += &format!("shm = {size}\n");
    }
    for gpu in 0..4 {
        let node = gpu / 2;
        let root = if node == 0 { "00" } else { "80" };
        text += &format!(
            "[[pci]]\naddress = \"0000:{root}:0{}.0\"\nkind = \"root-port\"\nnuma_node = {node}\nmax = \"Gen4 x16\"\n",
            gpu + 1
        );
        let bus = if node == 0 { 0x10 + gpu } else { 0x90 + gpu };
        text += &format!(
            "[[pci]]\naddress = \"0000:{bus:02x}:00.0\"\nparent = \"0000:{root}:0{}.0\"\nmax = \"Gen4 x16\"\n",
            gpu + 1
        );
    }
    for gpu in 0..4 {
        let bus = if gpu < 2 { 0x10 + gpu } else { 0x90 + gpu };
        text += &format!("[[gpus]]\nname = \"Test GPU\"\npci = \"0000:{bus:02x}:00.0\"\n");
    }
    text
}

#[test]
fn a_small_shm_keeps_nccl_from_starting_where_it_needs_it() {
    let found = |variables: &str, shm: Option<u64>| {
        let report = check(&two_nodes(variables, shm));
        let groups = groups(&report, "2.30");
        let all: Vec<_> = groups.iter().map(|group| group.transport).collect();
        assert!(all.iter().all(|transport| *transport == all[0]), "{groups:#?}");
        groups[0].clone()
    };
    // By default memory of the host comes from cuMem with this driver.
    let by_default = found("[]", Some(64 * MIB));
    assert_eq!(by_default.transport, Some(Transport::Shm), "{by_default:?}");
    let older = "[\"NCCL_CUMEM_HOST_ENABLE=0\"]";
    let small = found(older, Some(64 * MIB));
    assert_eq!(small.transport, Some(Transport::Fails), "{small:?}");
    assert!(small.because.contains("74 MiB at least, 64 MiB are free"), "{small:?}");
    let large = found(older, Some(128 * MIB));
    assert_eq!(large.transport, Some(Transport::Shm), "{large:?}");
    let none = found("[\"NCCL_SHM_DISABLE=1\"]", Some(64 * MIB));
    assert_eq!(none.transport, Some(Transport::Net), "{none:?}");
}

#[test]
fn nvlink_that_nvml_refuses_ends_nccl() {
    let mut report = h200x2(&[]);
    report.snapshot.pairs[0].p2p_write = Reading::Known(P2pStatus::NotSupported);
    let found = only(&report);
    assert_eq!(found.transport, Some(Transport::Fails), "{found:?}");
    assert!(found.because.contains("NS for writing"), "{found:?}");
    set(&mut report, &["NCCL_IGNORE_DISABLED_P2P=1"]);
    assert_eq!(only(&report).transport, Some(Transport::Shm));
    set(&mut report, &["NCCL_IGNORE_DISABLED_P2P=2"]);
    assert_eq!(only(&report).transport, Some(Transport::P2pCumem), "it is not asked");
    report.measurements.as_mut().unwrap().driver.peer_access[0].possible = Some(false);
    assert_eq!(only(&report).transport, Some(Transport::Shm), "CUDA is");
}

#[test]
fn gpus_of_one_process_use_pointers() {
    let in_one =
        |variables: &[&str], version| groups(&h200x2(variables), version)[0].in_one_process;
    assert_eq!(in_one(&[], "2.30"), Some(Transport::P2pDirect));
    assert_eq!(in_one(&["NCCL_CUMEM_ENABLE=1"], "2.18"), Some(Transport::P2pCumem));
    assert_eq!(in_one(&["NCCL_P2P_DIRECT_DISABLE=1"], "2.30"), Some(Transport::P2pCumem));
    assert_eq!(in_one(&["NCCL_P2P_DISABLE=1"], "2.30"), Some(Transport::Shm));
}

#[test]
fn windows_has_no_older_handles() {
    let mut report = h200x2(&["NCCL_CUMEM_ENABLE=0"]);
    report.snapshot.host.kernel_version =
        Reading::Known("5.15.153.1-microsoft-standard-WSL2".into());
    assert_eq!(only(&report).transport, Some(Transport::Shm));
    assert_eq!(all_reduce(&report, Engine::Vllm, 2).runs, Some(Runs::None));
}

#[test]
fn an_engine_reduces_by_itself_where_its_own_test_would_pass() {
    let mut report = h200x2(&[]);
    for engine in Engine::ALL {
        let found = all_reduce(&report, engine, 2);
        assert_eq!(found.runs, Some(Runs::Every), "{found:?}");
    }
    assert_eq!(all_reduce(&report, Engine::Vllm, 2).up_to_bytes, Some(Bytes(8 * MIB)));
    let cells = &mut report.measurements.as_mut().unwrap().peer;
    for cell in cells.iter_mut() {
        if cell.verified == Verified::Ok && cell.pair.source == 0 {
            cell.verified = Verified::Dropped;
        }
    }
    let found = all_reduce(&report, Engine::Vllm, 2);
    assert_eq!(found.runs, Some(Runs::None), "{found:?}");
    assert_eq!(found.up_to_bytes, None);
    let found = all_reduce(&report, Engine::TensorrtLlm, 2);
    assert_eq!(found.runs, Some(Runs::Every), "it tries no copy: {found:?}");
    let cells = &mut report.measurements.as_mut().unwrap().peer;
    for cell in cells.iter_mut() {
        cell.verified = Verified::Skipped;
        cell.ending.status = Status::Skipped;
    }
    let found = all_reduce(&report, Engine::Sglang, 2);
    assert_eq!(found.runs, None, "{found:?}");
    assert!(!found.needs.is_empty());
}

#[test]
fn more_than_two_gpus_need_nvlink_between_all() {
    let report = check(&two_nodes("[]", None));
    let two = all_reduce(&report, Engine::Vllm, 2);
    assert_eq!(two.runs, Some(Runs::Every), "{two:?}");
    let four = all_reduce(&report, Engine::Vllm, 4);
    assert_eq!(four.runs, Some(Runs::None), "{four:?}");
    assert!(four.because.contains("no NVLink between GPU 0 and GPU 1"), "{four:?}");
    let two = all_reduce(&report, Engine::TensorrtLlm, 2);
    assert_eq!(two.runs, Some(Runs::None), "it needs NVLink for two: {two:?}");

    let bridged = two_nodes("[]", None).replacen(
        "name = \"Test GPU\"\npci = \"0000:10:00.0\"",
        "name = \"Test GPU\"\npci = \"0000:10:00.0\"\nnvlinks = [{ count = 4, version = \"3.0\", remote = { gpu = 1 } }]",
        1,
    ).replacen(
        "name = \"Test GPU\"\npci = \"0000:11:00.0\"",
        "name = \"Test GPU\"\npci = \"0000:11:00.0\"\nnvlinks = [{ count = 4, version = \"3.0\", remote = { gpu = 0 } }]",
        1,
    );
    let report = check(&bridged);
    let two = all_reduce(&report, Engine::TensorrtLlm, 2);
    assert_eq!((two.runs, two.example.as_slice()), (Some(Runs::Some), [0, 1].as_slice()));
    assert_eq!(two.up_to_bytes, Some(Bytes(16_000_000)));
    let four = all_reduce(&report, Engine::Vllm, 4);
    assert_eq!(four.runs, Some(Runs::None), "{four:?}");
}

#[test]
fn pairs_that_are_alike_are_one_group() {
    let report = check(&two_nodes("[]", None));
    let groups = groups(&report, "2.30");
    let pairs: usize = groups.iter().map(|group| group.pairs.len()).sum();
    assert_eq!(pairs, 6, "{groups:#?}");
    assert!(groups.len() <= 2, "{groups:#?}");
    let alone = check(
        "summary = \"one\"\n[[gpus]]\nname = \"Test GPU\"\npci = \"0000:10:00.0\"\n[[pci]]\naddress = \"0000:10:00.0\"\n",
    );
    assert_eq!(forecast(&alone, Version::default()), None);
}
