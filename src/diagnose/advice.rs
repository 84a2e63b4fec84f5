//! Advice for programs, from the figures of this machine: a sentence each on streams, pinning and batches. The verdict
//! is about the machine and ignores it.

use std::collections::{BTreeMap, BTreeSet};

use model::advice::{Advice, Basis, Cost, Framework, Lines};
use model::cell::{Measurement, Subject};
use model::contention::KernelNeed;
use model::flow::HostMemory;
use model::host::{Allocation, HostWay};
use model::measurement::{Measurements, Overlap};
use model::pipeline::Pipeline;
use model::placement::{Engine, HostMode, KernelStream, Pair, Placement, StreamKind};
use model::rounding::{percent, range, rate, short};

/// Speed-up from which a change of a program is worth it: chosen.
const WORTH_IT: f64 = 1.2;
/// Share of the fastest pipeline's speed-up from which one in fewer streams is as good: chosen. Those in 4 and 8 streams on
/// H200 differed by 1%.
const AS_FAST: f64 = 0.97;

/// Returns what programs on this machine should do.
pub fn advise(measurements: &Measurements) -> Vec<Advice> {
    let of_topics = [
        streams(measurements),
        contention(measurements),
        pinning(measurements),
        batches(measurements),
    ];
    of_topics.into_iter().flatten().collect()
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
    let share_of = |kind| overlap_in(both(kind)).map(|(_, share)| share);
    let (default_percent, blocking_percent) =
        (share_of(StreamKind::Default), share_of(StreamKind::SideBlocking));
    let basis = Basis::Streams { pairs, side_percent, default_percent, blocking_percent };
    let side = percent(side_percent);
    if side_percent < Overlap::BESIDE_PERCENT {
        let sentence = format!(
            "Kernels do not run beside copies between these GPUs, on whatever streams: {side}% of a kernel's time with side \
             streams on both. Plan for one after the other."
        );
        return Some(Advice { basis, sentence, programs: Vec::new() });
    }
    let wait = [
        (default_percent, "on the default streams"),
        (blocking_percent, "on blocking ones (cudaStreamCreate, CuPy, Numba)"),
    ];
    let wait = wait.into_iter().filter_map(|(share, place)| {
        let share = share.filter(|share| *share < Overlap::BESIDE_PERCENT)?;
        Some(format!(", {}% {place}", percent(share)))
    });
    let sentence = format!(
        "To run kernels of the default stream beside copies between GPUs, copy on non-blocking streams, ordered by events: \
         {side}% of a kernel's time overlaps{}.",
        wait.collect::<String>()
    );
    Some(Advice { basis, sentence, programs: beside_kernels() })
}

/// Returns the lines that let a copy from GPU a to GPU b run beside kernels.
fn beside_kernels() -> Vec<Lines> {
    vec![
        Lines::new(
            Framework::Pytorch,
            &[
                "sa.wait_stream(current_stream(a))",
                "with stream(sa), stream(sb): y.copy_(x, non_blocking=True)",
                "current_stream(b).wait_stream(sb)",
            ],
        ),
        Lines::new(Framework::Cupy, &["copy_from_device_async(..., Stream(non_blocking=True))"]),
        Lines::new(
            Framework::Numba,
            &["copy_to_device(x, s), and the kernel on a cuda.stream() too"],
        ),
        Lines::new(Framework::Cuda, &["cudaMemcpyPeerAsync(..., s), s with cudaStreamNonBlocking"]),
    ]
}

/// Says what copies and kernels at the same time cost each other.
fn contention(measurements: &Measurements) -> Option<Advice> {
    let sound = || measurements.contention.iter().filter(|cell| cell.cell().tested());
    let mut costs = Vec::new();
    for (engine, kernel) in
        Engine::ALL.into_iter().flat_map(|of| KernelNeed::ALL.map(|need| (of, need)))
    {
        let of = || sound().filter(move |cell| (cell.engine, cell.kernel) == (engine, kernel));
        let medians = (
            middle(of().filter_map(|cell| cell.copy_keeps_percent)),
            middle(of().filter_map(|cell| cell.kernel_keeps_percent)),
        );
        if let (Some(copy_keeps_percent), Some(kernel_keeps_percent)) = medians {
            costs.push(Cost { engine, kernel, copy_keeps_percent, kernel_keeps_percent });
        }
    }
    let between = sound().next()?.flow().pair().map_or("with the host", |_| "between GPUs");
    let of_engine = |engine: Engine| {
        let (mut sentence, mut of_rate) = (String::new(), " of its rate");
        for cost in costs.iter().filter(|cost| cost.engine == engine) {
            let (copy, one) = match (sentence.is_empty(), engine) {
                (true, Engine::Copy) => ("a copy ", "a kernel"),
                (true, Engine::Kernel) => ("a copy by kernel ", "a kernel"),
                (false, _) => (", and ", "one"),
            };
            if cost.copy_keeps_percent == 0.0 {
                sentence += &format!("{copy}waits for {one} that needs {}", cost.kernel);
                continue;
            }
            let keeps = percent(cost.copy_keeps_percent);
            let which = match cost.kernel_keeps_percent {
                0.0 => "waits for the copy".to_owned(),
                keeps => format!("takes {}% longer", percent((10_000.0 / keeps - 100.0).max(0.0))),
            };
            sentence += &format!(
                "{copy}keeps {keeps}%{of_rate} beside {one} that needs {}, which {which}",
                cost.kernel
            );
            of_rate = "";
        }
        Some(sentence).filter(|sentence| !sentence.is_empty())
    };
    if costs.is_empty() {
        return None;
    }
    let sentences: Vec<String> = Engine::ALL.into_iter().filter_map(of_engine).collect();
    let sentence = format!("At the same time, {between}: {}.", sentences.join("; "));
    Some(Advice { basis: Basis::Costs { costs }, sentence, programs: Vec::new() })
}

