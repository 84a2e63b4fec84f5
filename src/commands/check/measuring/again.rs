//! Second measurements: parts with findings, within a budget, and copies that tell explanations apart.

use super::super::super::Observed;
use super::Run;
use diagnose::{Evidence, Settings};
use model::finding::Finding;
use model::flow::Flow;
use model::measurement::SecondLook;
use model::snapshot::Snapshot;
use plan::{self, Round};
use recording::{Event, Recorded};
use worker::Worker;
use worker::start::Launch;
use worker::supervisor::{self, Results};

impl Run<'_> {
    /// Runs the rounds of parts with findings once more: the later outcome of a round counts. Returns the last worker.
    pub(super) fn confirm(
        &mut self,
        worker: Worker,
        launch: &Launch,
        rounds: &[Round],
    ) -> Option<Worker> {
        let of_facts = self.findings(false);
        if let Some(budget) = &mut self.budget {
            budget.known(of_facts);
        }
        let first = self.findings(true);
        let suspects = self.budget.as_ref().map(|budget| budget.suspects(&first, rounds));
        let suspects = suspects.unwrap_or_default();
        if suspects.is_empty() {
            self.follower.take(Event::Measured { interrupted: false });
            return Some(worker);
        }
        self.follower.progress.measuring(suspects.len());
        let Results { interrupted, idle } = self.run_planned(worker, launch, &suspects);
        self.follower.take(Event::Measured { interrupted });
        let second = self.findings(true);
        if let Some(budget) = self.budget.as_mut().filter(|_| !interrupted) {
            budget.looked_again(&first, &second);
        }
        idle
    }

    /// Returns the findings so far, of facts and figures or of facts alone.
    fn findings(&self, with_figures: bool) -> Vec<Finding> {
        let Some((judging, began)) = self.judged else {
            return Vec::new();
        };
        let recorded = self.follower.recorder.so_far();
        let (at, machine) = (began.at.clone(), began.machine.clone());
        let observed = Observed::recorded(began.clock, at, machine, recorded);
        let measurements = observed.measurements.clone().filter(|_| with_figures);
        let observed = Observed { measurements, ..observed };
        observed.conclude(judging).findings
    }

    /// Measures what would tell apart the explanations of the figures so far, if these have several. Returns the last
    /// worker.
    pub(super) fn look_again(
        &mut self,
        worker: Worker,
        launch: &Launch,
        request: &plan::Request<'_>,
        after: &[Round],
        snapshot: &Snapshot,
    ) -> Option<Worker> {
        let looks = self.second_looks(snapshot);
        let flows: Vec<&[Flow]> = looks.iter().map(|look| look.flows.as_slice()).collect();
        let rounds = plan::second_looks(request, &flows, after);
        let (looks, rounds): (Vec<SecondLook>, Vec<Round>) =
            looks.into_iter().zip(rounds).filter_map(|(look, round)| Some((look, round?))).unzip();
        if rounds.is_empty() {
            self.follower.take(Event::Measured { interrupted: false });
            return Some(worker);
        }
        self.follower.take(Event::SecondLooks { looks, rounds: rounds.clone() });
        let runnable = self.without_obstacles(&rounds, request.driver);
        self.follower.progress.measuring(runnable.len());
        let Results { interrupted, idle } =
            supervisor::run(worker, launch, &runnable, &self.stop, &mut self.follower);
        self.follower.take(Event::Measured { interrupted });
        idle
    }

    /// Returns the copies that would tell explanations of the figures so far apart.
    fn second_looks(&self, snapshot: &Snapshot) -> Vec<SecondLook> {
        let Recorded { request, topology, measurements, .. } = self.follower.recorder.so_far();
        diagnose::second_looks(&Evidence {
            request: &request,
            read_from: None,
            snapshot,
            topology: &topology,
            measurements: Some(&measurements),
            bracket: None,
            measured_seconds: 0.0,
            settings: &Settings::default(),
            expectations: None,
            baseline: None,
            index: None,
            beliefs: None,
        })
    }
}
