use super::*;
use hardware::GpuGroup;
use model::reading::Unknown;
use model::snapshot::PciKind;
use model::testing::{function, pcie_link};
use sim::spec::{LinkFault, NvLinkErrors, NvLinkFault};

#[test]
fn what_links_do_and_count_while_copies_run_is_seen() {
    let mut spec = sim::builtin::get("h200x2").unwrap();
    spec.gpus[0].nvlinks[0].errors =
        NvLinkErrors { crc: 1000, replay: 0, recovery: 2, ..NvLinkErrors::default() };
    spec.faults.nvlinks.push(NvLinkFault::new(
        0,
        5,
        NvLinkErrors { crc: 30, replay: 4, ..NvLinkErrors::default() },
    ));
    spec.gpus[1].state.ecc_uncorrected = 4;
    spec.gpus[1].state.ecc_uncorrected_under_load = 3;
    spec.faults.links.push(LinkFault {
        function: spec.gpus[1].pci,
        trains_down_to: Some(pcie_link(5, 8)),
        replays: 17,
        errors: PcieErrors { correctable: 9, non_fatal: 0, fatal: 0 },
        only_under_load: false,
    });
    let telemetry = sim::telemetry(spec);
    let gpus: Vec<_> = (0..2)
        .map(|index| {
            let mut gpu = Gpu::unread(index, &Unknown::Unsupported);
            GpuGroup::ALL.into_iter().for_each(|group| telemetry.read_gpu(group, &mut gpu));
            gpu
        })
        .collect();
    // Two readings are taken, however short the run.
    let watch = Watch::start(&telemetry, &[0, 1]);
    let (samples, counted) = watch.finish(&Snapshot { gpus, ..model::testing::empty() });
    let of = |gpu: u32| {
        samples
            .iter()
            .filter(move |(index, _)| *index == gpu)
            .map(|(_, sample)| sample.clone())
            .collect::<Vec<_>>()
    };
    let links = [0, 1].map(|gpu| summary(gpu, &of(gpu)));
    assert_eq!(counted.late, [0; 0]);
    assert_eq!(
        counted.nvlink_of(0),
        Some(vec![NvLinkErrorsAdded {
            link: 5,
            crc: 30,
            replay: 4,
            recovery: 0,
            ..NvLinkErrorsAdded::default()
        }])
    );
    assert_eq!((links[0].width, links[0].replays_added), (Some([16, 16]), Some(0)));
    assert_eq!(counted.nvlink_of(1), Some(vec![]));
    assert_eq!((links[1].width, links[1].replays_added), (Some([8, 16]), Some(17)));
    assert_eq!(links.each_ref().map(|link| link.ecc_uncorrected_added), [Some(0), Some(3)]);
    assert_eq!(links[1].pcie_errors_before, Some(PcieErrors::default()));
    assert_eq!(links[1].pcie_errors_after.map(|errors| errors.correctable), Some(9));
}

fn sample(generation: u8, width: u8, replays: u64, correctable: u64) -> LinkSample {
    LinkSample {
        generation: generation.try_into().ok(),
        width: width.try_into().ok(),
        replays: Some(replays),
        pcie_errors: Some(PcieErrors { correctable, ..PcieErrors::default() }),
        ..LinkSample::default()
    }
}

#[test]
fn changes_are_kept_in_their_order_and_counters_before_and_after() {
    let mut samples =
        vec![sample(1, 16, 7, 2), sample(4, 16, 7, 2), sample(4, 16, 9, 3), sample(3, 16, 12, 5)];
    samples.insert(2, LinkSample { width: None, ..sample(4, 16, 7, 2) });
    let link = summary(2, &samples);
    let states: Vec<_> =
        link.states.iter().map(|state| (state.reading, state.generation, state.width)).collect();
    assert_eq!(states, [(0, 1, 16), (1, 4, 16), (4, 3, 16)]);
    assert_eq!((link.replays_added, link.generation, link.readings), (Some(5), Some([1, 4]), 5));
    let counts =
        [link.pcie_errors_before, link.pcie_errors_after].map(|errors| errors.unwrap().correctable);
    assert_eq!(counts, [2, 5]);

    let flapping: Vec<_> =
        (0..500).map(|turn| sample(if turn % 2 == 0 { 1 } else { 4 }, 16, 0, 0)).collect();
    assert_eq!(crate::watch::states(&flapping).len(), LinkUnderLoad::MOST_STATES);
    let nothing = summary(0, &[LinkSample::default()]);
    assert_eq!(
        (nothing.pcie_errors_after, nothing.replays_added, nothing.states.len()),
        (None, None, 0)
    );
}

