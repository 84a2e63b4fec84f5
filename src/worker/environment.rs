//! Variables that change what the CUDA driver does in a way that spoils measurements. The worker is
//! started without them, and the report names them.

use std::ffi::OsString;
use std::process::Command;

/// Set to anything but an empty text, it leaves them in place: compute-sanitizer and profilers reach
/// the worker through CUDA_INJECTION64_PATH.
const KEEP: &str = "PEERSCOPE_KEEP_CUDA_ENVIRONMENT";

/// CUDA_LAUNCH_BLOCKING makes each call wait for its work, so that no gate can hold a row of copies;
/// CUDA_DEVICE_MAX_CONNECTIONS makes streams share queues, so that they wait for each other; the
/// injection paths load other code into the driver; the others stop a failing GPU for a debugger or
/// write its memory to disk, so that an error looks like a hang. (CUDA C Programming Guide, CUDA
/// environment variables; CUDA-GDB, GPU core dump support.)
const DISTORTING: [&str; 8] = [
    "CUDA_LAUNCH_BLOCKING",
    "CUDA_DEVICE_MAX_CONNECTIONS",
    "CUDA_INJECTION32_PATH",
    "CUDA_INJECTION64_PATH",
    "CUDA_DEVICE_WAITS_ON_EXCEPTION",
    "CUDA_ENABLE_COREDUMP_ON_EXCEPTION",
    "CUDA_ENABLE_USER_TRIGGERED_COREDUMP",
    "CUDA_ENABLE_LIGHTWEIGHT_COREDUMP",
];
/// The names of all settings of GPU core dumps begin so.
const CORE_DUMPS: &str = "CUDA_COREDUMP_";
/// Longest value that is shown, characters.
const LONGEST: usize = 100;

/// Takes the variables from a worker.
pub fn clean(command: &mut Command) {
    for (name, _) in found(std::env::vars_os()) {
        command.env_remove(name);
    }
}

/// The variables that workers are started without, as `NAME=value`.
pub fn removed() -> Vec<String> {
    let shown = |(name, value): (OsString, OsString)| {
        let value: String = value.to_string_lossy().chars().take(LONGEST).collect();
        format!("{}={value}", name.to_string_lossy())
    };
    found(std::env::vars_os()).into_iter().map(shown).collect()
}

/// Those of these variables that are taken away, by name.
fn found(variables: impl Iterator<Item = (OsString, OsString)>) -> Vec<(OsString, OsString)> {
    let variables: Vec<_> = variables.collect();
    if variables.iter().any(|(name, value)| name == KEEP && !value.is_empty()) {
        return Vec::new();
    }
    let distorts = |name: &OsString| {
        DISTORTING.iter().any(|distorting| name == distorting) || name.to_string_lossy().starts_with(CORE_DUMPS)
    };
    let mut found: Vec<_> = variables.into_iter().filter(|(name, _)| distorts(name)).collect();
    found.sort();
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(set: &[(&str, &str)]) -> Vec<String> {
        let variables = set.iter().map(|(name, value)| (OsString::from(name), OsString::from(value)));
        found(variables).into_iter().map(|(name, _)| name.into_string().unwrap()).collect()
    }

    #[test]
    fn what_changes_the_driver_goes_and_all_else_stays() {
        let set = [
            ("CUDA_VISIBLE_DEVICES", "1"),
            ("CUDA_LAUNCH_BLOCKING", "1"),
            ("CUDA_COREDUMP_FILE", "/tmp/core"),
            ("CUDA_CACHE_DISABLE", "1"),
            ("CUDA_DEVICE_ORDER", "PCI_BUS_ID"),
            ("CUDA_INJECTION64_PATH", ""),
            ("LD_PRELOAD", "libsanitizer.so"),
        ];
        assert_eq!(names(&set), ["CUDA_COREDUMP_FILE", "CUDA_INJECTION64_PATH", "CUDA_LAUNCH_BLOCKING"]);
        assert_eq!(names(&[&set[..], &[(KEEP, "1")]].concat()), [""; 0]);
        assert_eq!(names(&[&set[1..2], &[(KEEP, "")]].concat()), ["CUDA_LAUNCH_BLOCKING"]);
    }
}
