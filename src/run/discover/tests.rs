use std::sync::Mutex;

use super::collected::{on_the_bus, problem_of, unlisted};
use super::*;
use hardware::{LinkSample, Moved};
use model::reading::Reading;
use model::snapshot::{
    BoundDriver, DeviceFile, DisplayFunction, NvLink, NvLinkPacketErrors, NvLinkRemote, P2pStatus,
    PciFunction, PciKind,
};
use model::testing::{lanes, nvlinks};

/// The call at which a fake machine blocks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stuck {
    Nowhere,
    Host,
    Tree,
    Count,
    Gpu(u32, GpuGroup),
    Pair(u32, u32),
    Access(u32, u32),
    Atomics,
}

struct Fake {
    gpus: Result<u32, HardwareError>,
    stuck: Stuck,
    /// Held while the machine is stuck.
    gate: Arc<Mutex<()>>,
}

/// Returns a link with these error counters.
fn link(errors: &Reading<u64>) -> NvLink {
    let (crc_errors, replay_errors, recovery_errors) =
        (errors.clone(), errors.clone(), errors.clone());
    let link = nvlinks(1, "4.0", 26562, NvLinkRemote::Switch, None).remove(0);
    NvLink {
        crc_errors,
        replay_errors,
        recovery_errors,
        packet_errors: errors.clone().map(|_| NvLinkPacketErrors::default()),
        fec_histogram: errors.clone().map(|_| Vec::new()),
        ..link
    }
}

impl Fake {
    fn pass(&self, here: Stuck) {
        if self.stuck == here {
            drop(self.gate.lock());
        }
    }
}

impl Telemetry for Fake {
    fn sampler(self: Arc<Self>, gpus: &[u32], interval: Duration) -> Box<dyn hardware::Sampler> {
        let telemetry: Arc<dyn Telemetry> = self;
        Box::new(hardware::sampler::Threads::start(&telemetry, gpus, interval))
    }

    fn host(&self) -> Host {
        self.pass(Stuck::Host);
        Host::unread(&Unknown::Unsupported)
    }

    fn nvidia_functions(&self) -> NvidiaFunctions {
        NvidiaFunctions::default()
    }

    fn pci_tree(&self) -> PciTree {
        self.pass(Stuck::Tree);
        PciTree { problems: vec!["slot 3 is odd".into()], ..PciTree::default() }
    }

    fn gpu_count(&self) -> Result<u32, HardwareError> {
        self.pass(Stuck::Count);
        self.gpus.clone()
    }

    fn read_gpu(&self, group: GpuGroup, gpu: &mut Gpu) {
        self.pass(Stuck::Gpu(gpu.index, group));
        match group {
            GpuGroup::Identity => gpu.uuid = Reading::Known(format!("GPU-{}", gpu.index)),
            GpuGroup::Pcie => gpu.pcie_width = lanes(16),
            GpuGroup::NvLink => {
                gpu.nvlinks =
                    Reading::Known(vec![link(&Reading::Unknown(SlowFact::NvLinkErrors.not_read()))])
            }
            GpuGroup::State => gpu.mig = Reading::Known(false),
            GpuGroup::LinkErrors => {
                gpu.nvlinks = Reading::Known(vec![link(&Reading::Known(u64::from(gpu.index)))])
            }
        }
    }

    fn read_pair(&self, source: u32, destination: u32) -> GpuPair {
        self.pass(Stuck::Pair(source, destination));
        let mut pair = GpuPair::unread(source, destination, &Unknown::Unsupported);
        pair.p2p_read = Reading::Unknown(SlowFact::PeerAccess.not_read());
        pair
    }

    fn read_access(&self, pair: &mut GpuPair) {
        self.pass(Stuck::Access(pair.source, pair.destination));
        pair.p2p_read = Reading::Known(P2pStatus::Ok);
    }

    fn read_atomics(&self, _pair: &mut GpuPair) {
        self.pass(Stuck::Atomics);
    }

    fn sample(&self, _index: u32) -> LinkSample {
        LinkSample::default()
    }

    fn counts(&self, _index: u32, _links: &[u8]) -> hardware::Counts {
        hardware::Counts::default()
    }

    fn moved(&self, _index: u32) -> Moved {
        Moved::default()
    }
}

/// The limit for what does not answer. What answers has it too, on a busy machine.
const LIMIT: Duration = Duration::from_secs(3);
const LATE: &str = "no answer within 3 s";
/// A limit that no test waits for: one that did would not end.
const FOREVER: Duration = Duration::from_secs(3600);