/// Advises if host memory should be pinned, and if a pinned buffer should be used again.
fn pinning(measurements: &Measurements) -> Option<Advice> {
    let rates = |way: HostWay| -> Vec<f64> {
        measurements.host_alone(way).iter().filter_map(|copy| Some(copy.rate()?.0)).collect()
    };
    let rate_of = |way| middle(rates(way).into_iter());
    let pageable = HostWay::PINNED.with_memory(HostMemory::Pageable);
    let [anew, filled] = [Allocation::Anew, Allocation::Filled]
        .map(|allocation| HostWay::PINNED.with_allocation(allocation));
    let (pinned_gbps, pageable_gbps) = (rate_of(HostWay::PINNED)?, rate_of(pageable)?);
    let (pinned_anew_gbps, filled_gbps) = (rate_of(anew), rate_of(filled));
    let gpus = u32::try_from(rates(HostWay::PINNED).len()).ok()?;
    let basis = Basis::Pinning { gpus, pinned_gbps, pageable_gbps, pinned_anew_gbps, filled_gbps };
    // GPUs in unlike slots have no common rate.
    let ends = |way, middle| {
        let rates = rates(way);
        let [least, most] = [f64::min, f64::max].map(|of| rates.iter().copied().fold(middle, of));
        if most < WORTH_IT * least { [middle; 2] } else { [least, most] }
    };
    let ends = [ends(HostWay::PINNED, pinned_gbps), ends(pageable, pageable_gbps)];
    let [pinned_text, pageable_text] = ends.map(|[least, most]| range(least, most, rate, " to "));
    if pinned_gbps < WORTH_IT * pageable_gbps {
        let gains = if pinned_gbps < pageable_gbps { "nothing" } else { "little" };
        let sentence = format!(
            "Pinning host memory gains {gains} here: {pinned_text} GB/s to the GPU from pinned memory, {pageable_text} from \
             pageable."
        );
        return Some(Advice { basis, sentence, programs: Vec::new() });
    }
    let slower = [("pinned anew for each copy", anew), ("filled first by one thread", filled)];
    let slower = slower.into_iter().filter_map(|(how, way)| {
        let gbps = rate_of(way).filter(|gbps| *gbps < pinned_gbps / WORTH_IT)?;
        Some(format!("; {how} it is {}", rate(gbps)))
    });
    let of_pageable = match ends.iter().all(|[least, most]| least >= most) {
        true => format!("{} times the", short(pinned_gbps / pageable_gbps)),
        false => "instead of".to_owned(),
    };
    let sentence = format!(
        "Pin the host memory that is copied to GPUs, once, and write the data there: {pinned_text} GB/s, {of_pageable} \
         {pageable_text} from pageable memory{}.",
        slower.collect::<String>()
    );
    let lines = ["DataLoader(..., pin_memory=True)", "batch.to(device, non_blocking=True)"];
    Some(Advice { basis, sentence, programs: vec![Lines::new(Framework::Pytorch, &lines)] })
}

