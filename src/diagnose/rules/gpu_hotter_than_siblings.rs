//! # What it means
//!
//! A GPU is clearly hotter than its siblings under the same load. It loses clocks first and ages faster.
//!
//! # What to do
//!
//! Look at fans, dust, filters and blanking plates near it, or at loop and cold plate of liquid cooling. GPUs further
//! along the air are warmer by design: compare with a machine of the same kind. Then repeat the hours.
//!
//! # How it is detected
//!
//! In hours under load all GPUs run the same rounds. Its mean temperature over the last minutes (`measurements.soak`)
//! lies above the median of its model by more than `above_siblings_count`.
//!
//! # Sources
//!
//! Public reports of air-cooled servers: GPUs in the second row of the air are 5 to 8 degrees warmer.

use super::over_time;
use super::prelude::*;

rule! {
    "gpu-hotter-than-siblings", Warning, All(judge);
    /// how much warmer than the median of its model, degrees Celsius; chosen: more than the place in the air accounts
    /// for
    DEGREES: above_siblings_count = 12.0;
}

fn judge(evidence: &Evidence<'_>) -> Vec<Finding> {
    let soak = over_time::soak(evidence);
    let last = |gpu| Some((gpu, over_time::of_gpu(soak, gpu, |own| own.temperature_c)?.last));
    let warm: Vec<(u32, f64)> = soak.gpus().into_iter().filter_map(last).collect();
    let model = |gpu: u32| evidence.snapshot.model_of(gpu);
    let most = DEGREES.of(evidence);
    let of = |(gpu, celsius): &(u32, f64)| {
        let is_sibling = |other: u32| other != *gpu && model(other) == model(*gpu);
        let mut siblings: Vec<f64> = warm
            .iter()
            .filter(|(other, _)| is_sibling(*other))
            .map(|(_, celsius)| *celsius)
            .collect();
        siblings.sort_by(f64::total_cmp);
        // The lower one of two in the middle: with two siblings, a hot one does not hide another.
        let middle = *siblings.get(siblings.len().checked_sub(1)? / 2)?;
        let above = celsius - middle;
        if above <= most {
            return None;
        }
        let steady = soak.thermal_of(*gpu).and_then(|thermal| thermal.steady_from_s);
        let others = match siblings.len() {
            1 => "other GPU".to_owned(),
            many => format!("median of {many} others"),
        };
        let message = format!(
            "{} is at {celsius:.0} °C under load, {above:.0} degrees above the {others} of its model",
            evidence.name(*gpu),
        );
        let steps = [Step::Cooling, Step::CompareAlike, Step::CheckAgain];
        let found = RULE
            .finding(Subject::Gpu { index: *gpu }, message, steps)
            .fact("steady_from", steady.map(Fact::Seconds));
        Some(found)
    };
    warm.iter().filter_map(of).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::prelude::*;

    fn hot(gpus: &[u32], by: f64) -> Vec<Finding> {
        over_time::testing::after(over_time::testing::hour(
            8,
            |_, _| 395.0,
            |gpu, _, own| {
                if gpus.contains(&gpu) {
                    own.temperature_c = Some(60.0 + by);
                }
            },
        ))
    }

    #[test]
    fn one_hot_gpu_is_named_and_a_warmer_row_is_not() {
        let all = hot(&[7], 15.0);
        let found = only(&all, "gpu-hotter-than-siblings", Severity::Warning);
        assert_eq!(found.subject, Subject::Gpu { index: 7 });
        assert_advice(&RULE, &all, &["cooling"], &["compare", "check-again"]);
        assert_eq!(hot(&[4, 5, 6, 7], 8.0), []);
        assert_eq!(hot(&[0, 1, 2, 3, 4, 5, 6, 7], 25.0), []);
    }
}
