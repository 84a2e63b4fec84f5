//! Outcomes by the numbers of their rounds.

use std::collections::HashMap;

use super::Outcome;

/// Outcomes by the numbers of their rounds. A plan numbers its rounds from 0 on: each has a place of its own, which takes an
/// eighth of the memory of a map. 256 GPUs have 130 thousand.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Outcomes {
    placed: Vec<Option<Outcome>>,
    /// Of numbers beyond the plan, which the journal of another program may have.
    others: HashMap<u32, Outcome>,
}

impl Outcomes {
    /// Makes room for the rounds of a plan.
    pub fn expect(&mut self, rounds: usize) {
        if rounds > self.placed.len() {
            self.placed.resize(rounds, None);
            std::mem::take(&mut self.others)
                .into_iter()
                .for_each(|(id, outcome)| self.insert(id, outcome));
        }
    }

    /// Takes the outcome of a round, in place of an earlier one.
    pub fn insert(&mut self, id: u32, outcome: Outcome) {
        match self.placed.get_mut(id as usize) {
            Some(place) => *place = Some(outcome),
            None => drop(self.others.insert(id, outcome)),
        }
    }

    /// The outcome of a round.
    pub fn get(&self, id: u32) -> Option<&Outcome> {
        match self.placed.get(id as usize) {
            Some(place) => place.as_ref(),
            None => self.others.get(&id),
        }
    }

    /// How many there are.
    #[allow(clippy::len_without_is_empty, reason = "nobody asks")]
    pub fn len(&self) -> usize {
        self.placed.iter().flatten().count() + self.others.len()
    }
}

impl FromIterator<(u32, Outcome)> for Outcomes {
    fn from_iter<T: IntoIterator<Item = (u32, Outcome)>>(outcomes: T) -> Self {
        Self {
            placed: Vec::new(),
            others: outcomes.into_iter().collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use model::measurement::Status;

    fn lost(reason: &str) -> Outcome {
        Outcome::Lost {
            status: Status::Skipped,
            reason: reason.into(),
        }
    }

    #[test]
    fn every_number_has_its_last_outcome_whether_planned_or_not() {
        let mut outcomes = Outcomes::default();
        for (id, reason) in [(1, "before the plan"), (7, "never planned"), (2, "first")] {
            outcomes.insert(id, lost(reason));
        }
        outcomes.expect(3);
        outcomes.insert(2, lost("second"));
        outcomes.insert(u32::MAX, lost("far away"));
        let found = [0, 1, 2, 3, 7, u32::MAX].map(|id| outcomes.get(id).cloned());
        let expected = [
            None,
            Some("before the plan"),
            Some("second"),
            None,
            Some("never planned"),
            Some("far away"),
        ];
        assert_eq!(found, expected.map(|reason| reason.map(lost)));
        assert_eq!(outcomes.len(), 4);
        outcomes.expect(1);
        assert_eq!(
            outcomes.get(2),
            Some(&lost("second")),
            "a shorter plan takes nothing away"
        );
    }

    #[test]
    fn an_outcome_is_small() {
        // There are as many as rounds: what only few have is boxed.
        assert!(
            size_of::<Option<Outcome>>() <= 40,
            "{}",
            size_of::<Option<Outcome>>()
        );
    }
}