/// Advises how many batches to keep in flight: as few as a pipeline from pinned memory had that is as fast as any.
fn batches(measurements: &Measurements) -> Option<Advice> {
    let sound = measurements
        .pipeline
        .iter()
        .filter(|one| one.memory == HostMemory::Pinned && one.cell().tested());
    let mut by_streams: BTreeMap<u32, Vec<&Pipeline>> = BTreeMap::new();
    for one in sound {
        by_streams.entry(one.streams).or_default().push(one);
    }
    let gain = |(streams, of): (u32, Vec<&Pipeline>)| {
        let us = |time: fn(&Pipeline) -> Option<f64>| middle(of.iter().copied().filter_map(time));
        let one_stream_us = us(|one| one.one_stream_us)?;
        let several_streams_us = us(|one| one.several_streams_us)?;
        let basis = Basis::Batches {
            gpus: u32::try_from(of.len()).ok()?,
            streams,
            one_stream_us,
            several_streams_us,
            speed_up: one_stream_us / several_streams_us,
            one_stream_bytes: of.iter().filter_map(|one| one.one_stream_bytes).max(),
            several_streams_bytes: of.iter().filter_map(|one| one.several_streams_bytes).max(),
        };
        Some((one_stream_us / several_streams_us, basis, streams))
    };
    let found: Vec<_> = by_streams.into_iter().filter_map(gain).collect();
    let fastest = found.iter().map(|(speed_up, ..)| *speed_up).reduce(f64::max)?;
    // More streams take more memory.
    let (speed_up, basis, streams) =
        found.into_iter().find(|(speed_up, ..)| *speed_up >= AS_FAST * fastest)?;
    let times = short(speed_up);
    if speed_up < WORTH_IT {
        let sentence = format!(
            "Several batches in flight gain little here: copies in, kernels and copies out are {times} times as fast in \
             {streams} streams as in one."
        );
        return Some(Advice { basis, sentence, programs: Vec::new() });
    }
    let memory = match &basis {
        Basis::Batches {
            one_stream_bytes: Some(one), several_streams_bytes: Some(all), ..
        } if all > one => {
            format!(", with {all} of the GPU instead of {one}")
        }
        _ => String::new(),
    };
    let sentence = format!(
        "Keep {streams} batches in flight, each on a stream of its own: {times} times as fast as in one stream{memory}."
    );
    let lines = [
        &format!("streams = [Stream() for _ in range({streams})]"),
        &format!(
            "with stream(streams[i % {streams}]): work(x); x.record_stream(streams[i % {streams}])"
        ),
    ];
    let lines = Lines::new(Framework::Pytorch, &lines.map(String::as_str));
    Some(Advice { basis, sentence, programs: vec![lines] })
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
    use model::contention::Contention;
    use model::host::HostCopy;
    use model::measurement::Status;
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
            "To run kernels of the default stream beside copies between GPUs, copy on non-blocking streams, ordered by events: \
             100% of a kernel's time overlaps, 0% on the default streams."
        );
        assert!(advice[0].programs[0].lines[1].contains("stream(sa), stream(sb)"));
        let Basis::Streams { pairs: 1, side_percent, default_percent: Some(_), .. } =
            advice[0].basis
        else {
            panic!("{advice:?}")
        };
        assert!((side_percent - 99.6).abs() < 1e-9);
        let never = about(vec![overlap(StreamKind::Side, 3.0)]);
        assert!(
            never[0].sentence.contains("one after the other") && never[0].programs.is_empty(),
            "{never:?}"
        );
    }

    #[test]
    fn advice_on_pinning_depends_on_the_rates_of_pinned_pageable_and_anew() {
        let of =
            |gbps: f64, memory, allocation| HostCopy { memory, allocation, ..host_copy(0, gbps) };
        let about = |[pinned, pageable, anew, filled]: [f64; 4]| {
            let host = vec![
                of(pinned, HostMemory::Pinned, Allocation::Reused),
                of(pageable, HostMemory::Pageable, Allocation::Reused),
                of(anew, HostMemory::Pinned, Allocation::Anew),
                of(filled, HostMemory::Pinned, Allocation::Filled),
            ];
            advise(&Measurements { host, ..Measurements::default() }).remove(0)
        };
        let forum = about([8.6, 6.1, 3.0, 5.0]);
        assert_eq!(
            forum.sentence,
            "Pin the host memory that is copied to GPUs, once, and write the data there: 8.6 GB/s, 1.41 times the 6.1 from \
             pageable memory; pinned anew for each copy it is 3.0; filled first by one thread it is 5.0."
        );
        assert!(forum.programs[0].lines.iter().any(|call| call.contains("non_blocking=True")));
        let little = about([6.5, 6.1, 6.0, 6.0]);
        assert!(
            little.sentence.contains("gains little") && little.programs.is_empty(),
            "{little:?}"
        );
    }

    #[test]
    fn batches_in_flight_are_as_few_as_are_as_fast_as_any() {
        let about = |pipeline: Vec<Pipeline>| {
            advise(&Measurements { pipeline, ..Measurements::default() }).remove(0)
        };
        let three = about(vec![pipeline(2, 2000.0), pipeline(3, 1700.0), pipeline(8, 1690.0)]);
        assert!(
            three.sentence.starts_with("Keep 3 batches in flight")
                && three.sentence.contains("2.00 times"),
            "{three:?}"
        );
        assert!(three.programs[0].lines[0].contains("range(3)"), "{three:?}");
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
    fn what_copies_and_kernels_cost_each_other_is_said_of_those_that_were_measured() {
        let cell = |kernel, copy, of_kernel| Contention {
            copy_keeps_percent: Some(copy),
            kernel_keeps_percent: Some(of_kernel),
            samples: 2,
            ..Contention::blank(0, None, Some(0), Engine::Copy, kernel, Bytes(64 * MIB))
        };
        let contention = vec![
            cell(KernelNeed::Memory, 99.7, 93.6),
            cell(KernelNeed::Memory, 98.7, 99.0),
            cell(KernelNeed::Arithmetic, 100.2, 100.1),
        ];
        let advice = advise(&Measurements { contention, ..Measurements::default() });
        assert_eq!(
            advice[0].sentence,
            "At the same time, with the host: a copy keeps 99% of its rate beside a kernel that needs memory, which takes 4% \
             longer, and keeps 100% beside one that needs arithmetic, which takes 0% longer."
        );
        let Basis::Costs { costs } = &advice[0].basis else { panic!("{advice:?}") };
        assert_eq!(costs.len(), 2);
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
