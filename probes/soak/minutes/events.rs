//! The events of a soak, such as crashes, Xid errors and programs that began.

use crate::soak::minutes::{Minutes, tenths};
use model::broken_off::{Again, BrokenOff, How};
use model::snapshot::GpuProcess;
use model::soak::{EventKind, SoakEvent, SoakPath};

impl Minutes {
    /// Takes a round that broke off and is tried again, and the result of that.
    pub fn broke_off(&mut self, broken: &BrokenOff) {
        let again = match &broken.again {
            Again::BrokeOff(again) => Some(again),
            Again::NotRun { .. } | Again::Worked => None,
        };
        let news = match self.crashed.contains(&broken.round) {
            true => again,
            false => Some(&broken.first),
        };
        let Some(crash) = news.filter(|one| one.how == How::Crashed) else {
            return;
        };
        self.crashed.insert(broken.round);
        let own = self.rounds.get(&broken.round);
        let first = own.and_then(|own| own.first());
        let first = first.and_then(|(_, path)| u32::try_from(*path).ok());
        let path = first.and_then(|path| self.paths.get(path as usize));
        let name = path.map_or_else(|| broken.measurement.clone(), SoakPath::name);
        let what = format!("{name}: {}", crash.reason);
        self.happened(EventKind::Crashed, None, first, what);
    }

    /// Notes an Xid error of a GPU, each code once in a minute.
    pub(crate) fn reported(&mut self, gpu: u32, xid: u32) {
        if !self.seen_xids.insert((gpu, xid)) {
            return;
        }
        self.push(SoakEvent {
            at_s: tenths(self.seconds()),
            kind: EventKind::Xid,
            gpu: Some(gpu),
            path: None,
            function: None,
            xid: Some(xid),
            what: format!("the driver reported Xid {xid} of GPU {gpu}"),
        });
    }

    /// Notes a problem outside single rounds.
    pub fn problem(&mut self, what: &str) {
        self.happened(EventKind::Problem, None, None, what.to_owned());
    }

    /// Notes an event, once in a minute for each kind and part of the machine.
    pub(crate) fn happened(
        &mut self,
        kind: EventKind,
        gpu: Option<u32>,
        path: Option<u32>,
        what: String,
    ) {
        if kind != EventKind::Problem && !self.seen.insert((kind, gpu, path)) {
            return;
        }
        self.push(SoakEvent {
            at_s: tenths(self.seconds()),
            kind,
            gpu,
            path,
            function: None,
            xid: None,
            what,
        });
    }

    pub(crate) fn push(&mut self, event: SoakEvent) {
        self.has_fault |= event.is_fault();
        self.events.push(event);
    }

    /// Returns the events since the last call.
    pub fn take_events(&mut self) -> Vec<SoakEvent> {
        std::mem::take(&mut self.events)
    }

    /// Notes programs that began or ended since the last reading of a GPU.
    pub(crate) fn programs(&mut self, gpu: u32, now: &[GpuProcess]) {
        let Some(before) = self.programs.insert(gpu, now.to_vec()) else {
            return;
        };
        let is_in = |of: &[GpuProcess], pid| of.iter().any(|process| process.pid == pid);
        let began = now.iter().filter(|process| !is_in(&before, process.pid));
        let ended = before.iter().filter(|process| !is_in(now, process.pid));
        let began = began.map(|process| (EventKind::ProgramBegan, process, "began to use"));
        let ended = ended.map(|process| (EventKind::ProgramEnded, process, "no longer uses"));
        let at_s = tenths(self.seconds());
        for (kind, process, does) in began.chain(ended) {
            self.events.push(SoakEvent {
                at_s,
                kind,
                gpu: Some(gpu),
                path: None,
                function: None,
                xid: None,
                what: format!("{} {does} GPU {gpu}", named(process)),
            });
        }
    }
}

/// Returns words such as `python3 (process 4711)`.
fn named(process: &GpuProcess) -> String {
    let GpuProcess { pid, name, .. } = process;
    match name {
        Some(name) => format!("{name} (process {pid})"),
        None => format!("process {pid}"),
    }
}
