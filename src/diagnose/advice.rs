//! Advice for programs, from the figures of this machine: a sentence each on streams, pinning and batches. The verdict
//! is about the machine and ignores it.

use std::collections::{BTreeMap, BTreeSet};

use model::advice::{Advice, Basis};
use model::cell::Measurement;
use model::flow::HostMemory;
use model::host::{Allocation, HostWay};
use model::measurement::{Measurements, Overlap};
use model::placement::{HostMode, KernelStream, Pair, Placement, StreamKind};
use model::rounding::{percent, rate, short};

/// Speed-up from which a change of a program is worth it: chosen.
const WORTH_IT: f64 = 1.2;

/// Returns what programs on this machine should do.
pub fn advise(measurements: &Measurements) -> Vec<Advice> {
    [streams(measurements), pinning(measurements), batches(measurements)]
        .into_iter()
        .flatten()
        .collect()
}

/// Advises which streams to copy on between GPUs.
fn streams(measurements: &Measurements) -> Option<Advice> {
    let both = |kind| Placement { source: kind, destination: kind, host: HostMode::NonBlocking };
    let wrong: BTreeSet<Pair> = measurements
        .peer
        .iter()
        .filter(|cell| cell.verified.is_wrong())
        .map(|cell| cell.pair)
        .collect();
    // The number of pairs, and the median share of a kernel's time that overlaps.
    let overlap_in = |placement| {
        let cells: Vec<_> = measurements
            .overlap
            .iter()
            .filter(|cell| cell.placement == placement && cell.cell().tested())
            .filter(|cell| cell.kernel_stream == KernelStream::Default)
            .filter(|cell| !wrong.contains(&cell.pair))
            .filter_map(|cell| Some((cell.pair, cell.overlap_percent?)))
            .collect();
        let pairs = cells.iter().map(|(pair, _)| pair).collect::<BTreeSet<_>>().len();
        Some((u32::try_from(pairs).ok()?, middle(cells.iter().map(|(_, share)| *share))?))
    };
    let (pairs, side_percent) = overlap_in(both(StreamKind::Side))?;
    let default_percent = overlap_in(both(StreamKind::Default)).map(|(_, share)| share);
    let basis = Basis::Streams { pairs, side_percent, default_percent };
    let side = percent(side_percent);
    let defaults = default_percent.map(percent);
    if side_percent < Overlap::BESIDE_PERCENT {
        let sentence = format!(
            "Kernels do not run beside copies between these GPUs, on whatever streams: {side}% of a kernel's time with side \
             streams on both. Plan for one after the other."
        );
        return Some(Advice { basis, sentence, pytorch: Vec::new() });
    }
    let on_default = match (defaults, default_percent) {
        (Some(share), Some(exact)) if exact < Overlap::BESIDE_PERCENT => {
            format!(", and {share}% on the default streams")
        }
        _ => String::new(),
    };
    let sentence = format!(
        "To run kernels beside copies between GPUs, give the copy a side stream on both GPUs: {side}% of a kernel's time \
         overlaps it{on_default}."
    );
    let pytorch = [
        "with torch.cuda.stream(stream_a), torch.cuda.stream(stream_b): y.copy_(x, non_blocking=True)",
        "torch.cuda.current_stream(b).wait_stream(stream_b) before y is used",
    ];
    Some(Advice { basis, sentence, pytorch: pytorch.map(str::to_owned).to_vec() })
}

