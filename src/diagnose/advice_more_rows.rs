//! Rows of the table of advice for rules that are not the fault of any labelled case: settings, actions of programs,
//! measurements under load, and facts beside a report.

use super::advice_steps::Step;
use super::advice_tests::{Judged, Row, but, guest};
use super::testing::prelude::*;
use super::testing::{cell, latency, with_host, with_memory};
use super::{Evidence, Settings, judge};
use crate::expectations::Expectations;
use model::flow::{Flow, HostMemory};
use model::host::{Allocation, HostCopy};
use model::load::{LoadPattern, Pattern};
use model::measurement::{DriverFacts, Measurements, Overlap, Status, Verified};
use model::placement::{HostMode, Pair, Path, Placement, Side, StreamKind};
use model::report::Report;
use model::snapshot::{ComputeMode, GpuProcess, Snapshot};
use model::testing::{host_copy, overlap as overlap_of};
use model::units::{Bytes, GbPerSecond, MIB};

/// Returns all rows whose facts are those of a machine.
pub(super) fn all() -> Vec<Row> {
    [
        setting_rows(),
        program_rows(),
        figure_rows(),
        load_rows(),
        gap_rows(),
    ]
    .into_iter()
    .flatten()
    .collect()
}

fn healthy(machine: Snapshot) -> (Snapshot, Measurements) {
    let measurements = measured(&machine, 0.88);
    (machine, measurements)
}

fn bare(machine: &mut Snapshot) {
    machine.host.virtual_machine = Reading::Known(false);
}

fn setting_rows() -> Vec<Row> {
    use Step::{
        Container, DefaultComputeMode, EndPrograms, MigOff, Nothing, Persistence, Reboot,
        ReloadDriver,
    };
    let row = |facts, rule, machine, must, may| Row {
        facts,
        rule,
        machine,
        must,
        may,
    };
    let mode = |mode| {
        but(healthy(h200_vm(3)), move |machine| {
            machine.gpus[2].compute_mode = Reading::Known(mode)
        })
    };
    let mig = |gpus: &'static [usize]| {
        but(healthy(h200_vm(3)), move |machine| {
            machine
                .gpus
                .iter_mut()
                .for_each(|gpu| gpu.mig = Reading::Known(false));
            gpus.iter()
                .for_each(|gpu| machine.gpus[*gpu].mig = Reading::Known(true));
        })
    };
    let mixed = |machine: &mut Snapshot| {
        machine
            .gpus
            .iter_mut()
            .for_each(|gpu| gpu.vbios = Reading::Known("96.00.D9.00.02".into()));
        machine.gpus[1].vbios = Reading::Known("96.00.A5.00.01".into());
    };
    let versions = |machine: &mut Snapshot| {
        machine.host.driver_version = Reading::Known("580.159.04".into());
        machine.host.nvml_version = Reading::Known("13.580.159.04".into());
        machine.host.kernel_module_version = Reading::Known("580.95.05".into());
    };
    let off = |seconds| {
        let (machine, mut measurements) = but(healthy(h200_vm(4)), |machine| {
            machine
                .gpus
                .iter_mut()
                .for_each(|gpu| gpu.persistence = Reading::Known(false));
        });
        measurements.driver.start_seconds = Some(seconds);
        (machine, measurements)
    };
    vec![
        row(
            "one process at a time",
            "compute-mode-restricted",
            mode(ComputeMode::ExclusiveProcess),
            &[DefaultComputeMode],
            &[Nothing, EndPrograms],
        ),
        row(
            "none",
            "compute-mode-restricted",
            mode(ComputeMode::Prohibited),
            &[DefaultComputeMode],
            &[],
        ),
        row(
            "some GPUs",
            "mig-enabled",
            mig(&[1]),
            &[MigOff],
            &[Nothing, EndPrograms],
        ),
        row(
            "all GPUs",
            "mig-enabled",
            mig(&[0, 1, 2]),
            &[MigOff],
            &[Nothing, EndPrograms],
        ),
        row(
            "on bare metal",
            "driver-mismatch",
            but(healthy(two_sockets()), versions),
            &[Reboot],
            &[ReloadDriver, Container, EndPrograms],
        ),
        row(
            "in a guest",
            "driver-mismatch",
            but(healthy(h200_vm(2)), versions),
            &[Reboot],
            &[ReloadDriver, Container, EndPrograms],
        ),
        row(
            "cards",
            "firmware-mixed",
            but(healthy(two_sockets()), mixed),
            &[Step::UpdateFirmware],
            &[Nothing],
        ),
        row(
            "in a guest, who may not",
            "firmware-mixed",
            but(healthy(h200_vm(4)), mixed),
            &[Step::AskHost],
            &[Step::UpdateFirmware, Nothing],
        ),
        row(
            "the start was slow",
            "persistence-off",
            off(30.0),
            &[Persistence],
            &[],
        ),
        row(
            "it cost nothing",
            "persistence-off",
            off(2.0),
            &[Persistence],
            &[Nothing],
        ),
    ]
}

