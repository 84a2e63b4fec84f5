//! Steps in stages.

use super::arguments::Work;
use super::vocabulary::Step;
use model::step::{self, When};

/// The steps of a finding, in the order in which they are taken.
#[derive(Debug, Clone, Default)]
pub(crate) struct Plan(Vec<step::Step>);

impl Plan {
    /// Returns a plan of steps to take at once.
    pub(crate) fn now(steps: impl IntoIterator<Item = Step>) -> Self {
        Self::default().then(steps)
    }

    /// Returns a plan to check again without other work.
    pub(crate) fn check_without(work: Work) -> Self {
        Self::now([Step::Stop(work), Step::CheckAgain])
    }

    /// Returns a plan of ways to run safely until the repair, of which one is enough.
    pub(crate) fn until_repair(steps: impl IntoIterator<Item = Step>) -> Self {
        Self::default().and(When::UntilRepair, steps)
    }

    /// Adds steps to take if those so far have not helped.
    #[must_use]
    pub(crate) fn if_it_stays(self, steps: impl IntoIterator<Item = Step>) -> Self {
        self.and(When::IfItStays, steps)
    }

    /// Adds further steps.
    #[must_use]
    pub(crate) fn then(self, steps: impl IntoIterator<Item = Step>) -> Self {
        self.and(When::Now, steps)
    }

    /// Adds steps to take if those so far do not apply.
    #[must_use]
    pub(crate) fn otherwise(self, steps: impl IntoIterator<Item = Step>) -> Self {
        self.and(When::Otherwise, steps)
    }

    /// Adds steps to a stage.
    #[must_use]
    pub(crate) fn and(mut self, when: When, steps: impl IntoIterator<Item = Step>) -> Self {
        self.0.extend(steps.into_iter().map(|step| step.recorded(when)));
        self.0.sort_by_key(|step| step.when);
        self
    }

    /// Adds the steps that a finding has, in their stages, after these, unless they are among these.
    #[must_use]
    pub(crate) fn beside(mut self, others: Vec<step::Step>) -> Self {
        let is_new = |step: &step::Step| {
            let same = |own: &step::Step| own.id == step.id && own.text == step.text;
            !self.0.iter().any(same)
        };
        let new: Vec<_> = others.into_iter().filter(is_new).collect();
        self.0.extend(new);
        self.0.sort_by_key(|step| step.when);
        self
    }

    /// Adds the steps that a finding has for the case that these do not help.
    #[must_use]
    pub(crate) fn before(self, mut later: Vec<step::Step>) -> Self {
        for step in later.iter_mut().filter(|step| step.when == When::Now) {
            step.when = When::IfItStays;
        }
        self.beside(later)
    }
}

impl From<Plan> for Vec<step::Step> {
    fn from(plan: Plan) -> Self {
        plan.0
    }
}

impl<const N: usize> From<[Step; N]> for Plan {
    fn from(steps: [Step; N]) -> Self {
        Self::now(steps)
    }
}

impl From<Vec<Step>> for Plan {
    fn from(steps: Vec<Step>) -> Self {
        Self::now(steps)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_step_that_a_plan_has_is_not_added_again() {
        let later = || Plan::now([Step::DriverLog, Step::ReloadDriver, Step::CheckAgain]);
        let plan = Plan::now([Step::Above4G, Step::CheckAgain]).before(later().into());
        let text = step::sentences(&Vec::from(plan));
        assert_eq!(text.matches("check again").count(), 1, "{text}");
        assert!(text.contains(". If it stays: look for"), "{text}");
        let plan = Plan::now([Step::CheckAgain]).beside(later().into());
        let text = step::sentences(&Vec::from(plan));
        assert_eq!(text.to_lowercase().matches("check again").count(), 1, "{text}");
    }
}
