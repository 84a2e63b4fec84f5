//! What the input would need to show that the machine is healthy, and the commands that print it.

use model::host::{HostDirection, HostWay};
use model::measurement::{Measurements, PeerBandwidth, Verified};
use model::pasted::Missing;
use model::placement::{Pair, Path};
use model::snapshot::{Gpu, Snapshot};

/// Returns what is missing, the most telling first.
pub(super) fn missing(
    snapshot: &Snapshot,
    measurements: Option<&Measurements>,
    has_log: bool,
) -> Vec<Missing> {
    let none = Measurements::default();
    let measured = measurements.unwrap_or(&none);
    let gpus: Vec<u32> = snapshot.gpus.iter().map(|gpu| gpu.index).collect();
    let pairs = Pair::ordered(&gpus);
    let mut found = Vec::new();
    let mut lacks = |what: String, command: &str| {
        found.push(Missing { what, command: command.to_owned() });
    };
    if gpus.is_empty() {
        lacks("a list of the GPUs".into(), "nvidia-smi -q");
    }
    rates(measured, &pairs, &mut lacks);
    let unknown = |known: &dyn Fn(&Gpu) -> bool| {
        let unknown = snapshot.gpus.iter().filter(|gpu| !known(gpu));
        unknown.map(|gpu| gpu.index).collect::<Vec<u32>>()
    };
    let link_is_known = |gpu: &Gpu| {
        let function = gpu.pci.get().and_then(|address| snapshot.function(address));
        let of_end = |function: &model::snapshot::PciFunction| {
            function.width.known().is_some() && function.width_max.known().is_some()
        };
        (gpu.pcie_width.known().is_some() && gpu.pcie_width_max.known().is_some())
            || function.is_some_and(of_end)
    };
    let links = unknown(&link_is_known);
    if !links.is_empty() {
        lacks(format!("the PCIe links of {}", some(&links, gpus.len())), "nvidia-smi -q");
    }
    let is_joined = |pair: &Pair| {
        let said = snapshot.pair(*pair).is_some_and(|said| said.common_ancestor.known().is_some());
        said || snapshot.bonds.iter().any(|bond| bond.source == pair.source)
            || snapshot.gpu(pair.source).is_some_and(|gpu| gpu.nvlinks.known().is_some())
            || !snapshot.pci.is_empty()
    };
    if !pairs.iter().all(is_joined) {
        lacks("how the GPUs are connected".into(), "nvidia-smi topo -m");
    }
    let is_asked = |pair: &Pair| {
        let said = snapshot.pair(*pair).is_some_and(|said| said.p2p_read.known().is_some());
        let of_pair = |cell: &PeerBandwidth| cell.pair == *pair && cell.setup.path == Path::Direct;
        said || measured.driver.said_of(*pair).is_some() || measured.peer.iter().any(of_pair)
    };
    if !pairs.iter().all(is_asked) {
        lacks("whether all GPUs may access each other's memory".into(), "nvidia-smi topo -p2p r");
    }
    let has_nvlinks = !snapshot.bonds.is_empty()
        || snapshot.gpus.iter().any(|gpu| gpu.active_nvlinks().is_some_and(|links| links > 0));
    let states = |gpu: &Gpu| {
        let links = gpu.nvlinks.known();
        links.is_some_and(|links| links.iter().any(|link| link.speed_mbps.known().is_some()))
    };
    if has_nvlinks && !unknown(&states).is_empty() {
        lacks("the state of the NVLinks".into(), "nvidia-smi nvlink -s");
    }
    host_rates(measured, &gpus, &mut lacks);
    if !has_log {
        lacks("the kernel's log".into(), "dmesg");
    }
    found
}

/// Names rates between GPUs that are missing.
fn rates(measured: &Measurements, pairs: &[Pair], lacks: &mut impl FnMut(String, &str)) {
    const COMMAND: &str = "nvbandwidth -t device_to_device_memcpy_write_ce";
    if pairs.is_empty() {
        return;
    }
    let direct = measured.reference(Path::Direct);
    let staged = measured.reference(Path::Staged);
    let has_rate = |pair: &&Pair| {
        let refused =
            measured.driver.said_of(**pair).is_some_and(|said| said.possible == Some(false));
        direct.contains_key(pair) || (refused && staged.contains_key(pair))
    };
    let rates = pairs.iter().filter(has_rate).count();
    if rates == 0 {
        let any = measured.peer.iter().any(|cell| cell.achieved_gbps.is_some());
        let which = if any { " that can be compared (of writes, one way)" } else { "" };
        lacks(format!("the rate of any pair{which}"), COMMAND);
    } else if rates < pairs.len() {
        lacks(format!("the rates of {} of {} pairs", pairs.len() - rates, pairs.len()), COMMAND);
    } else if !measured.peer.iter().any(|cell| cell.verified == Verified::Ok) {
        lacks("whether the bytes arrive".into(), COMMAND);
    }
}

/// Names rates between host and GPUs that are missing.
fn host_rates(measured: &Measurements, gpus: &[u32], lacks: &mut impl FnMut(String, &str)) {
    let has = |gpu, direction| {
        let copies = measured.host_alone(HostWay::PINNED.with_direction(direction));
        copies.iter().any(|copy| copy.gpu == gpu && copy.rate().is_some())
    };
    let both = [HostDirection::ToDevice, HostDirection::ToHost];
    let is_without = |gpu: &u32| !both.into_iter().all(|direction| has(*gpu, direction));
    let without: Vec<u32> = gpus.iter().copied().filter(is_without).collect();
    if !without.is_empty() {
        lacks(
            format!("the rates between host and {}", some(&without, gpus.len())),
            "nvbandwidth -t host_to_device_memcpy_ce device_to_host_memcpy_ce",
        );
    }
}

/// Names some GPUs of all.
fn some(gpus: &[u32], all: usize) -> String {
    match gpus {
        [only] => format!("GPU {only}"),
        _ if gpus.len() == all => "the GPUs".to_owned(),
        _ => format!("{} GPUs", gpus.len()),
    }
}
