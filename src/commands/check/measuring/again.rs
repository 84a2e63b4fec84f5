//! Second measurements: copies that tell explanations apart.

use super::Run;
use diagnose::{Evidence, Settings};
use model::flow::Flow;
use model::snapshot::Snapshot;
use probes::Round;
use probes::plan;
use run::recording::{Event, Recorded};
use run::worker::supervisor::{self, Results};
use run::worker::{Launch, Worker};

impl Run<'_> {
    /// Measures what would tell apart the explanations of the figures so far, if these have several. Returns the last
    /// worker.
    pub(super) fn look_again(
        &mut self,
        worker: Worker,
        launch: &Launch,
        request: &probes::Request<'_>,
        after: &[Round],
        snapshot: &Snapshot,
    ) -> Option<Worker> {
        let looks = self.second_looks(snapshot);
        let rounds = plan::second_looks(request, &looks, after);
        if rounds.is_empty() {
            self.follower.take(Event::Measured { interrupted: false });
            return Some(worker);
        }
        let looks = rounds.iter().flat_map(|round| round.flows.clone()).collect();
        self.follower.take(Event::SecondLooks { looks, rounds: rounds.clone() });
        let runnable = self.without_obstacles(&rounds, request.driver);
        self.follower.progress.measuring(runnable.len());
        let Results { interrupted, idle } =
            supervisor::run(worker, launch, &runnable, &self.stop, &mut self.follower);
        self.follower.take(Event::Measured { interrupted });
        idle
    }

    /// Returns the copies that would tell explanations of the figures so far apart.
    fn second_looks(&self, snapshot: &Snapshot) -> Vec<Flow> {
        let Recorded { request, mut topology, mut measurements, .. } =
            self.follower.recorder.so_far();
        let settings = Settings::default();
        diagnose::complete_figures(snapshot, &mut topology, &mut measurements, &settings);
        diagnose::second_looks(&Evidence {
            request: &request,
            read_from: None,
            snapshot,
            topology: &topology,
            measurements: Some(&measurements),
            measured_seconds: 0.0,
            settings: &settings,
            expectations: None,
            baseline: None,
            index: None,
            beliefs: None,
        })
    }
}
