//! Second measurements: copies that tell explanations apart.

use super::Run;
use diagnose::{Evidence, Settings};
use model::flow::Flow;
use model::measurement::SecondLook;
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
            watched: None,
            measured_seconds: 0.0,
            settings: &settings,
            expectations: None,
            baseline: None,
            index: None,
            beliefs: None,
        })
    }
}
