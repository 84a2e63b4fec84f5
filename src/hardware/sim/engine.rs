//! A discrete-event engine: operations in lanes, on a virtual clock in nanoseconds. It implements lanes, servers, gates
//! and flows, and contains nothing of CUDA. The driver composes streams and events from these.
//!
//! An operation starts when every operation it depends on has ended and each server that it needs (a copy engine, say)
//! has a free place. Time advances only on request: the host enqueues operations with its own clock and runs the engine
//! when it waits.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

use super::active::Active;
use super::hops::Hops;
use super::work::Contention;
use super::work::Time;
pub(crate) use super::work::{
    Ended, Few, Flow, Lane, Op, Server, SharedHop, Stuck, Submission, Work,
};

#[derive(Debug)]
struct OpState {
    submission: Submission,
    waits_for: usize,
    /// Number of servers that it holds.
    held: usize,
    dependents: Dependents,
    end: Option<f64>,
}

#[derive(Debug)]
struct LaneState {
    last: Option<Op>,
    last_flow_end: f64,
    /// True if an event was recorded since the last flow.
    recorded: bool,
}

#[derive(Debug)]
struct ServerState {
    free: u32,
    queue: VecDeque<Op>,
}

/// The operations that wait for an operation: most often one.
#[derive(Debug, Default)]
struct Dependents {
    first: Option<Op>,
    more: Vec<Op>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    Ready,
    FirstByte,
    End,
    Expire,
    /// The rates of flows change although none begins or ends.
    Reshare,
}

/// The engine. It forgets ended operations, the oldest first.
#[derive(Debug, Default)]
pub(crate) struct Engine {
    now: f64,
    /// Number of operations forgotten.
    forgotten: usize,
    ops: VecDeque<OpState>,
    lanes: Vec<LaneState>,
    servers: Vec<ServerState>,
    /// The hops that flows share.
    pub hops: Hops,
    agenda: BinaryHeap<Reverse<(Time, Op, Event)>>,
    /// Gates that will open by themselves, in order. Thousands of these entries are for gates opened long ago.
    expiries: VecDeque<(Time, Op)>,
    active: Active,
    /// Reused from one event to the next.
    done: Vec<(Op, Contention)>,
    gates: Vec<Op>,
    ended: Vec<Ended>,
    expired: bool,
}

impl Engine {
    /// Adds a lane.
    pub(crate) fn add_lane(&mut self) -> Lane {
        self.lanes.push(LaneState {
            last: None,
            last_flow_end: f64::NEG_INFINITY,
            recorded: false,
        });
        Lane(self.lanes.len() - 1)
    }

    /// Adds a server that runs this many operations at the same time, in the order in which they are ready.
    pub(crate) fn add_server(&mut self, places: u32) -> Server {
        self.servers.push(ServerState { free: places, queue: VecDeque::new() });
        Server(self.servers.len() - 1)
    }

    /// Enqueues an operation.
    pub(crate) fn enqueue(&mut self, submission: Submission) -> Op {
        let op = Op(self.forgotten + self.ops.len());
        let waits_for = self.wait_for(op, &submission);
        if matches!(submission.work, Work::Gate { .. }) {
            self.gates.push(op);
        }
        let at = submission.at.max(self.now);
        let dependents = Dependents::default();
        self.ops.push_back(OpState { submission, waits_for, held: 0, dependents, end: None });
        if waits_for == 0 {
            self.schedule(at, op, Event::Ready);
        }
        op
    }

    /// Makes a new operation wait for those before it. Returns how many these are.
    fn wait_for(&mut self, op: Op, submission: &Submission) -> usize {
        let mut before = [submission.after, None, None];
        for (lane, place) in submission.lanes.iter().zip(&mut before[1..]) {
            *place = self.lanes[lane.0].last.replace(op);
        }
        let mut waits_for = 0;
        for (place, earlier) in before.into_iter().enumerate() {
            let Some(earlier) = earlier else { continue };
            if self.end_of(earlier).is_some() || before[..place].contains(&Some(earlier)) {
                continue;
            }
            let dependents = &mut self.op(earlier).dependents;
            match dependents.first {
                Some(_) => dependents.more.push(op),
                None => dependents.first = Some(op),
            }
            waits_for += 1;
        }
        waits_for
    }

    fn op(&mut self, op: Op) -> &mut OpState {
        &mut self.ops[op.0 - self.forgotten]
    }

    /// Returns the time at which an operation ended, if it has. For a forgotten operation, returns a time that is not
    /// before its end.
    pub(crate) fn end_of(&self, op: Op) -> Option<f64> {
        op.0.checked_sub(self.forgotten).map_or(Some(self.now), |place| self.ops[place].end)
    }

