//! Reports of before codes were kept beside sentences: what decides something is found in the sentences
//! once, when such a report is read, and nowhere else.

use super::measurement::{DriverFacts, Hidden};
use super::report::Report;

/// NVML's return code for a kernel module and a library of different versions.
pub const NVML_VERSION_MISMATCH: u32 = 18;

/// The driver's code for a fabric that is not ready (`CUDA_ERROR_SYSTEM_NOT_READY`).
pub const CUDA_SYSTEM_NOT_READY: u32 = 802;

/// The driver's code for more peers than a GPU may have at a time (`CUDA_ERROR_TOO_MANY_PEERS`).
pub const CUDA_TOO_MANY_PEERS: u32 = 711;

/// Puts the codes into their fields where a report has them in sentences alone.
pub fn recover(report: &mut Report) {
    let snapshot = &mut report.snapshot;
    if snapshot.problems.iter().any(|problem| problem.contains("kernel module and NVML library disagree (18)")) {
        snapshot.nvml_failure_code = Some(NVML_VERSION_MISMATCH);
    }
    let Some(measurements) = &mut report.measurements else { return };
    let DriverFacts { failure, failure_code, devices, peer_access, .. } = &mut measurements.driver;
    fill(failure_code, failure.as_deref());
    for device in devices {
        let why = device.failure.as_deref();
        fill(&mut device.failure_code, why);
        if let Some(why) = why.and_then(|why| why.strip_prefix("CUDA does not show this GPU")) {
            let masked = why.starts_with(", CUDA_VISIBLE_DEVICES is");
            device.hidden = device.hidden.or(Some(if masked { Hidden::Masked } else { Hidden::Unexplained }));
        }
    }
    for access in peer_access {
        fill(&mut access.failure_code, access.failure.as_deref());
    }
}

fn fill(code: &mut Option<u32>, sentence: Option<&str>) {
    *code = code.or_else(|| sentence.and_then(code_in));
}

/// The code in `cuInit: system not yet initialized (CUDA_ERROR_SYSTEM_NOT_READY, 802); ...`, in
/// `cuInit: CUDA error (4711)`, or in `cuInit: not ready (CUDA error 802)`.
fn code_in(sentence: &str) -> Option<u32> {
    let inside = |part: &str| Some(part.split_once(')')?.0.to_owned());
    let number = |text: String| {
        let digits = text.strip_prefix("CUDA").map_or(Some(text.as_str()), |rest| rest.rsplit([' ', ',']).next());
        digits?.parse().ok()
    };
    sentence.split('(').skip(1).filter_map(inside).find_map(number)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_are_found_where_older_versions_wrote_them_and_nowhere_else() {
        for (sentence, code) in [
            ("cuInit: system not yet initialized (CUDA_ERROR_SYSTEM_NOT_READY, 802); see systemctl (x)", Some(802)),
            ("cuInit: CUDA error (4711)", Some(4711)),
            ("cuCtxEnablePeerAccess: too many peers (CUDA error 711)", Some(711)),
            ("the CUDA driver did not start within 802 s", None),
            ("the worker process ended (signal 9): 802", None),
            ("", None),
        ] {
            assert_eq!(code_in(sentence), code, "{sentence}");
        }
    }
}
