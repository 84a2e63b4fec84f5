//! Plans the rounds of a run, and runs those that can run: by one process, and last by two.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::atomic::Ordering;

use super::super::scope::Scope;
use super::Run;
use model::measurement::{DriverFacts, Status};
use model::snapshot::Snapshot;
use probes::plan;
use probes::watch::Watch;
use probes::watch::counters::Counters;
use probes::{Outcome, Round};
use run::recording::Event;
use run::worker::supervisor::{self, Results};
use run::worker::{Launch, Listener, Worker, share};

impl Run<'_> {
    /// Plans the rounds, and runs those that can run. Returns the last worker.
    pub(super) fn run_rounds(
        &mut self,
        worker: Worker,
        launch: &Launch,
        facts: &DriverFacts,
        snapshot: &Snapshot,
    ) -> Option<Worker> {
        let gpus: Vec<u32> = snapshot.gpus.iter().map(|gpu| gpu.index).collect();
        let topology = topology::with_cuda(topology::build(snapshot), facts);
        let caches = snapshot.host.last_level_cache_bytes.get();
        let profile = self.scope.profile.clone().beyond_caches(caches, gpus.len());
        let request = probes::Request {
            gpus: &gpus,
            driver: facts,
            topology: &topology,
            profile: &profile,
            groups: &self.scope.groups,
            deadline: self.args.deadline,
            serial: self.args.serial,
        };
        let rounds = plan::rounds(&request);
        let rounds =
            if self.args.out.traced().is_some() { plan::follow(rounds, facts) } else { rounds };
        let Scope { profile, groups } = self.scope;
        let left_out = plan::left_out(&gpus, groups)
            .into_iter()
            .chain(plan::gpus_left_out(&gpus, groups, profile))
            .collect();
        let thinned_out = plan::thinned_out(&request)
            .into_iter()
            .chain(plan::load_left_out(&request, &rounds))
            .chain(plan::links_left_out(&request, &rounds))
            .chain(plan::addresses_left_out(&request, &rounds))
            .collect();
        self.follower.take(Event::Plan { rounds: rounds.clone(), left_out, thinned_out });
        let runnable = self.without_obstacles(&rounds, facts);
        // A link is under load only while something is copied.
        if let Some(telemetry) = self.facts.telemetry().filter(|_| !runnable.is_empty()) {
            let counters = Counters::new(telemetry, snapshot, &runnable);
            self.follower.counters = Some(counters.waiting(self.facts.given));
            let watch = Watch::start(telemetry, &gpus);
            watch
                .unwatched()
                .into_iter()
                .for_each(|why| self.follower.take(Event::Limited { why }));
            self.follower.watch = Some(watch);
            self.follower.take(Event::Watching { gpus: gpus.clone() });
        }
        self.follower.progress.measuring(runnable.len());
        let Results { interrupted, idle } = self.run_planned(worker, launch, &runnable);
        let idle = match idle {
            Some(worker) if !interrupted => {
                return self.look_again(worker, launch, &request, &rounds, snapshot);
            }
            idle => idle,
        };
        self.follower.take(Event::Measured { interrupted });
        idle
    }

    /// Runs the rounds of one process, and then those of two. One session runs all rounds of the one process: it knows
    /// what hung.
    pub(super) fn run_planned(
        &mut self,
        worker: Worker,
        launch: &Launch,
        rounds: &[Round],
    ) -> Results {
        let of_two: Vec<Round> = rounds.iter().filter(|round| round.is_shared()).cloned().collect();
        if of_two.is_empty() {
            return supervisor::run(worker, launch, rounds, &self.stop, &mut self.follower);
        }
        let of_one: Vec<Round> =
            rounds.iter().filter(|round| !round.is_shared()).cloned().collect();
        let results = supervisor::run(worker, launch, &of_one, &self.stop, &mut self.follower);
        if results.interrupted {
            self.interrupted(&of_two);
            return results;
        }
        self.follower.progress.goes_on_after(of_one.len());
        // Other processes copy these bytes, not this worker.
        let counters = self.follower.counters.take();
        self.of_two.extend(share::run(launch, &of_two, &self.stop, &mut self.follower));
        self.follower.counters = counters;
        self.follower.counters.iter_mut().for_each(Counters::lost);
        Results { interrupted: self.stop.load(Ordering::Relaxed), ..results }
    }

    /// Records rounds that were not run because the user stopped the run.
    fn interrupted(&mut self, rounds: &[Round]) {
        for round in rounds {
            let lost = Outcome::Lost { status: Status::Skipped, reason: "interrupted".to_owned() };
            self.follower.ends(round.id, &lost);
        }
    }

    /// Returns the rounds that can run, and records the others as skipped. Usually all can run, and then none is
    /// cloned.
    pub(super) fn without_obstacles<'r>(
        &mut self,
        rounds: &'r [Round],
        facts: &DriverFacts,
    ) -> Cow<'r, [Round]> {
        let obstacle = |round: &Round| Some((round.id, plan::obstacle(round, facts)?));
        let obstacles: BTreeMap<u32, String> = rounds.iter().filter_map(obstacle).collect();
        if obstacles.is_empty() {
            return Cow::Borrowed(rounds);
        }
        let runnable =
            rounds.iter().filter(|round| !obstacles.contains_key(&round.id)).cloned().collect();
        for (id, reason) in obstacles {
            self.follower.ends(id, &Outcome::Lost { status: Status::Skipped, reason });
        }
        Cow::Owned(runnable)
    }
}