/// Returns the snapshot of a machine with this many GPUs that gets stuck at this call.
fn snapshot(gpus: u32, stuck: Stuck) -> Snapshot {
    let gate = Arc::new(Mutex::new(()));
    let _stuck = gate.lock().unwrap();
    discover(
        Arc::new(Fake { gpus: Ok(gpus), stuck, gate: Arc::clone(&gate) }),
        SlowFact::ALL,
        LIMIT,
    )
}

fn late<T>() -> Reading<T> {
    Reading::failed(LATE)
}

#[test]
fn a_healthy_machine_is_read_in_order_and_without_waiting() {
    let snapshot = discover(
        Arc::new(Fake { gpus: Ok(8), stuck: Stuck::Nowhere, gate: Arc::default() }),
        SlowFact::ALL,
        FOREVER,
    );
    assert!(snapshot.gpus.iter().map(|gpu| gpu.index).eq(0..8));
    assert!(snapshot.gpus.iter().all(|gpu| gpu.mig == Reading::Known(false)));
    let order: Vec<_> = snapshot.pairs.iter().map(|pair| (pair.source, pair.destination)).collect();
    assert!(order.is_sorted() && order.len() == 56);
    assert!(snapshot.pairs.iter().all(|pair| pair.p2p_read == Reading::Known(P2pStatus::Ok)));
    assert_eq!(snapshot.problems, ["slot 3 is odd"]);
}

#[test]
fn slow_facts_that_nobody_needs_are_not_asked_about() {
    // The fake would get stuck if it were asked.
    for stuck in [Stuck::Gpu(0, GpuGroup::LinkErrors), Stuck::Access(0, 1), Stuck::Atomics] {
        let fake = Fake { gpus: Ok(3), stuck, gate: Arc::default() };
        let gate = fake.gate.clone();
        let _stuck = gate.lock().unwrap();
        let snapshot = discover(Arc::new(fake), &[], Duration::from_secs(60));
        assert_eq!(snapshot.problems, ["slot 3 is odd"]);
        assert!(snapshot.gpus.iter().all(|gpu| gpu.mig == Reading::Known(false)));
        assert_eq!(snapshot.pairs.len(), 6);
        let not_read = Reading::Unknown(SlowFact::PeerAccess.not_read());
        assert!(snapshot.pairs.iter().all(|pair| pair.p2p_read == not_read));
    }
}

#[test]
fn a_gpu_that_blocks_keeps_what_it_said_before() {
    let snapshot = snapshot(3, Stuck::Gpu(1, GpuGroup::NvLink));
    let gpu = snapshot.gpu(1).unwrap();
    assert_eq!((&gpu.uuid, &gpu.pcie_width), (&Reading::Known("GPU-1".into()), &lanes(16)));
    assert_eq!((&gpu.nvlinks, &gpu.mig), (&late(), &late()));
    assert!(snapshot.gpu(2).unwrap().mig == Reading::Known(false));
    assert_eq!(snapshot.pairs.len(), 6);
    assert_eq!(
        snapshot.problems,
        [
            "slot 3 is odd",
            "GPU 1, NVLinks and fabric: no answer within 3 s (nor was the rest read)"
        ]
    );
}

#[test]
fn a_gpu_that_blocks_at_once_is_listed() {
    let snapshot = snapshot(2, Stuck::Gpu(0, GpuGroup::Identity));
    assert_eq!(snapshot.gpu(0).unwrap().uuid, late());
    assert!(
        snapshot.problems[1].starts_with("GPU 0, identity: no answer"),
        "{:?}",
        snapshot.problems
    );
}

#[test]
fn a_pair_that_blocks_costs_the_rest_of_its_row_alone() {
    let snapshot = snapshot(3, Stuck::Pair(1, 0));
    let late: Vec<_> = snapshot
        .pairs
        .iter()
        .filter(|pair| pair.p2p_read == late())
        .map(|pair| pair.source)
        .collect();
    assert_eq!(late, [1, 1]);
    assert_eq!(snapshot.problems[1], "peer access of GPU 1 to GPU 0, 2: no answer within 3 s");
}

#[test]
fn what_belongs_to_the_whole_machine_may_block_too() {
    for (stuck, problem) in [
        (Stuck::Host, "the host's facts: no answer within 3 s"),
        (Stuck::Tree, "the PCI tree: no answer within 3 s"),
        (Stuck::Count, "the number of GPUs: no answer within 3 s"),
    ] {
        let snapshot = snapshot(2, stuck);
        assert!(snapshot.problems.iter().any(|said| said == problem), "{:?}", snapshot.problems);
        assert_eq!(snapshot.gpus.len(), if stuck == Stuck::Count { 0 } else { 2 });
    }
}

