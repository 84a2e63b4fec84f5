//! Defaults of a description: the values of the built-in machine `single`, with L40S on PCIe Gen4, and of `h200x8` for
//! copies over NVLink.

use serde::{Deserialize, Deserializer};

use super::{HostSpec, PathSpeed};
use model::snapshot::{ConfidentialComputing, P2pStatus, PciKind};
use model::units::{Bytes, GIB, MIB};

/// Copies over NVLink, as measured on H200 (docs/dev/facts.md, "Direct copies over NVLink", "Events between copies" and
/// "Flows at the same time"). In rows without events between the copies a write took 2.26 us beside its bytes at 397.41
/// GB/s, and the first of a row 9.5 us more. That is 396.4 GB/s for eight of 512 MiB, 395.8 for three, and 4.9 us for
/// one of 1 MiB. A read took 9.8 us more: 393.7, 393.3, 14.7 us. Small copies in a row took 2.8 us. With an event
/// between, a write took 2.9 us longer, a read of 1 MiB 6 us, and a read of 512 MiB 3. A kernel reached 365 and 370.
/// With both directions busy, 392 were left of 396.
pub(super) const NVLINK: PathSpeed = PathSpeed {
    copy: 397.41 / 450.0,
    push: 366.0 / 450.0,
    pull: 371.0 / 450.0,
    both_ways: 0.9885,
    each_us: 2.26,
    least_us: 2.75,
    first_us: 9.5,
    from_destination_us: 9.8,
    event_us: 2.9,
    event_from_destination_us: 3.1,
};

/// Peer copies over PCIe: 84% was reported for Gen4 from slots of the processor. The same engine as over NVLink records
/// events.
pub(super) const PCIE: PathSpeed = PathSpeed {
    copy: 0.83,
    push: 0.80,
    pull: 0.70,
    both_ways: 0.95,
    each_us: 3.5,
    least_us: 0.0,
    first_us: 9.0,
    from_destination_us: 5.5,
    event_us: 2.9,
    event_from_destination_us: 3.1,
};

/// Peer copies across sockets: 62 to 81% was reported.
pub(super) const CROSS_SOCKET: PathSpeed =
    PathSpeed { copy: 0.72, push: 0.68, pull: 0.55, each_us: 4.5, ..PCIE };

/// Copies through host memory: chosen, 40% of the GPU's link. The cost of events there is not known.
pub(super) const STAGED: PathSpeed = PathSpeed {
    copy: 0.40,
    push: 0.0,
    pull: 0.0,
    both_ways: 0.7,
    each_us: 18.0,
    least_us: 0.0,
    first_us: 10.0,
    from_destination_us: 0.0,
    event_us: 0.0,
    event_from_destination_us: 0.0,
};

impl Default for HostSpec {
    fn default() -> Self {
        Self {
            driver_version: "580.95.05".into(),
            cuda_version: "13.0".into(),
            kernel_version: "6.8.0".into(),
            cpu: "AMD EPYC 7543 32-Core Processor".into(),
            virtual_machine: false,
            container: false,
            iommu_translating: false,
            iommu_parameters: Vec::new(),
            control_group: "/".into(),
            confidential_computing: ConfidentialComputing::Off,
            peer_memory_module: false,
            mps_daemon: false,
            busy_tasks: 0,
            last_level_cache: None,
            up_seconds: None,
            boot_id: None,
            nccl_variables: Vec::new(),
            shm: None,
            kernel_log: Vec::new(),
            kernel_log_denied: false,
            memory_available: all(),
            group_leaves: all(),
            lock_limit: all(),
            sharing: hardware::SharingFacts::default(),
        }
    }
}

/// A path's speed in which every key is optional.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct PathSpeedKeys {
    copy: Option<f64>,
    push: Option<f64>,
    pull: Option<f64>,
    both_ways: Option<f64>,
    each_us: Option<f64>,
    least_us: Option<f64>,
    first_us: Option<f64>,
    from_destination_us: Option<f64>,
    event_us: Option<f64>,
    event_from_destination_us: Option<f64>,
}

fn over<'de, D: Deserializer<'de>>(
    base: PathSpeed,
    deserializer: D,
) -> Result<PathSpeed, D::Error> {
    let keys = PathSpeedKeys::deserialize(deserializer)?;
    Ok(PathSpeed {
        copy: keys.copy.unwrap_or(base.copy),
        push: keys.push.unwrap_or(base.push),
        pull: keys.pull.unwrap_or(base.pull),
        both_ways: keys.both_ways.unwrap_or(base.both_ways),
        each_us: keys.each_us.unwrap_or(base.each_us),
        least_us: keys.least_us.unwrap_or(base.least_us),
        first_us: keys.first_us.unwrap_or(base.first_us),
        from_destination_us: keys.from_destination_us.unwrap_or(base.from_destination_us),
        event_us: keys.event_us.unwrap_or(base.event_us),
        event_from_destination_us: keys
            .event_from_destination_us
            .unwrap_or(base.event_from_destination_us),
    })
}

