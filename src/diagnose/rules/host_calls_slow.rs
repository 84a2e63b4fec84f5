//! # What it means
//!
//! Calls that only enqueue a copy block the host for very long. Figures are not those of normal use: the exit code is
//! 3.
//!
//! # What to do
//!
//! Check again without debugger, profiler or compute-sanitizer, and with idle processors (top). Virtual machine: ask
//! its host if processors are overcommitted or accesses to the GPU intercepted. Look at power saving of the
//! processors (cpupower frequency-info).
//!
//! # How it is detected
//!
//! The median `host_blocked_us` of non-blocking copies (copy engine, with peer access) is above `most_us`.
//!
//! # Sources
//!
//! 3 to 15 us for most calls (2, 4 and 8 x H200, virtual machines, measured); 2 to 10 us (cuda-samples issue 230).

use super::prelude::*;
use model::placement::HostMode;

rule! {
    "host-calls-slow", Warning, One(judge), for_gaps;
    /// most for a call that enqueues a direct copy; chosen: thirteen times the 39 of the slowest healthy one that is
    /// known
    MOST: most_us = 500.0;
}

fn judge(evidence: &Evidence<'_>) -> Option<Finding> {
    let only_enqueued = |cell: &&PeerBandwidth| {
        let setup = cell.setup;
        setup.path == Path::Direct
            && setup.engine == Engine::Copy
            && setup.placement.host == HostMode::NonBlocking
    };
    let cells = evidence.peer().iter().filter(|cell| cell.cell().tested()).filter(only_enqueued);
    let mut times: Vec<f64> = cells.filter_map(|cell| cell.host_blocked_us).collect();
    times.sort_by(f64::total_cmp);
    let middle = times.get(times.len() / 2).copied()?;
    let most = MOST.of(evidence);
    if middle <= most {
        return None;
    }
    let message = format!(
        "The host takes {} us to enqueue a copy, usual are 3 to 15; something slows the host or stands between it and \
         the driver, and says nothing of the paths between the GPUs",
        short(middle)
    );
    let is_bare = evidence.snapshot.host.virtual_machine.get() == Some(false);
    let plan = Plan::now([Step::Stop(Work::Tools), Step::PowerSaving, Step::CheckAgain])
        .if_it_stays((!is_bare).then_some(Step::AskHost(Ask::Processors)));
    Some(RULE.on_machine(message, plan).fact("median_us", Fact::figure(middle)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::prelude::*;

    fn with_host_us(us: f64) -> (model::snapshot::Snapshot, Measurements) {
        let machine = h200_vm(3);
        let mut measurements = measured(&machine, 0.88);
        measurements.peer.iter_mut().for_each(|cell| cell.host_blocked_us = Some(us));
        (machine, measurements)
    }

    #[test]
    fn calls_of_45_ms_are_found_and_make_the_run_inconclusive() {
        let (machine, measurements) = with_host_us(45_000.0);
        let found = findings(&machine, Some(&measurements));
        assert_eq!(only(&found, "host-calls-slow", Severity::Warning).subject, Subject::Machine);
        assert_eq!(exit(&found, Some(&measurements)), 3);
    }

    #[test]
    fn what_healthy_machines_show_is_not_and_neither_is_a_call_that_waits() {
        for us in [3.0, 15.0, 39.0, 100.0] {
            let (machine, measurements) = with_host_us(us);
            assert_eq!(findings(&machine, Some(&measurements)), [], "{us}");
        }
        let (machine, mut measurements) = with_host_us(9.0);
        measurements.peer[1].host_blocked_us = Some(45_000.0);
        assert_eq!(findings(&machine, Some(&measurements)), [], "one call that was interrupted");
        let (machine, mut measurements) = with_host_us(4_000.0);
        measurements
            .peer
            .iter_mut()
            .for_each(|cell| cell.setup.placement.host = HostMode::Blocking);
        assert_eq!(findings(&machine, Some(&measurements)), []);
    }
}
