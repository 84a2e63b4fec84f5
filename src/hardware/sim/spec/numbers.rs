//! Bounds of the numbers in a description.

use super::problem::{Checked, ensure, problem};
use super::{CopyFault, HostSpeeds, NvLinkErrors, PathSpeed, Speeds};
use model::units::{Bytes, GIB};

/// Most memory of a GPU or NUMA node.
const MOST_MEMORY: u64 = 65_536 * GIB;
/// Highest rate of anything, GB/s.
pub(super) const HIGHEST_RATE: f64 = 1e6;
/// Highest factor of an outlier.
const MOST_TIMES: f64 = 1e6;
/// Longest time, milliseconds: a day.
const LONGEST_MS: f64 = 8.64e7;
/// Highest cost of a call or copy, microseconds: a second.
const LONGEST_US: f64 = 1e6;

pub(super) fn memory(key: &str, size: Bytes) -> Checked {
    let most = Bytes(MOST_MEMORY);
    ensure!((1..=most.0).contains(&size.0), key, "{size} is not between 1 byte and {most}");
    Ok(())
}

/// Checks that a number is within bounds; NaN never is.
pub(super) fn number(key: &str, value: f64, least: f64, most: f64, unit: &str) -> Checked {
    let unit = if unit.is_empty() { String::new() } else { format!(" {unit}") };
    ensure!(
        (least..=most).contains(&value),
        key,
        "{value:?} is not between {least} and {most}{unit}"
    );
    Ok(())
}

/// Checks how many numbers of corrected symbols have a count.
pub(super) fn corrected(key: &str, counts: usize) -> Checked {
    let most = NvLinkErrors::MOST_SYMBOLS;
    ensure!(counts <= most, key, "{counts} counts are more than NVML has, which is {most}");
    Ok(())
}

pub(super) fn rate(key: &str, gbps: f64) -> Checked {
    let possible = gbps > 0.0 && gbps <= HIGHEST_RATE;
    ensure!(possible, key, "{gbps:?} is not above 0 and up to {HIGHEST_RATE} GB/s");
    Ok(())
}

/// Checks a share of a rate. It must not be 0, because a copy at rate 0 never ends.
pub(super) fn share(key: &str, share: f64) -> Checked {
    ensure!(share > 0.0 && share <= 1.0, key, "{share:?} is not above 0 and up to 1");
    Ok(())
}

pub(super) fn speeds(speeds: &Speeds) -> Checked {
    let paths = [
        ("nvlink", &speeds.nvlink),
        ("pcie", &speeds.pcie),
        ("cross_socket", &speeds.cross_socket),
        ("staged", &speeds.staged),
    ];
    for (name, path) in paths {
        path_speed(&format!("speeds.{name}"), path, name == "staged")?;
    }
    share("speeds.nvlink_shared", speeds.nvlink_shared)?;
    share("speeds.pcie_shared", speeds.pcie_shared)?;
    rate("speeds.interconnect_gbps", speeds.interconnect_gbps)?;
    rate("speeds.host_memory_gbps", speeds.host_memory_gbps)?;
    for (key, value) in [
        ("copy_call_us", speeds.copy_call_us),
        ("call_us", speeds.call_us),
        ("staged_call_us_per_mib", speeds.staged_call_us_per_mib),
    ] {
        number(&format!("speeds.{key}"), value, 0.0, LONGEST_US, "us")?;
    }
    host_speeds(&speeds.host)
}