#[test]
fn counters_of_functions_are_reported_where_they_rose() {
    let with = |address: &str, correctable: Reading<u64>, fatal: u64| {
        let mut function = function(address, None, PciKind::RootPort, (4, 16), (4, 16));
        function.aer_correctable = correctable;
        function.aer_fatal = Reading::Known(fatal);
        function
    };
    let before = [
        with("0000:00:01.0", Reading::Known(4), 0),
        with("0000:00:02.0", Reading::Known(4), 1),
        with("0000:00:03.0", Reading::unsupported(), 0),
    ];
    let after = [
        with("0000:00:01.0", Reading::Known(9), 1),
        with("0000:00:02.0", Reading::Known(0), 1),
        with("0000:00:03.0", Reading::Known(7), 0),
    ];
    let rises = rises(&before, &after);
    let [rise] = rises.as_slice() else { panic!("{rises:?}") };
    assert_eq!(
        (rise.address.to_string().as_str(), rise.added.correctable, rise.added.fatal),
        ("0000:00:01.0", 5, 1)
    );
}

/// Returns the number of readings of each GPU of a simulated machine whose driver's clock showed these times in turn,
/// in milliseconds.
fn readings_by_clock(clock: &[u64]) -> Vec<usize> {
    let telemetry = sim::telemetry(sim::builtin::get("h200x2").unwrap());
    let mut watch = Watch::start(&telemetry, &[0, 1]);
    clock.iter().for_each(|now| watch.follow(Duration::from_millis(*now)));
    let (samples, _) = watch.finish(&model::testing::empty());
    [0, 1].map(|gpu| samples.iter().filter(|(index, _)| *index == gpu).count()).to_vec()
}

#[test]
fn readings_of_a_simulated_machine_follow_its_clock_and_not_the_hosts() {
    // One reading is at the start, one at the end, and one at each tenth of a second.
    assert_eq!(readings_by_clock(&[]), [2, 2]);
    assert_eq!(readings_by_clock(&[50, 99]), [2, 2]);
    assert_eq!(readings_by_clock(&[50, 99, 101, 199, 430]), [6, 6]);
    // The clock of another worker starts anew.
    assert_eq!(readings_by_clock(&[250, 10, 60, 120]), [5, 5]);
    // A copy that takes years does not cause millions of readings.
    assert_eq!(readings_by_clock(&[u64::MAX / 2, u64::MAX / 2 + 150]), [53, 53]);
}

#[test]
fn symbols_that_a_link_corrects_are_counted_where_they_are() {
    let histogram = |codewords: Option<&[u64]>| {
        let mut link = NvLink::unread(3, &Unknown::Unsupported);
        link.active = Reading::Known(true);
        if let Some(codewords) = codewords {
            link.fec_histogram = Reading::Known(codewords.to_vec());
        }
        link
    };
    let added = |then: Option<&[u64]>, now: Option<&[u64]>| {
        corrected(&[histogram(then)], &[histogram(now)])
    };
    let then = Some(&[1000, 50, 2, 0, 1][..]);
    assert_eq!(
        added(then, Some(&[5000, 60, 2, 1, 1])),
        Some(vec![NvLinkCorrected { link: 3, codewords: vec![4000, 10, 0, 1] }])
    );
    // Codewords without an error are no corrections; counts from before are not those of the run.
    assert_eq!(added(then, Some(&[9000, 50, 2, 0, 1])), Some(vec![]));
    assert_eq!(added(None, None), None, "not counted is not none");
    assert_eq!(added(then, None), None);
}
