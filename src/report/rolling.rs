//! What the verdict of a run within a budget stands on.

use super::figures::count;
use super::page::Paint;
use model::rolling::Rolling;
use model::rounding::short;

/// Returns an age in words: `40 s`, `12 min`, `5.2 h`, `3.1 days`.
pub fn age(seconds: f64) -> String {
    match seconds {
        seconds if seconds < 120.0 => format!("{seconds:.0} s"),
        seconds if seconds < 7200.0 => format!("{:.0} min", seconds / 60.0),
        seconds if seconds < 172_800.0 => format!("{:.1} h", seconds / 3600.0),
        seconds => format!("{:.1} days", seconds / 86_400.0),
    }
}

/// Returns a sentence on the coverage, one for the parts under suspicion, and one for each problem.
pub(super) fn sentences(rolling: &Rolling) -> Vec<(Paint, String)> {
    let stands = match (rolling.never_covered, rolling.oldest_seconds, &rolling.oldest) {
        (0, Some(seconds), Some(part)) => format!(
            "the verdict of the machine stands on figures up to {} old ({part})",
            age(seconds)
        ),
        (0, ..) => "no part has a figure".to_owned(),
        (never, ..) => format!("{} never measured yet", count(never as usize, "part")),
    };
    let runs = count(rolling.all_within_runs as usize, "run");
    let first = format!(
        "Budget {} s, run {} of this ledger: {} of {} measured now; {stands}; every part within {runs}",
        short(rolling.budget_seconds),
        rolling.runs,
        rolling.covered_now,
        count(rolling.parts as usize, "part"),
    );
    let mut all = vec![(Paint::Plain, first)];
    if !rolling.suspected.is_empty() {
        let parts = rolling.suspected.join("; ");
        all.push((Paint::Warning, format!("Measured by every run until sound: {parts}")));
    }
    let problems = rolling.problems.iter();
    all.extend(problems.map(|problem| (Paint::Warning, format!("Ledger: {problem}"))));
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ages_have_the_unit_that_fits() {
        let ages = [5.0, 600.0, 9000.0, 300_000.0].map(age);
        assert_eq!(ages, ["5 s", "10 min", "2.5 h", "3.5 days"]);
    }
}