fn program_rows() -> Vec<Row> {
    use Step::{EndPrograms, Nothing, Unset};
    let row = |facts, rule, machine, must, may| Row {
        facts,
        rule,
        machine,
        must,
        may,
    };
    let shared = |machine: &mut Snapshot| {
        machine.gpus[1].processes = Reading::Known(vec![GpuProcess {
            pid: 4711,
            name: None,
            memory_bytes: None,
        }]);
    };
    let distorted = || {
        let (machine, mut measurements) = healthy(h200_vm(4));
        measurements.driver.environment_removed = vec!["CUDA_LAUNCH_BLOCKING=1".into()];
        (machine, measurements)
    };
    vec![
        row(
            "figures as they should be",
            "gpu-shared",
            but(healthy(h200_vm(4)), shared),
            &[Nothing],
            &[EndPrograms],
        ),
        row(
            "one variable",
            "environment-distorting",
            distorted(),
            &[Unset],
            &[Nothing],
        ),
    ]
}

fn figure_rows() -> Vec<Row> {
    use Step::{
        CheckAgainIdle, EndPrograms, MemoryModules, Nothing, NumaBind, PinMemory, Processor,
        ReuseBuffer, SendReport, SideStreams,
    };
    let row = |facts, rule, machine, must, may| Row {
        facts,
        rule,
        machine,
        must,
        may,
    };
    let far = |gbps| {
        let machine = two_sockets();
        let mut measurements = with_host(&machine, &[]);
        for gpu in 0..4 {
            let node = |node| HostCopy {
                numa_node: Some(node),
                ..host_copy(gpu, 26.0)
            };
            let other = HostCopy {
                achieved_gbps: Some(GbPerSecond(gbps)),
                ..node(1 - gpu / 2)
            };
            measurements.host.extend([node(gpu / 2), other]);
        }
        (machine, measurements)
    };
    let at_once = |machine: Snapshot, alone: f64, each: f64| {
        let gpus = u32::try_from(machine.gpus.len()).unwrap();
        let mut measurements = with_host(&machine, &vec![alone; machine.gpus.len()]);
        let together: Vec<_> = measurements.host.clone();
        let together = together.into_iter().map(|copy| HostCopy {
            at_once: gpus,
            achieved_gbps: Some(GbPerSecond(each)),
            ..copy
        });
        measurements.host.extend(together);
        (machine, measurements)
    };
    let memory = |memory, allocation, gbps| {
        let machine = h200_vm(2);
        let mut measurements = with_host(&machine, &[55.3, 55.2]);
        with_memory(&mut measurements, memory, allocation, gbps);
        (machine, measurements)
    };
    let short = || {
        let (machine, mut measurements) = healthy(h200_vm(2));
        measurements.latency = vec![
            latency(0, 1, Path::Direct, 0.004),
            latency(1, 0, Path::Direct, 1.2),
        ];
        (machine, measurements)
    };
    let uneven = || {
        let (machine, mut measurements) = healthy(h200_vm(3));
        let mut slower = measurements.peer[0].clone();
        let from_default = Placement {
            source: StreamKind::Default,
            ..slower.setup.placement
        };
        slower.setup = slower.setup.with_placement(from_default);
        slower.achieved_gbps = slower.achieved_gbps.map(|rate| GbPerSecond(rate.0 / 2.0));
        measurements.peer.push(slower);
        (machine, measurements)
    };
    let serial = || {
        let (machine, mut measurements) = healthy(h200_vm(2));
        measurements.overlap = vec![overlap(1.0)];
        (machine, measurements)
    };
    vec![
        row(
            "a quarter less",
            "host-memory-far",
            far(19.5),
            &[NumaBind],
            &[Nothing, Processor],
        ),
        row(
            "a third of it",
            "host-memory-far",
            far(9.0),
            &[NumaBind],
            &[Processor, Step::FirmwareSetting, Nothing],
        ),
        row(
            "memory of the host is full",
            "host-memory-saturates",
            at_once(h200_vm(8), 55.3, 18.6),
            &[MemoryModules],
            &[Nothing, NumaBind, Processor, Step::AskHost, EndPrograms],
        ),
        row(
            "a shared uplink is full",
            "host-memory-saturates",
            at_once(two_sockets(), 26.0, 13.2),
            &[Nothing],
            &[Step::PcieSwitch, Step::OtherSlot, NumaBind],
        ),
        row(
            "a seventh",
            "pageable-slower",
            memory(HostMemory::Pageable, Allocation::Reused, 8.0),
            &[PinMemory],
            &[Nothing, ReuseBuffer],
        ),
        row(
            "pinned for each copy",
            "pinning-dominates",
            memory(HostMemory::Pinned, Allocation::Anew, 1.8),
            &[ReuseBuffer],
            &[PinMemory],
        ),
        row(
            "a latency that no copy has",
            "figure-impossible",
            short(),
            &[SendReport],
            &[CheckAgainIdle, Step::Xid],
        ),
        row(
            "from a default stream",
            "peer-copy-uneven",
            uneven(),
            &[EndPrograms],
            &[Nothing, SideStreams, CheckAgainIdle],
        ),
        row(
            "the reference does not overlap",
            "placement-serialises",
            serial(),
            &[EndPrograms],
            &[
                CheckAgainIdle,
                Step::Unset,
                SideStreams,
                Step::DefaultComputeMode,
            ],
        ),
    ]
}