/// Advises if host memory should be pinned, and if a pinned buffer should be used again.
fn pinning(measurements: &Measurements) -> Option<Advice> {
    let rates = |way: HostWay| -> Vec<f64> {
        measurements.host_alone(way).iter().filter_map(|copy| Some(copy.rate()?.0)).collect()
    };
    let rate_of = |way| middle(rates(way).into_iter());
    let (pinned_gbps, pageable_gbps) =
        (rate_of(HostWay::PINNED)?, rate_of(HostWay::PINNED.with_memory(HostMemory::Pageable))?);
    let pinned_anew_gbps = rate_of(HostWay { allocation: Allocation::Anew, ..HostWay::PINNED });
    let gpus = u32::try_from(rates(HostWay::PINNED).len()).ok()?;
    let basis = Basis::Pinning { gpus, pinned_gbps, pageable_gbps, pinned_anew_gbps };
    let (pinned, pageable) = (rate(pinned_gbps), rate(pageable_gbps));
    if pinned_gbps < WORTH_IT * pageable_gbps {
        let sentence = format!(
            "Pinning host memory gains little here: {pinned} GB/s to the GPU from pinned memory, {pageable} from pageable."
        );
        return Some(Advice { basis, sentence, pytorch: Vec::new() });
    }
    let anew = match pinned_anew_gbps {
        Some(anew) if anew < pinned_gbps / WORTH_IT => {
            format!(
                " Pin once and use the buffer again: pinned anew for each copy it is {} GB/s.",
                rate(anew)
            )
        }
        _ => String::new(),
    };
    let sentence = format!(
        "Pin the host memory that is copied to GPUs: {pinned} GB/s instead of {pageable} from pageable memory ({} times).{anew}",
        short(pinned_gbps / pageable_gbps)
    );
    let pytorch = ["DataLoader(..., pin_memory=True)", "batch.to(device, non_blocking=True)"];
    Some(Advice { basis, sentence, pytorch: pytorch.map(str::to_owned).to_vec() })
}

/// Advises how many batches to keep in flight: as many as the fastest pipeline from pinned memory had.
fn batches(measurements: &Measurements) -> Option<Advice> {
    let sound = measurements
        .pipeline
        .iter()
        .filter(|one| one.memory == HostMemory::Pinned && one.cell().tested());
    let mut by_streams: BTreeMap<u32, Vec<[f64; 2]>> = BTreeMap::new();
    for one in sound {
        let times = one.one_stream_us.zip(one.several_streams_us);
        by_streams
            .entry(one.streams)
            .or_default()
            .extend(times.map(|(one, several)| [one, several]));
    }
    let gain = |(streams, times): (u32, Vec<[f64; 2]>)| {
        let gpus = u32::try_from(times.len()).ok()?;
        let [one, several] = [0, 1].map(|at: usize| middle(times.iter().map(|times| times[at])));
        let (one_stream_us, several_streams_us) = (one?, several?);
        let speed_up = one_stream_us / several_streams_us;
        Some((
            speed_up,
            Basis::Batches { gpus, streams, one_stream_us, several_streams_us, speed_up },
            streams,
        ))
    };
    let found = by_streams.into_iter().filter_map(gain);
    let (speed_up, basis, streams) = found.max_by(|(one, ..), (other, ..)| one.total_cmp(other))?;
    let times = short(speed_up);
    if speed_up < WORTH_IT {
        let sentence = format!(
            "Several batches in flight gain little here: copies in, kernels and copies out are {times} times as fast in \
             {streams} streams as in one."
        );
        return Some(Advice { basis, sentence, pytorch: Vec::new() });
    }
    let sentence = format!(
        "Keep {streams} batches in flight, each on a stream of its own: copies in, kernels and copies out are then {times} \
         times as fast as in one stream."
    );
    let pytorch = [
        "streams = [torch.cuda.Stream() for _ in range(N)]; with torch.cuda.stream(streams[i % N]): for batch i"
            .to_owned(),
        "x.record_stream(streams[i % N])".to_owned(),
    ];
    let pytorch = pytorch.map(|call| {
        call.replace("range(N)", &format!("range({streams})"))
            .replace("% N", &format!("% {streams}"))
    });
    Some(Advice { basis, sentence, pytorch: pytorch.to_vec() })
}

/// Returns the median; `None` if there are no figures.
fn middle(values: impl Iterator<Item = f64>) -> Option<f64> {
    let mut values: Vec<f64> = values.filter(|value| value.is_finite()).collect();
    values.sort_by(f64::total_cmp);
    let (low, high) =
        (values.get(values.len().checked_sub(1)? / 2)?, values.get(values.len() / 2)?);
    Some(f64::midpoint(*low, *high))
}

#[cfg(test)]
mod tests {
    use super::*;
    use model::host::HostCopy;
    use model::measurement::Status;
    use model::pipeline::Pipeline;
    use model::placement::Side;
    use model::status::Ending;
    use model::testing::host_copy;
    use model::units::{Bytes, MIB};

    fn overlap(kind: StreamKind, percent: f64) -> Overlap {
        let pair = Pair { source: 0, destination: 1 };
        let placement = Placement { source: kind, destination: kind, host: HostMode::NonBlocking };
        Overlap {
            overlap_percent: Some(percent),
            samples: 2,
            ..Overlap::blank(pair, placement, Side::Source, KernelStream::Default, Bytes(64 * MIB))
        }
    }