fn host_speeds(host: &HostSpeeds) -> Checked {
    let HostSpeeds { up, down, both_ways, kernel_up, kernel_down, .. } = *host;
    for (name, value) in [
        ("up", up),
        ("down", down),
        ("both_ways", both_ways),
        ("kernel_up", kernel_up),
        ("kernel_down", kernel_down),
    ] {
        share(&format!("speeds.host.{name}"), value)?;
    }
    for (name, value) in [
        ("pageable_up_gbps", host.pageable_up_gbps),
        ("pageable_down_gbps", host.pageable_down_gbps),
        ("processor_gbps", host.processor_gbps),
    ] {
        rate(&format!("speeds.host.{name}"), value)?;
    }
    for (name, value) in [("each_us", host.each_us), ("first_us", host.first_us)] {
        microseconds(&format!("speeds.host.{name}"), value)?;
    }
    for (name, value) in [
        ("pin_ms_per_gib", host.pin_ms_per_gib),
        ("unpin_ms_per_gib", host.unpin_ms_per_gib),
        ("register_ms_per_gib", host.register_ms_per_gib),
        ("unregister_ms_per_gib", host.unregister_ms_per_gib),
        ("touch_ms_per_gib", host.touch_ms_per_gib),
    ] {
        milliseconds(&format!("speeds.host.{name}"), value)?;
    }
    Ok(())
}

fn path_speed(key: &str, path: &PathSpeed, staged: bool) -> Checked {
    share(&format!("{key}.copy"), path.copy)?;
    share(&format!("{key}.both_ways"), path.both_ways)?;
    for (name, value) in [("push", path.push), ("pull", path.pull)] {
        // Kernels do not copy through host memory.
        if !staged {
            share(&format!("{key}.{name}"), value)?;
        } else {
            number(&format!("{key}.{name}"), value, 0.0, 1.0, "")?;
        }
    }
    for (name, value) in [
        ("each_us", path.each_us),
        ("least_us", path.least_us),
        ("first_us", path.first_us),
        ("from_destination_us", path.from_destination_us),
        ("event_us", path.event_us),
        ("event_from_destination_us", path.event_from_destination_us),
    ] {
        number(&format!("{key}.{name}"), value, 0.0, LONGEST_US, "us")?;
    }
    Ok(())
}

pub(super) fn copy_fault(key: &str, fault: CopyFault) -> Checked {
    match fault {
        CopyFault::Slow { share: of } => share(&format!("{key}.slow.share"), of),
        CopyFault::Unstable { percent } => {
            number(&format!("{key}.unstable.percent"), percent, 0.0, 1000.0, "per cent")
        }
        CopyFault::Outliers { one_in, times } => {
            let key = |name: &str| format!("{key}.outliers.{name}");
            number(&key("times"), times, 1.0, MOST_TIMES, "")?;
            ensure!(one_in > 0, key("one_in"), "one copy in 0 is none");
            Ok(())
        }
        CopyFault::LateError { code, calls } => {
            error_code(&format!("{key}.late-error.code"), code)?;
            ensure!(
                calls > 0,
                format!("{key}.late-error.calls"),
                "the first call after the copy is number 1"
            );
            Ok(())
        }
        CopyFault::Corrupt { words: 0 } => {
            Err(problem(format!("{key}.corrupt.words"), "0 wrong words are no fault"))
        }
        CopyFault::Shifted { bytes: 0 } => {
            Err(problem(format!("{key}.shifted.bytes"), "a shift by 0 is no fault"))
        }
        CopyFault::LostLine { every: 0 } => {
            Err(problem(key, "one copy in none is lost: every must be at least 1"))
        }
        CopyFault::MissingTail { bytes: 0 } => {
            Err(problem(format!("{key}.missing-tail.bytes"), "0 missing bytes are no fault"))
        }
        _ => Ok(()),
    }
}

/// Checks a time in milliseconds.
pub(super) fn milliseconds(key: &str, value: f64) -> Checked {
    number(key, value, 0.0, LONGEST_MS, "ms")
}

/// Checks a time in microseconds.
pub(super) fn microseconds(key: &str, value: f64) -> Checked {
    number(key, value, 0.0, LONGEST_US, "us")
}

pub(super) fn error_code(key: &str, code: u32) -> Checked {
    ensure!(code != 0, key, "0 is CUDA's code for success");
    Ok(())
}