fn overlap(share: f64) -> Overlap {
    let side = Placement {
        source: StreamKind::Side,
        destination: StreamKind::Side,
        host: HostMode::NonBlocking,
    };
    overlap_of(side, share)
}

/// Returns a pattern whose flows have this rate each.
fn pattern(pattern: Pattern, of: &str, ways: &[Flow], each: f64) -> LoadPattern {
    let mut load = LoadPattern::without(pattern, of.into(), ways, Status::Measured, None);
    load.achieved_gbps = Some(GbPerSecond(
        each * f64::from(u32::try_from(ways.len()).unwrap()),
    ));
    load.flows
        .iter_mut()
        .for_each(|flow| flow.achieved_gbps = Some(GbPerSecond(each)));
    (load.verified, load.samples, load.bytes) = (Verified::Ok, 3, Bytes(256 * MIB));
    load
}

fn load_rows() -> Vec<Row> {
    use Step::{
        CheckAgainIdle, EndPrograms, FabricManager, LinkErrors, Nothing, NumaBind, OtherSlot,
        PcieSwitch,
    };
    let row = |facts, rule, machine, must, may| Row {
        facts,
        rule,
        machine,
        must,
        may,
    };
    let shift = |machine: Snapshot| {
        let (machine, mut measurements) = healthy(machine);
        let gpus = u32::try_from(machine.gpus.len()).unwrap();
        let way = |gpu| {
            Flow::from(Pair {
                source: gpu,
                destination: (gpu + 1) % gpus,
            })
        };
        let ways: Vec<Flow> = (0..gpus).map(way).collect();
        measurements.load = vec![pattern(Pattern::Shift, "by 1", &ways, 250.0)];
        (machine, measurements)
    };
    let by_design = || {
        let machine = two_sockets();
        let mut measurements = with_host(&machine, &[26.4; 4]);
        set(&mut measurements, 26.4, |_| true);
        let up = |gpu| Flow {
            from: model::flow::Endpoint::Host {
                node: None,
                memory: HostMemory::Pinned,
            },
            to: model::flow::Endpoint::Gpu(gpu),
        };
        measurements.load = vec![pattern(
            Pattern::ThroughOneHop,
            "socket 0",
            &[0, 1].map(up),
            13.3,
        )];
        (machine, measurements)
    };
    vec![
        row(
            "NVSwitches on bare metal",
            "load-below-expected",
            but(shift(h200_vm(8)), bare),
            &[LinkErrors],
            &[
                EndPrograms,
                CheckAgainIdle,
                FabricManager,
                Step::LongerProfile,
            ],
        ),
        row(
            "NVSwitches of a guest",
            "load-below-expected",
            but(shift(h200_vm(8)), guest),
            &[LinkErrors],
            &[
                EndPrograms,
                CheckAgainIdle,
                Step::AskHost,
                Step::LongerProfile,
            ],
        ),
        row(
            "two slots share an uplink",
            "load-limited-by-design",
            by_design(),
            &[Nothing],
            &[PcieSwitch, OtherSlot, NumaBind],
        ),
    ]
}

