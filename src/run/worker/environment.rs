//! Handles environment variables that make the CUDA driver spoil measurements. The worker is started without them, and
//! the report names them.

use std::ffi::OsString;
use std::path::Path;
use std::process::Command;

use hardware::Machine;
use probes::Selection;

/// Variable that, set to anything but an empty text, leaves the others in place: compute-sanitizer and profilers reach
/// the worker through CUDA_INJECTION64_PATH.
const KEEP: &str = "PEERSCOPE_KEEP_CUDA_ENVIRONMENT";

/// Variable with the number of queues of a context, 8 without it. (CUDA C Programming Guide, CUDA environment variables.)
const QUEUES: &str = "CUDA_DEVICE_MAX_CONNECTIONS";

/// Variables that distort measurements. CUDA_LAUNCH_BLOCKING makes each call wait for its work, so that no gate can
/// hold a row of copies. CUDA_DEVICE_MAX_CONNECTIONS makes streams share queues, so that they wait for each other. The
/// injection paths load other code into the driver. The others stop a failing GPU for a debugger or write its memory to
/// disk: an error then looks like a hang. (CUDA C Programming Guide, CUDA environment variables; CUDA-GDB, GPU core
/// dump support.)
const DISTORTING: [&str; 8] = [
    "CUDA_LAUNCH_BLOCKING",
    QUEUES,
    "CUDA_INJECTION32_PATH",
    "CUDA_INJECTION64_PATH",
    "CUDA_DEVICE_WAITS_ON_EXCEPTION",
    "CUDA_ENABLE_COREDUMP_ON_EXCEPTION",
    "CUDA_ENABLE_USER_TRIGGERED_COREDUMP",
    "CUDA_ENABLE_LIGHTWEIGHT_COREDUMP",
];
/// Prefix of the names of all settings of GPU core dumps.
const CORE_DUMPS: &str = "CUDA_COREDUMP_";
/// Longest displayed value, characters.
const LONGEST: usize = 100;

/// Variable with the folder where MPS clients look for their daemon. A client that finds one joins the server's
/// context, with all other clients: they share its limits and, before Volta, its errors. (NVIDIA Multi-Process Service,
/// environment variables.)
const MPS_PIPE: &str = "CUDA_MPS_PIPE_DIRECTORY";
/// A path where no daemon can be: a client that finds none runs without.
const NO_MPS: &str = "/proc/peerscope-without-mps";
/// Variable that selects the GPUs that CUDA shows.
const VISIBLE: &str = "CUDA_VISIBLE_DEVICES";

/// Removes the variables from a worker, keeps it away from an MPS daemon, and lets its CUDA show these GPUs only. With
/// `queues`, its contexts have so many: the driver creates one with a single queue in half the time
/// (docs/dev/facts.md), which is enough for a process that does one thing at a time.
pub fn prepare(
    command: &mut Command,
    machine: &dyn Machine,
    visible: Option<&str>,
    queues: Option<u32>,
) {
    prepare_from(command, std::env::vars_os(), machine.mps_pipe(), queues);
    if let Some(visible) = visible {
        command.env(VISIBLE, visible);
    }
}

fn prepare_from(
    command: &mut Command,
    variables: impl Iterator<Item = (OsString, OsString)>,
    daemon: Option<&Path>,
    queues: Option<u32>,
) {
    let variables: Vec<_> = variables.collect();
    let kept = variables.iter().any(|(name, _)| name == QUEUES) && is_kept(&variables);
    for (name, _) in found(variables.into_iter(), daemon) {
        match name == MPS_PIPE {
            true => command.env(name, NO_MPS),
            false => command.env_remove(name),
        };
    }
    if let Some(queues) = queues.filter(|_| !kept) {
        command.env(QUEUES, queues.to_string());
    }
}

/// Returns true if the user wants the variables to stay.
fn is_kept(variables: &[(OsString, OsString)]) -> bool {
    let keep = |(name, value): &(OsString, OsString)| name == KEEP && !value.is_empty();
    variables.iter().any(keep)
}

/// Returns the value of CUDA_VISIBLE_DEVICES with which CUDA shows these GPUs only. Returns none if all existing GPUs
/// are wanted, one of them has no UUID, or the user has set the variable.
pub fn mask(selections: &[Selection], there: usize) -> Option<String> {
    mask_beside(selections, there, std::env::var_os(VISIBLE).is_some())
}

fn mask_beside(selections: &[Selection], there: usize, users: bool) -> Option<String> {
    if users || selections.is_empty() || selections.len() >= there {
        return None;
    }
    only(selections)
}

/// Returns the value of CUDA_VISIBLE_DEVICES with which CUDA shows these GPUs only. Returns none if one of them has no
/// UUID.
fn only(selections: &[Selection]) -> Option<String> {
    let plain = |uuid: &&str| {
        uuid.starts_with("GPU-")
            && uuid.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-')
    };
    let uuids: Option<Vec<_>> = selections
        .iter()
        .map(|selection| selection.uuid.as_deref().filter(|uuid| plain(uuid)))
        .collect();
    Some(uuids?.join(","))
}