/// Defines functions that read a path's speed over these defaults.
macro_rules! paths {
    ($($name:ident: $base:ident;)*) => {
        $(
            pub(super) fn $name<'de, D: Deserializer<'de>>(deserializer: D) -> Result<PathSpeed, D::Error> {
                over($base, deserializer)
            }
        )*
    };
}

paths! {
    nvlink: NVLINK;
    pcie: PCIE;
    cross_socket: CROSS_SOCKET;
    staged: STAGED;
}

pub(super) fn architecture() -> String {
    "Ada".into()
}

pub(super) const fn memory() -> Bytes {
    Bytes(46_068 * MIB)
}

/// Returns more memory than any GPU has; it is reduced to the GPU's own size.
pub(super) const fn all() -> Bytes {
    Bytes(u64::MAX)
}

#[allow(clippy::trivially_copy_pass_by_ref, reason = "serde's form")]
pub(super) const fn is_all(bytes: &Bytes) -> bool {
    bytes.0 == u64::MAX
}

pub(super) const fn bar1() -> Bytes {
    Bytes(64 * GIB)
}

pub(super) const fn host_memory() -> Bytes {
    Bytes(64 * GIB)
}

/// Returns a marker for an omitted rate, which stands for that of the model.
pub(super) const fn local_gbps() -> f64 {
    f64::MIN_POSITIVE
}

/// Rate of copies within a GPU of a model that is not in [`LOCAL_GBPS`]: chosen.
const LOCAL_GBPS_ELSE: f64 = 700.0;

/// Bytes copied per second within a GPU, GB/s, by words of its name. Measured or published: H200 2094 (nvbandwidth,
/// measured); GB200 3274, GB300 3312, GH200 1800, H20 1116 (nvbandwidth). Half of the figure of
/// p2pBandwidthLatencyTest, which counts reading and writing: H100 SXM 2500 (nccl issue 1264), NVL 2959 (cuda-samples
/// issue 392), A100 80GB 1600 (nccl-tests issue 100), V100 750 (ginkgo issue 164), RTX 3090 838 (nccl issue 1127), RTX
/// 4090 920 (nccl issue 814), RTX PRO 6000 1415, P100 444, 1080 Ti 354 (nccl issue 257). The others are 42% of the
/// memory's rate in its data sheet, which most of these reach.
const LOCAL_GBPS: &[(&[&str], f64)] = &[
    (&["GB200"], 3274.0),
    (&["GB300"], 3312.0),
    (&["GH200"], 1800.0),
    (&["H200"], 2094.0),
    (&["H20"], 1116.0),
    (&["H100", "NVL"], 1480.0),
    (&["H100", "PCIe"], 850.0),
    (&["H100"], 1250.0),
    (&["A100", "40GB"], 650.0),
    (&["A100"], 800.0),
    (&["V100"], 375.0),
    (&["P100"], 222.0),
    (&["1080"], 177.0),
    (&["3090"], 419.0),
    (&["4090"], 460.0),
    (&["5090"], 745.0),
    (&["PRO", "6000"], 707.0),
    (&["L40S"], 363.0),
    (&["A40"], 292.0),
    (&["A10"], 252.0),
    (&["A6000"], 322.0),
    (&["A5000"], 322.0),
    (&["T4"], 134.0),
];

/// Returns the rate of copies within a GPU of this name, GB/s.
pub(super) fn local_gbps_of(name: &str) -> f64 {
    let has = |word: &&str| name.split([' ', '-']).any(|part| part == *word);
    let of_model = LOCAL_GBPS.iter().find(|(words, _)| words.iter().all(has));
    of_model.map_or(LOCAL_GBPS_ELSE, |(_, gbps)| *gbps)
}

pub(super) const fn copy_engines() -> u32 {
    2
}

pub(super) const fn host_engines() -> u32 {
    1
}

#[allow(clippy::trivially_copy_pass_by_ref, reason = "serde's form")]
pub(super) const fn is_host_engines(engines: &u32) -> bool {
    *engines == host_engines()
}

pub(super) const fn clocks_mhz() -> (u32, u32) {
    (2520, 9001)
}

pub(super) const fn yes() -> bool {
    true
}

pub(super) const fn ok() -> P2pStatus {
    P2pStatus::Ok
}

pub(super) const fn endpoint() -> PciKind {
    PciKind::Endpoint
}