    /// Returns the last operation of a lane.
    pub(crate) fn last_of(&self, lane: Lane) -> Option<Op> {
        self.lanes[lane.0].last
    }

    /// Runs until an operation has ended, and returns the time of its end.
    ///
    /// # Errors
    ///
    /// The operation never ends.
    pub(crate) fn run_until_ended(&mut self, op: Op) -> Result<f64, Stuck> {
        loop {
            if let Some(end) = self.end_of(op) {
                return Ok(end);
            }
            let next = self.next_time().ok_or(Stuck)?;
            self.advance(next);
        }
    }

    /// Runs up to this time.
    pub(crate) fn run_to(&mut self, time: f64) {
        while let Some(next) = self.next_time().filter(|next| *next <= time) {
            self.advance(next);
        }
        self.pass(time);
    }

    /// Opens every gate that was enqueued, at this time.
    pub(crate) fn open_gates(&mut self, time: f64) {
        self.run_to(time);
        for gate in std::mem::take(&mut self.gates) {
            // The gate may have opened by itself.
            if self.end_of(gate).is_some() {
                continue;
            }
            let state = self.op(gate);
            let (late, waits) = match state.submission.work {
                Work::Waiting(late) => (late, true),
                // The gate opens when its turn comes: work is still ahead of it, or the device has not begun it.
                Work::Gate { late, .. } => (late, false),
                _ => continue,
            };
            state.submission.work = Work::Opened(time + late);
            if waits {
                self.schedule(time + late, gate, Event::End);
            }
        }
    }

    /// Returns true if a gate's turn has not come yet.
    pub(crate) fn is_before(&self, gate: Op) -> bool {
        let work = gate.0.checked_sub(self.forgotten).map(|place| &self.ops[place].submission.work);
        matches!(work, Some(Work::Gate { .. }))
    }

    /// Returns true if a gate opened by itself since the last call.
    pub(crate) fn take_expired(&mut self) -> bool {
        std::mem::take(&mut self.expired)
    }

    /// Swaps the operations that ended since the last call, in order, into an empty list.
    pub(crate) fn take_ended(&mut self, ended: &mut Vec<Ended>) {
        while self.ops.front().is_some_and(|oldest| oldest.end.is_some()) {
            self.ops.pop_front();
            self.forgotten += 1;
        }
        std::mem::swap(&mut self.ended, ended);
    }

    fn schedule(&mut self, time: f64, op: Op, event: Event) {
        self.agenda.push(Reverse((Time(time), op, event)));
    }

    /// Makes a gate open by itself at this time.
    fn expire(&mut self, time: f64, gate: Op) {
        let entry = (Time(time), gate);
        if self.expiries.back().is_none_or(|last| *last < entry) {
            self.expiries.push_back(entry);
        } else {
            self.schedule(time, gate, Event::Expire);
        }
    }

    /// Returns the next entry of the agenda or the expiries, and true if it is an expiry.
    fn next_entry(&self) -> Option<((Time, Op, Event), bool)> {
        let agenda = self.agenda.peek().map(|Reverse(entry)| (*entry, false));
        let expiry = self.expiries.front().map(|(time, op)| ((*time, *op, Event::Expire), true));
        agenda.into_iter().chain(expiry).min()
    }

    /// Removes an entry that is due by now, and returns it.
    fn take_due(&mut self) -> Option<(Op, Event)> {
        let ((_, op, event), expires) =
            self.next_entry().filter(|((at, ..), _)| at.0 <= self.now)?;
        if expires {
            self.expiries.pop_front();
        } else {
            self.agenda.pop();
        }
        Some((op, event))
    }

    /// Returns the time of the next event, if there is one.
    pub(crate) fn next_time(&self) -> Option<f64> {
        let agenda = self.next_entry().map_or(f64::INFINITY, |((time, ..), _)| time.0);
        Some(self.active.soonest(self.now).min(agenda)).filter(|time| time.is_finite())
    }

    /// Advances the time without any event.
    fn pass(&mut self, time: f64) {
        let span = time - self.now;
        if span > 0.0 {
            self.active.pass(span);
            self.now = time;
        }
    }