fn gap_rows() -> Vec<Row> {
    use Step::{
        AskHost, BindDriver, FabricManager, Limits, Lspci, Nothing, ReloadDriver, RunAsRoot, Xid,
    };
    let row = |facts, rule, machine, must, may| Row {
        facts,
        rule,
        machine,
        must,
        may,
    };
    let limited = || {
        let (machine, mut measurements) = healthy(h200_vm(2));
        measurements.limited.push(
            "GPU 1 is not watched: the limit of processes and threads (ulimit -u) is 12".into(),
        );
        (machine, measurements)
    };
    let code_802 = |change: fn(&mut Snapshot)| {
        let driver = DriverFacts {
            failure: Some("cuInit: CUDA error 802".into()),
            failure_code: Some(802),
            ..DriverFacts::default()
        };
        but(
            (
                h200_vm(8),
                Measurements {
                    driver,
                    ..Measurements::default()
                },
            ),
            change,
        )
    };
    let without_driver = || {
        let mut machine = empty();
        machine.problems.push("NVML: driver not loaded".into());
        (machine, Measurements::default())
    };
    vec![
        row(
            "of threads",
            "process-limit",
            limited(),
            &[Limits],
            &[Step::Container],
        ),
        row(
            "code 802 on bare metal",
            "nothing-measured",
            code_802(bare),
            &[FabricManager],
            &[Xid],
        ),
        row(
            "code 802 in a guest",
            "nothing-measured",
            code_802(guest),
            &[AskHost],
            &[FabricManager, ReloadDriver],
        ),
        row(
            "one GPU alone",
            "nothing-measured",
            (h200_vm(1), Measurements::default()),
            &[Nothing],
            &[Lspci],
        ),
        row(
            "the driver is not loaded",
            "nothing-measured",
            without_driver(),
            &[BindDriver],
            &[Lspci, ReloadDriver, RunAsRoot, Step::Container],
        ),
    ]
}

/// Returns rows whose facts come from beside the report: an earlier report, or the order.
pub(super) fn of_reports() -> Vec<Judged> {
    use Step::{CheckAgainIdle, EndPrograms, Expectation, LongerProfile, NewBaseline, Nothing};
    let old = || -> Report {
        serde_json::from_str(include_str!("../../tests/data/h200x2-standard.json")).unwrap()
    };
    let beside = |facts, rule, change: fn(&mut Report), must, may| {
        let (old, mut new) = (old(), old());
        change(&mut new);
        let found = judge(&Evidence {
            baseline: Some(&old),
            ..Evidence::of(&new, &Settings::default())
        });
        Judged {
            facts,
            rule,
            found,
            must,
            may,
        }
    };
    let asked = |facts, rule, text: &str, change: fn(&mut Report), must, may| {
        let mut report = old();
        change(&mut report);
        let expected = Expectations::parse(text).unwrap();
        let found = judge(&Evidence {
            expectations: Some(&expected),
            ..Evidence::of(&report, &Settings::default())
        });
        Judged {
            facts,
            rule,
            found,
            must,
            may,
        }
    };
    vec![
        beside(
            "figures are a tenth lower",
            "fell-since-baseline",
            |new| {
                for cell in &mut new.measurements.as_mut().unwrap().peer {
                    cell.achieved_gbps = cell.achieved_gbps.map(|rate| GbPerSecond(rate.0 * 0.9));
                }
            },
            &[CheckAgainIdle],
            &[EndPrograms, NewBaseline],
        ),
        beside(
            "another driver",
            "changed-since-baseline",
            |new| new.snapshot.host.driver_version = Reading::Known("580.200.01".into()),
            &[NewBaseline],
            &[Nothing],
        ),
        beside(
            "no figure of both",
            "baseline-not-compared",
            |new| {
                let measurements = new.measurements.as_mut().unwrap();
                let pair = measurements.peer[0].pair;
                measurements.peer = vec![cell(pair, Path::Direct, 396.0)];
                measurements.peer[0].setup = measurements.peer[0].setup.with_bytes(Bytes(3 * MIB));
                (measurements.host, measurements.load) = (Vec::new(), Vec::new());
                (measurements.pipeline, measurements.calls) = (Vec::new(), Vec::new());
                measurements.launch_loop = Vec::new();
                measurements.peer[0].setup.issuer = Side::Destination;
                measurements.peer[0].setup.placement.host = HostMode::Blocking;
            },
            &[LongerProfile],
            &[NewBaseline],
        ),
        asked(
            "a GPU is missing",
            "expectation-unmet",
            "[gpus]\ncount = 8\n",
            |_| (),
            &[Step::Lspci],
            &[Expectation, Step::Xid, Step::Riser],
        ),
        asked(
            "the links of a GPU are not known",
            "expectation-unchecked",
            "[nvlink]\nlinks = 18\n",
            |report| report.snapshot.gpus[1].nvlinks = Reading::failed("no answer"),
            &[Expectation],
            &[LongerProfile, Step::RunAsRoot],
        ),
        asked(
            "floors of staged copies after a quick run",
            "expectation-beyond-profile",
            "profile = \"standard\"\n[[floor]]\npair = [0, 1]\npath = \"staged\"\ngbps = 30.5\n",
            |report| {
                report
                    .measurements
                    .as_mut()
                    .unwrap()
                    .peer
                    .retain(|cell| cell.setup.path == Path::Direct)
            },
            &[LongerProfile],
            &[],
        ),
    ]
}