    fn pipeline(streams: u32, several_us: f64) -> Pipeline {
        Pipeline {
            one_stream_us: Some(3400.0),
            several_streams_us: Some(several_us),
            speed_up: Some(3400.0 / several_us),
            samples: 2,
            ..Pipeline::blank(0, None, HostMemory::Pinned, 8, Bytes(8 * MIB), streams)
        }
    }

    fn about(cells: Vec<Overlap>) -> Vec<Advice> {
        advise(&Measurements { overlap: cells, ..Measurements::default() })
    }

    #[test]
    fn streams_follow_from_what_overlapped() {
        let advice =
            about(vec![overlap(StreamKind::Side, 99.6), overlap(StreamKind::Default, 0.2)]);
        assert_eq!(
            advice[0].sentence,
            "To run kernels beside copies between GPUs, give the copy a side stream on both GPUs: 100% of a kernel's time \
             overlaps it, and 0% on the default streams."
        );
        assert!(advice[0].pytorch[0].contains("torch.cuda.stream"));
        let Basis::Streams { pairs: 1, side_percent, default_percent: Some(_) } = advice[0].basis
        else {
            panic!("{advice:?}")
        };
        assert!((side_percent - 99.6).abs() < 1e-9);
        let never = about(vec![overlap(StreamKind::Side, 3.0)]);
        assert!(
            never[0].sentence.contains("one after the other") && never[0].pytorch.is_empty(),
            "{never:?}"
        );
    }

    #[test]
    fn advice_on_pinning_depends_on_the_rates_of_pinned_pageable_and_anew() {
        let of =
            |gbps: f64, memory, allocation| HostCopy { memory, allocation, ..host_copy(0, gbps) };
        let about = |[pinned, pageable, anew]: [f64; 3]| {
            let host = vec![
                of(pinned, HostMemory::Pinned, Allocation::Reused),
                of(pageable, HostMemory::Pageable, Allocation::Reused),
                of(anew, HostMemory::Pinned, Allocation::Anew),
            ];
            advise(&Measurements { host, ..Measurements::default() }).remove(0)
        };
        let forum = about([8.6, 6.1, 3.0]);
        assert_eq!(
            forum.sentence,
            "Pin the host memory that is copied to GPUs: 8.6 GB/s instead of 6.1 from pageable memory (1.41 times). Pin once \
             and use the buffer again: pinned anew for each copy it is 3.0 GB/s."
        );
        assert!(forum.pytorch.iter().any(|call| call.contains("non_blocking=True")));
        let little = about([6.5, 6.1, 6.0]);
        assert!(
            little.sentence.contains("gains little") && little.pytorch.is_empty(),
            "{little:?}"
        );
    }

    #[test]
    fn batches_in_flight_are_those_of_the_fastest_pipeline() {
        let about = |pipeline: Vec<Pipeline>| {
            advise(&Measurements { pipeline, ..Measurements::default() }).remove(0)
        };
        let three = about(vec![pipeline(2, 2000.0), pipeline(3, 1700.0), pipeline(8, 1800.0)]);
        assert!(
            three.sentence.starts_with("Keep 3 batches in flight")
                && three.sentence.contains("2.00 times"),
            "{three:?}"
        );
        assert!(three.pytorch[0].contains("range(3)"), "{three:?}");
        assert!(about(vec![pipeline(3, 3300.0)]).sentence.contains("gain little"));
    }

    #[test]
    fn what_was_not_measured_gives_no_advice() {
        assert_eq!(about(Vec::new()), []);
        let mut disturbed = overlap(StreamKind::Side, 100.0);
        disturbed.ending.disturbed = true;
        let lost = Overlap {
            ending: Ending::without(Status::Hung, None),
            overlap_percent: None,
            ..overlap(StreamKind::Side, 0.0)
        };
        assert_eq!(about(vec![disturbed, lost]), []);
    }

    #[test]
    fn the_middle_of_figures_is_their_median() {
        let of = |values: &[f64]| middle(values.iter().copied());
        assert_eq!(
            [of(&[]), of(&[3.0]), of(&[4.0, 1.0]), of(&[9.0, 1.0, 2.0])],
            [None, Some(3.0), Some(2.5), Some(2.0)]
        );
    }
}
