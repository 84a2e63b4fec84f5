//! # What it means
//!
//! The run produced a figure that cannot be. It proves nothing about its path, which counts as not tested: the exit
//! code is 3.
//!
//! # What to do
//!
//! Check again. If it stays, the times that the driver gives are wrong: update the driver, see dmesg for Xid messages
//! of these GPUs, and please report it with the JSON report.
//!
//! # How it is detected
//!
//! A rate, share or time is not finite, negative, or beyond anything in a machine; it is set aside. Or a copy between
//! GPUs took less than `least_latency_us`.
//!
//! # Sources
//!
//! Small copies take 1.8 to 3.4 us over NVLink (H200, measured; cuda-samples issue 230), and a single read by a
//! kernel 0.54 us (GH200, nvbandwidth 0.9).

use super::prelude::*;

use model::cell::Measurement;
use model::measurement::Latency;

const LEAST: Parameter = Parameter {
    name: "least_latency_us",
    default: 0.1,
    about: "no small copy takes less, microseconds; chosen: a fifth of the shortest read by a kernel that is known",
};

pub(crate) const RULE: Rule =
    Rule::of_one("figure-impossible", Severity::Warning, judge).with(&[LEAST]).for_gaps();

fn judge(evidence: &Evidence<'_>) -> Option<Finding> {
    let measurements = evidence.measured();
    let least = RULE.parameter(evidence, &LEAST);
    let is_short =
        |cell: &&Latency| cell.cell().tested() && cell.latency_us.is_some_and(|us| us < least);
    let short: Vec<&Latency> = measurements.latency.iter().filter(is_short).collect();
    let impossible = measurements.impossible.iter();
    let figures = impossible.map(|figure| format!("{}: {}", figure.measurement, figure.why));
    let mut figures: Vec<String> = figures.collect();
    let shown = |cell: &&Latency| {
        let us = cell.latency_us.unwrap_or_default();
        format!(
            "latency, {}, {}: latency_us is {us}, and no copy is that short",
            cell.pair, cell.path
        )
    };
    figures.extend(short.iter().map(shown));
    let first = figures.first()?;
    let pairs = words::unique(short.iter().map(|cell| cell.pair));
    let flows = words::unique(measurements.impossible.iter().map(|figure| &figure.flow));
    let flows: Vec<String> = flows.into_iter().cloned().collect();
    let message = format!(
        "{} that cannot be, so it is not known what is reached there: {first}",
        words::count(figures.len(), "figure")
    );
    let find = [Step::UpdateDriver, Step::Xid, Step::SendReport];
    let plan = Plan::now([Step::CheckAgain]).if_it_stays(find);
    Some(
        RULE.finding(Subject::Machine, message, plan)
            .fact("figures", figures.len())
            .fact("first", first.clone())
            .fact("flows", (!flows.is_empty()).then_some(flows))
            .pairs(&pairs),
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::latency;
    use crate::testing::prelude::*;
    use model::impossible;

    #[test]
    fn a_rate_that_is_no_number_is_set_aside_and_makes_the_run_inconclusive() {
        let machine = h200_vm(3);
        for rate in [f64::INFINITY, f64::NAN, -3.0, 1e9] {
            let mut measurements = measured(&machine, 0.88);
            measurements.peer[2].achieved_gbps = Some(GbPerSecond(rate));
            impossible::set_aside(&mut measurements);
            assert_eq!(
                (measurements.peer[2].achieved_gbps, measurements.peer[2].ending.status),
                (None, Status::Skipped)
            );
            let found = findings(&machine, Some(&measurements));
            let own = found
                .iter()
                .find(|finding| finding.code == RULE.id)
                .unwrap_or_else(|| panic!("{rate}: {found:?}"));
            assert!(own.message.contains("achieved_gbps is"), "{}", own.message);
            assert_eq!(exit(&found, Some(&measurements)), 3, "{rate}");
        }
    }

    #[test]
    fn a_latency_that_no_copy_has_is_no_sign_of_health_and_a_short_one_is() {
        let machine = h200_vm(2);
        let mut measurements = measured(&machine, 0.88);
        measurements.latency =
            vec![latency(0, 1, Path::Direct, 0.004), latency(1, 0, Path::Direct, 1.2)];
        let found = findings(&machine, Some(&measurements));
        let own = only(&found, "figure-impossible", Severity::Warning);
        assert!(
            own.message.contains("GPU 0 → GPU 1") && own.message.contains("0.004"),
            "{}",
            own.message
        );
        assert_eq!(exit(&found, Some(&measurements)), 3);
        let may = ["update-driver", "xid"];
        assert_advice(&RULE, &found, &["send-report"], &may);
        measurements.latency.remove(0);
        assert_eq!(findings(&machine, Some(&measurements)), []);
    }
}