    /// Advances the time and handles all events of that time.
    fn advance(&mut self, time: f64) {
        self.pass(time);
        let mut changed = self.end_flows();
        while let Some((op, event)) = self.take_due() {
            match event {
                Event::Ready => self.ready(op),
                Event::FirstByte => changed |= self.first_byte(op),
                Event::End if self.end_of(op).is_none() => self.end(op, Contention::default()),
                Event::End => {}
                Event::Expire if self.end_of(op).is_none() => {
                    self.expired = true;
                    self.end(op, Contention::default());
                }
                Event::Expire => {}
                Event::Reshare => changed = true,
            }
        }
        if changed {
            self.share();
        }
    }

    /// Ends the flows that have no bytes left. Returns true if there were any, since the others' shares then change.
    fn end_flows(&mut self) -> bool {
        let mut done = std::mem::take(&mut self.done);
        self.active.take_done(self.now, &mut done);
        let changed = !done.is_empty();
        for (op, contention) in done.drain(..) {
            self.end(op, contention);
        }
        self.done = done;
        changed
    }

    /// Starts a flow's bytes. Returns true, since all shares then change, or false if the operation is no flow.
    fn first_byte(&mut self, op: Op) -> bool {
        let Work::Flow(flow) = &self.ops[op.0 - self.forgotten].submission.work else {
            return false;
        };
        self.active.push(op, flow.bytes);
        true
    }

    /// Takes the servers of an operation that waits for nothing else, and begins it once it holds them all.
    fn ready(&mut self, op: Op) {
        loop {
            let state = &self.ops[op.0 - self.forgotten];
            let Some(server) = state.submission.servers.get(state.held) else {
                break;
            };
            let server = &mut self.servers[server.0];
            if server.free == 0 {
                server.queue.push_back(op);
                return;
            }
            server.free -= 1;
            self.op(op).held += 1;
        }
        self.begin(op);
    }

    fn begin(&mut self, op: Op) {
        let submission = &self.ops[op.0 - self.forgotten].submission;
        match &submission.work {
            Work::Mark | Work::Record => self.end(op, Contention::default()),
            Work::Busy(ns) => self.schedule(self.now + ns, op, Event::End),
            Work::Flow(flow) => {
                let lane = submission.lanes.get(0).map(|lane| &self.lanes[lane.0]);
                let in_a_row = lane.filter(|lane| lane.last_flow_end >= self.now);
                let besides = match in_a_row.map(|lane| lane.recorded) {
                    None => flow.first_ns,
                    Some(true) => flow.event_ns,
                    Some(false) => 0.0,
                };
                self.schedule(self.now + flow.each_ns + besides, op, Event::FirstByte);
            }
            Work::Opened(at) => self.schedule(self.now.max(*at), op, Event::End),
            &Work::Gate { limit, late } => {
                self.op(op).submission.work = Work::Waiting(late);
                self.expire(self.now + limit, op);
            }
            Work::Waiting(_) | Work::Never => {}
        }
    }

    fn end(&mut self, op: Op, contention: Contention) {
        let now = self.now;
        let state = &mut self.ops[op.0 - self.forgotten];
        if state.end.replace(now).is_some() {
            return;
        }
        self.ended.push(Ended { op, at: now, contention });
        let dependents = std::mem::take(&mut state.dependents);
        let servers = state.submission.servers;
        for lane in state.submission.lanes.iter() {
            let lane = &mut self.lanes[lane.0];
            match state.submission.work {
                Work::Flow(_) => (lane.last_flow_end, lane.recorded) = (now, false),
                Work::Record => lane.recorded = true,
                _ => {}
            }
        }
        for dependent in dependents.first.into_iter().chain(dependents.more) {
            let state = self.op(dependent);
            state.waits_for -= 1;
            if state.waits_for == 0 {
                let at = state.submission.at.max(now);
                self.schedule(at, dependent, Event::Ready);
            }
        }
        for server in servers.iter() {
            match self.servers[server.0].queue.pop_front() {
                Some(next) => {
                    self.op(next).held += 1;
                    self.ready(next);
                }
                None => self.servers[server.0].free += 1,
            }
        }
    }

    /// Recomputes the shares of the active flows in the hops.
    fn share(&mut self) {
        let flow_of = |op: &Op| match &self.ops[op.0 - self.forgotten].submission.work {
            Work::Flow(flow) => Some(flow),
            _ => None,
        };
        let flows: Vec<_> = self.active.ops.iter().filter_map(flow_of).collect();
        let shares = self.hops.share(self.now, &flows);
        self.active.put(shares.flows);
        if let (Some(until), Some(flow)) = (shares.until, self.active.ops.first()) {
            self.schedule(until, *flow, Event::Reshare);
        }
    }
}

#[cfg(test)]
#[path = "engine_tests.rs"]
mod tests;