#[test]
fn gpus_that_cannot_be_counted_are_a_problem() {
    let gpus =
        Err(HardwareError::new(ErrorKind::Other, "NVML does not count its GPUs: failed: timeout"));
    let fake = Fake { gpus, stuck: Stuck::Nowhere, gate: Arc::default() };
    let snapshot = discover(Arc::new(fake), SlowFact::ALL, LIMIT);
    assert!(snapshot.gpus.is_empty() && snapshot.pairs.is_empty());
    assert_eq!(snapshot.problems[0], "NVML does not count its GPUs: failed: timeout");
}

#[test]
fn a_gpu_that_fell_off_the_bus_is_named() {
    let lost = Unknown::Failed("NVML: the GPU fell off the bus or is otherwise lost (15)".into());
    let gpu = Gpu::unread(3, &lost);
    assert_eq!(problem_of(&gpu, &[], LATE).unwrap(), format!("GPU 3 cannot be read: {lost}"));
}

#[test]
fn without_telemetry_the_reason_stands_everywhere() {
    let why = HardwareError::new(ErrorKind::NoDriver, "no NVIDIA driver");
    let snapshot = without_telemetry(&why);
    assert_eq!(snapshot.problems, ["no NVIDIA driver"]);
    assert_eq!(snapshot.host.driver_version, Reading::failed("no NVIDIA driver"));
    assert!(snapshot.gpus.is_empty());
}

#[test]
fn gpus_that_only_the_bus_shows_are_named() {
    let function = |address: &str, vendor, class| {
        let address = address.parse().unwrap();
        let mut function = PciFunction::unread(
            address,
            None,
            "pci0000:00".into(),
            PciKind::Endpoint,
            &Unknown::Unsupported,
        );
        function.vendor = Reading::Known(vendor);
        function.class = Reading::Known(class);
        function
    };
    let network = function("0000:05:00.0", 0x15b3, 0x02_0000);
    assert_eq!(on_the_bus(std::slice::from_ref(&network)), None);
    let gpus = [
        network,
        function("0000:03:00.0", 0x10de, 0x03_0200),
        function("0000:04:00.0", 0x10de, 0x03_0000),
    ];
    assert_eq!(
        on_the_bus(&gpus).unwrap(),
        "2 NVIDIA GPUs are on the PCI bus (0000:03:00.0, 0000:04:00.0), and no driver shows them"
    );
}

/// Returns a display function that the NVIDIA driver has and that may be used.
fn display(address: &str) -> DisplayFunction {
    DisplayFunction {
        driver: Reading::Known(BoundDriver::Nvidia),
        device_file: Reading::Known(DeviceFile::Usable),
        ..DisplayFunction::unread(address.parse().unwrap(), None, &Unknown::Unsupported)
    }
}

/// Returns the unlisted functions, with the GPUs that they must be, if NVML lists GPUs at these addresses.
fn left(bus: &[DisplayFunction], listed: &[Option<&str>]) -> Vec<(String, Option<u32>)> {
    let gpu = |(address, index): (&Option<&str>, u32)| Gpu {
        pci: address
            .map_or(Reading::failed("lost"), |address| Reading::Known(address.parse().unwrap())),
        ..Gpu::unread(index, &Unknown::Unsupported)
    };
    let gpus: Vec<_> = listed.iter().zip(0..).map(gpu).collect();
    unlisted(bus.to_vec(), &gpus).iter().map(|one| (one.address.to_string(), one.gpu)).collect()
}

#[test]
fn a_lost_gpu_is_the_function_that_is_left() {
    const BUS: [&str; 4] = ["0000:01:00.0", "0000:02:00.0", "0000:03:00.0", "0000:04:00.0"];
    let [one, two, three, four] = BUS.map(Some);
    let bus = BUS.map(display);
    let is = |address: &str, gpu| (address.to_owned(), gpu);
    assert_eq!(left(&bus, &[one, two, three, four]), []);
    assert_eq!(left(&bus, &[one, None, three, four]), [is(BUS[1], Some(1))]);
    assert_eq!(
        left(&bus, &[one, None, three, None]),
        [is(BUS[1], Some(1)), is(BUS[3], Some(3))],
        "in NVML's order"
    );
    assert_eq!(
        left(&bus, &[four, None, None, one]),
        [is(BUS[1], None), is(BUS[2], None)],
        "in no order"
    );
    assert_eq!(left(&bus, &[four, None, one, two]), [is(BUS[2], Some(1))], "one alone needs none");
    assert_eq!(left(&bus, &[one, two, three]), [is(BUS[3], None)], "not listed");
    assert_eq!(
        left(&bus, &[one, None, three]),
        [is(BUS[1], None), is(BUS[3], None)],
        "one of the two"
    );
    // A function that NVML cannot count is not a GPU that it has lost.
    let mut nouveau = bus.clone();
    nouveau[3].driver = Reading::Known(BoundDriver::Nouveau);
    assert_eq!(left(&nouveau, &[one, None, three]), [is(BUS[1], Some(1)), is(BUS[3], None)]);
}