/// Returns the variables that workers are started without, as `NAME=value`.
pub fn removed(machine: &dyn Machine) -> Vec<String> {
    let shown = |(name, value): (OsString, OsString)| {
        let value: String = value.to_string_lossy().chars().take(LONGEST).collect();
        format!("{}={value}", name.to_string_lossy())
    };
    found(std::env::vars_os(), machine.mps_pipe()).into_iter().map(shown).collect()
}

/// Returns those of these variables that are removed or changed, sorted by name. Includes the variable of the MPS
/// daemon even if it is unset, when a daemon is at `daemon`, the default place.
fn found(
    variables: impl Iterator<Item = (OsString, OsString)>,
    daemon: Option<&Path>,
) -> Vec<(OsString, OsString)> {
    let mut variables: Vec<_> =
        variables.filter(|(name, value)| name != MPS_PIPE || !value.is_empty()).collect();
    if let Some(daemon) = daemon
        && variables.iter().all(|(name, _)| name != MPS_PIPE)
    {
        variables.push((MPS_PIPE.into(), daemon.into()));
    }
    if is_kept(&variables) {
        return Vec::new();
    }
    let distorts = |name: &OsString| {
        name == MPS_PIPE
            || DISTORTING.iter().any(|distorting| name == distorting)
            || name.to_string_lossy().starts_with(CORE_DUMPS)
    };
    let mut found: Vec<_> = variables.into_iter().filter(|(name, _)| distorts(name)).collect();
    found.sort();
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(set: &[(&str, &str)]) -> Vec<String> {
        let variables =
            set.iter().map(|(name, value)| (OsString::from(name), OsString::from(value)));
        found(variables, None).into_iter().map(|(name, _)| name.into_string().unwrap()).collect()
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
        assert_eq!(
            names(&set),
            ["CUDA_COREDUMP_FILE", "CUDA_INJECTION64_PATH", "CUDA_LAUNCH_BLOCKING"]
        );
        assert_eq!(names(&[&set[..], &[(KEEP, "1")]].concat()), [""; 0]);
        assert_eq!(names(&[&set[1..2], &[(KEEP, "")]].concat()), ["CUDA_LAUNCH_BLOCKING"]);
    }

    #[test]
    fn an_mps_daemon_is_kept_away_from_where_there_is_one() {
        let all = |set: &[(&str, &str)], daemon: Option<&str>| {
            let variables =
                set.iter().map(|(name, value)| (OsString::from(name), OsString::from(value)));
            let found = found(variables, daemon.map(Path::new));
            found.into_iter().map(|(_, value)| value.into_string().unwrap()).collect::<Vec<_>>()
        };
        assert_eq!(all(&[], None), [""; 0]);
        assert_eq!(all(&[], Some("/tmp/nvidia-mps")), ["/tmp/nvidia-mps"]);
        // An empty value means the default.
        assert_eq!(all(&[(MPS_PIPE, "")], Some("/tmp/nvidia-mps")), ["/tmp/nvidia-mps"]);
        assert_eq!(all(&[(MPS_PIPE, "/run/mps")], Some("/tmp/nvidia-mps")), ["/run/mps"]);
        assert_eq!(all(&[(MPS_PIPE, "/run/mps"), (KEEP, "1")], None), [""; 0]);
    }

    #[test]
    fn cuda_shows_the_chosen_gpus_and_what_the_user_has_chosen() {
        let named = |uuids: &[Option<&str>]| -> Vec<Selection> {
            let selection = |uuid: &Option<&str>| Selection {
                uuid: uuid.map(Into::into),
                ..Selection::default()
            };
            uuids.iter().map(selection).collect()
        };
        let two = named(&[Some("GPU-1a"), Some("GPU-2b-3")]);
        assert_eq!(mask_beside(&two, 4, false).as_deref(), Some("GPU-1a,GPU-2b-3"));
        assert_eq!(mask_beside(&two, 2, false), None, "all there are");
        assert_eq!(mask_beside(&two, 4, true), None, "the user's own stays");
        assert_eq!(mask_beside(&named(&[Some("GPU-1a"), None]), 4, false), None);
        assert_eq!(
            mask_beside(&named(&[Some("GPU-1a,GPU-7")]), 4, false),
            None,
            "no list in a name"
        );
        assert_eq!(mask_beside(&[], 4, false), None);
    }

    #[test]
    fn the_users_queues_give_way_to_those_of_a_process_unless_they_are_kept() {
        // None: left alone. Some(None): removed.
        let queues = |set: &[(&str, &str)], queues| {
            let mut command = Command::new("true");
            let variables =
                set.iter().map(|(name, value)| (OsString::from(name), OsString::from(value)));
            prepare_from(&mut command, variables, None, queues);
            let set = command.get_envs().find(|(name, _)| *name == QUEUES);
            set.map(|(_, value)| value.map(OsString::from))
        };
        let one = Some(Some(OsString::from("1")));
        let users = (QUEUES, "16");
        assert_eq!(queues(&[], None), None);
        assert_eq!(queues(&[], Some(1)), one);
        assert_eq!(queues(&[users], None), Some(None));
        assert_eq!(queues(&[users], Some(1)), one);
        assert_eq!(queues(&[users, (KEEP, "1")], Some(1)), None);
        assert_eq!(queues(&[(KEEP, "1")], Some(1)), one);
    }
}
