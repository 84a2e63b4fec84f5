//! The start of the driver, and what is recorded of it.

use std::sync::Arc;

use super::super::super::devices::{selections, with_unidentified};
use super::Run;
use hardware::{ErrorKind, HardwareError};
use model::measurement::{DriverFacts, Hindrance};
use model::snapshot::Snapshot;
use run::recording::Event;
use run::worker::start::{self, Ready, StartError};
use run::worker::{Launch, Listener, Worker, environment};

impl Run<'_> {
    /// Waits for the driver. If it does not start, records that and returns none.
    pub(super) fn open(
        &mut self,
        worker: Result<Worker, HardwareError>,
        snapshot: &Snapshot,
    ) -> Option<(Worker, Launch, DriverFacts)> {
        let mut launch = Launch {
            machine: Arc::clone(self.machine),
            selections: selections(snapshot),
            memory_limit: self.args.buffers(),
            start_limit: self.start_limit,
            there: self.there,
            unmasked: false,
        };
        if launch.selections.is_empty() {
            // The snapshot contains the reason for the missing GPUs; the driver would only repeat it.
            let failure = snapshot.problems.first().cloned();
            let devices = with_unidentified(Vec::new(), snapshot);
            let facts = DriverFacts { failure, devices, ..DriverFacts::default() };
            self.driver(0.0, facts);
            return None;
        }
        let opened = start::start(worker, &mut launch, &self.stop, &mut Launch::spawn);
        let Ready { worker, facts, floor_seconds, problems, .. } = match opened {
            Ok(ready) => ready,
            Err(StartError::Failed(HardwareError { message: why, code: failure_code, kind })) => {
                let hindrance = (kind == ErrorKind::Hindered).then_some(Hindrance::ProcessLimit);
                let facts = DriverFacts {
                    failure: Some(why),
                    failure_code,
                    hindrance,
                    ..DriverFacts::default()
                };
                self.driver(0.0, facts);
                return None;
            }
            Err(StartError::Late(why)) => {
                let facts = DriverFacts { failure: Some(why), ..DriverFacts::default() };
                self.driver(0.0, facts);
                return None;
            }
            Err(StartError::Interrupted) => {
                self.driver(0.0, DriverFacts::default());
                self.follower.take(Event::Measured { interrupted: true });
                return None;
            }
        };
        let devices = with_unidentified(facts.devices, snapshot);
        let facts = DriverFacts { devices, start_seconds: Some(floor_seconds), ..facts };
        let facts = self.driver(floor_seconds, facts);
        problems.iter().for_each(|problem| self.follower.problem(problem));
        Some((worker, launch, facts))
    }

    /// Records the facts that the driver reported, and the variables it was started without.
    fn driver(&mut self, floor_seconds: f64, facts: DriverFacts) -> DriverFacts {
        let facts = DriverFacts {
            environment_removed: environment::removed(self.machine.as_ref()),
            ..facts
        };
        self.follower.take(Event::Driver { floor_seconds, facts: facts.clone() });
        facts
    }
}