#[test]
fn what_is_left_for_later_is_what_it_would_have_been_before() {
    let machine = |stuck| -> (Arc<dyn Telemetry>, Arc<Mutex<()>>) {
        let gate = Arc::new(Mutex::new(()));
        (Arc::new(Fake { gpus: Ok(3), stuck, gate: Arc::clone(&gate) }), gate)
    };
    let (telemetry, _) = machine(Stuck::Nowhere);
    let at_once = discover(Arc::clone(&telemetry), SlowFact::ALL, LIMIT);
    let first = discover(Arc::clone(&telemetry), SlowFact::BESIDE_THE_START, LIMIT);
    assert!(first.pairs.iter().all(|pair| pair.p2p_read.unknown().is_some()));
    assert!(first.gpus.iter().all(Gpu::has_link_errors_left_out));
    let facts = Late::begin(&telemetry, &first, FOREVER).end(&first);
    assert_eq!(facts.problems, Vec::<String>::new());
    let mut whole = first.clone();
    facts.put_into(&mut whole);
    assert_eq!(whole, at_once);

    // Links that must be read before anything is copied are present then, and again at the end.
    let (mut whole, mut counters) =
        (first.clone(), Late::begin(&telemetry, &first, Duration::from_secs(60)));
    counters.wait_for_links(&mut whole);
    assert_eq!(whole.gpus, at_once.gpus);
    counters.end(&whole).put_into(&mut whole);
    assert_eq!(whole, at_once);

    // Only the chosen pairs are read, and a pair that does not answer costs the rest of its row.
    let (telemetry, gate) = machine(Stuck::Access(1, 2));
    let _stuck = gate.lock().unwrap();
    let pairs = first.pairs.iter().filter(|pair| pair.source != 2).cloned().collect();
    let chosen = Snapshot { pairs, ..first.clone() };
    let late_facts = Late::begin(&telemetry, &chosen, LIMIT).end(&chosen);
    assert_eq!(late_facts.problems, [format!("peer access of GPU 1 to GPU 2: {LATE}")]);
    let read: Vec<_> = late_facts.pairs.iter().map(|pair| pair.p2p_read.clone()).collect();
    assert_eq!(
        read,
        [
            Reading::Known(P2pStatus::Ok),
            Reading::Known(P2pStatus::Ok),
            Reading::Known(P2pStatus::Ok),
            late()
        ]
    );

    // A GPU whose counters do not arrive does not delay the others, before or after the copies.
    let (telemetry, gate) = machine(Stuck::Gpu(1, GpuGroup::LinkErrors));
    let _stuck = gate.lock().unwrap();
    let (mut waited, mut counters) = (first.clone(), Late::begin(&telemetry, &first, LIMIT));
    counters.wait_for_links(&mut waited);
    assert_eq!((&waited.gpus[0], &waited.gpus[2]), (&at_once.gpus[0], &at_once.gpus[2]));
    let late_facts = counters.end(&waited);
    assert_eq!(late_facts.problems, [format!("GPU 1, error counters of NVLinks: {LATE}")]);
    late_facts.put_into(&mut waited);
    assert_eq!(waited.gpus[1].nvlinks, Reading::Known(vec![link(&late())]));
}

#[test]
fn gpus_have_their_names_before_anything_else_is_read() {
    // The fake would get stuck if it were asked for more.
    let fake = |stuck| -> Arc<dyn Telemetry> {
        Arc::new(Fake { gpus: Ok(3), stuck, gate: Arc::default() })
    };
    let gate = Arc::new(Mutex::new(()));
    let stuck: Arc<dyn Telemetry> = Arc::new(Fake {
        gpus: Ok(3),
        stuck: Stuck::Gpu(1, GpuGroup::Pcie),
        gate: Arc::clone(&gate),
    });
    let _held = gate.lock().unwrap();
    let uuids: Vec<_> =
        identified(&stuck, LIMIT).gpus.iter().map(|gpu| gpu.uuid.known().cloned()).collect();
    assert_eq!(
        uuids,
        [Some("GPU-0".to_owned()), Some("GPU-1".to_owned()), Some("GPU-2".to_owned())]
    );
    assert_eq!(identified(&fake(Stuck::Nowhere), LIMIT).gpus.len(), 3);
}
