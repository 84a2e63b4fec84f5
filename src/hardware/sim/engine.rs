//! A discrete-event engine: operations in lanes, on a virtual clock in nanoseconds. It knows
//! lanes, servers, gates and flows, and nothing of CUDA; streams and events are put together from
//! these in the driver.
//!
//! An operation starts when every operation it depends on has ended and, where it needs a server
//! (a copy engine, say), one is free. Time moves only when somebody asks for it: the host enqueues
//! operations with its own clock and lets the engine run when it waits.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

use super::sharing::{Demand, max_min};
use super::work::Time;
pub use super::work::{Flow, Lane, Op, Server, SharedHop, Stuck, Submission, Work};

#[derive(Debug)]
struct OpState {
    submission: Submission,
    waits_for: usize,
    dependents: Vec<Op>,
    end: Option<f64>,
}

#[derive(Debug)]
struct LaneState {
    last: Option<Op>,
    last_flow_end: f64,
}

#[derive(Debug)]
struct ServerState {
    free: u32,
    queue: VecDeque<Op>,
}

#[derive(Debug)]
struct ActiveFlow {
    op: Op,
    left: f64,
    rate: f64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    Ready,
    FirstByte,
    End,
    Expire,
}

/// The engine. Operations that have ended are forgotten from the oldest on.
#[derive(Debug, Default)]
pub struct Engine {
    now: f64,
    /// Operations forgotten.
    forgotten: usize,
    ops: VecDeque<OpState>,
    lanes: Vec<LaneState>,
    servers: Vec<ServerState>,
    capacities: Vec<f64>,
    /// The other direction of each hop's link.
    opposite: Vec<Option<usize>>,
    agenda: BinaryHeap<Reverse<(Time, Op, Event)>>,
    active: Vec<ActiveFlow>,
    gates: Vec<Op>,
    ended: Vec<(Op, f64)>,
    expired: bool,
}

impl Engine {
    /// A new lane.
    pub fn add_lane(&mut self) -> Lane {
        self.lanes.push(LaneState { last: None, last_flow_end: f64::NEG_INFINITY });
        Lane(self.lanes.len() - 1)
    }

    /// A new server for this many operations at once, in the order in which they are ready.
    pub fn add_server(&mut self, places: u32) -> Server {
        self.servers.push(ServerState { free: places, queue: VecDeque::new() });
        Server(self.servers.len() - 1)
    }

    /// A new hop that carries this many GB/s in all.
    pub fn add_hop(&mut self, gbps: f64) -> SharedHop {
        self.capacities.push(gbps);
        self.opposite.push(None);
        SharedHop(self.capacities.len() - 1)
    }

    /// Declares two hops the two directions of one link.
    pub fn oppose(&mut self, a: SharedHop, b: SharedHop) {
        self.opposite[a.0] = Some(b.0);
        self.opposite[b.0] = Some(a.0);
    }

    /// Enqueues an operation.
    pub fn enqueue(&mut self, submission: Submission) -> Op {
        let op = Op(self.forgotten + self.ops.len());
        let mut submission = submission;
        let mut before = std::mem::take(&mut submission.after);
        for lane in &submission.lanes {
            before.extend(self.lanes[lane.0].last.replace(op));
        }
        before.retain(|op| self.end_of(*op).is_none());
        before.sort_unstable();
        before.dedup();
        for op_before in &before {
            self.op(*op_before).dependents.push(op);
        }
        if matches!(submission.work, Work::Gate(_)) {
            self.gates.push(op);
        }
        let at = submission.at.max(self.now);
        let waits_for = before.len();
        self.ops.push_back(OpState { submission, waits_for, dependents: Vec::new(), end: None });
        if waits_for == 0 {
            self.schedule(at, op, Event::Ready);
        }
        op
    }

    fn op(&mut self, op: Op) -> &mut OpState {
        &mut self.ops[op.0 - self.forgotten]
    }

    /// When an operation ended, if it has; of one that is forgotten, a time that is not before that.
    pub fn end_of(&self, op: Op) -> Option<f64> {
        op.0.checked_sub(self.forgotten).map_or(Some(self.now), |place| self.ops[place].end)
    }

    /// The last operation of a lane.
    pub fn last_of(&self, lane: Lane) -> Option<Op> {
        self.lanes[lane.0].last
    }

    /// Runs until an operation has ended and says when.
    ///
    /// # Errors
    ///
    /// It never will.
    pub fn run_until_ended(&mut self, op: Op) -> Result<f64, Stuck> {
        loop {
            if let Some(end) = self.end_of(op) {
                return Ok(end);
            }
            let next = self.next_time().ok_or(Stuck)?;
            self.advance(next);
        }
    }

    /// Runs up to this time.
    pub fn run_to(&mut self, time: f64) {
        while let Some(next) = self.next_time().filter(|next| *next <= time) {
            self.advance(next);
        }
        self.pass(time);
    }

    /// Opens every gate that was enqueued, at this time.
    pub fn open_gates(&mut self, time: f64) {
        self.run_to(time);
        for gate in std::mem::take(&mut self.gates) {
            // It may have opened by itself.
            if self.end_of(gate).is_some() {
                continue;
            }
            let state = self.op(gate);
            if let Work::Gate(limit) = &mut state.submission.work {
                *limit = 0.0;
            }
            // A gate that work still stands before opens when its turn comes.
            if state.waits_for == 0 {
                self.schedule(time, gate, Event::End);
            }
        }
    }

    /// Whether a gate opened by itself since the last call.
    pub fn take_expired(&mut self) -> bool {
        std::mem::take(&mut self.expired)
    }

    /// The operations that ended since the last call, in order, and when.
    pub fn take_ended(&mut self) -> Vec<(Op, f64)> {
        while self.ops.front().is_some_and(|oldest| oldest.end.is_some()) {
            self.ops.pop_front();
            self.forgotten += 1;
        }
        std::mem::take(&mut self.ended)
    }

    fn schedule(&mut self, time: f64, op: Op, event: Event) {
        self.agenda.push(Reverse((Time(time), op, event)));
    }

    fn next_time(&self) -> Option<f64> {
        let agenda = self.agenda.peek().map(|Reverse((time, ..))| time.0);
        let flows = self.active.iter().map(|flow| self.now + flow.left / flow.rate);
        flows.chain(agenda).min_by(f64::total_cmp).filter(|time| time.is_finite())
    }

    /// Lets time pass without anything happening.
    fn pass(&mut self, time: f64) {
        let span = time - self.now;
        if span > 0.0 {
            for flow in &mut self.active {
                flow.left = (flow.left - span * flow.rate).max(0.0);
            }
            self.now = time;
        }
    }

    /// Lets time pass and everything happen that happens then.
    fn advance(&mut self, time: f64) {
        self.pass(time);
        // What is left after rounding must not keep a flow alive: the clock could not pass it.
        let (now, flows) = (self.now, std::mem::take(&mut self.active));
        let (done, still): (Vec<_>, Vec<_>) =
            flows.into_iter().partition(|flow| flow.left <= 1e-3 || now + flow.left / flow.rate <= now);
        self.active = still;
        let mut changed = !done.is_empty();
        for flow in done {
            self.end(flow.op);
        }
        while let Some(&Reverse((at, op, event))) = self.agenda.peek() {
            if at.0 > self.now {
                break;
            }
            self.agenda.pop();
            match event {
                Event::Ready => self.ready(op),
                Event::FirstByte => {
                    if let Work::Flow(flow) = &self.op(op).submission.work {
                        let left = flow.bytes;
                        self.active.push(ActiveFlow { op, left, rate: 0.0 });
                        changed = true;
                    }
                }
                Event::End if self.end_of(op).is_none() => self.end(op),
                Event::End => {}
                Event::Expire if self.end_of(op).is_none() => {
                    self.expired = true;
                    self.end(op);
                }
                Event::Expire => {}
            }
        }
        if changed {
            self.share();
        }
    }

    /// An operation has nothing before it any more.
    fn ready(&mut self, op: Op) {
        if let Some(server) = self.op(op).submission.server {
            let server = &mut self.servers[server.0];
            if server.free == 0 {
                server.queue.push_back(op);
                return;
            }
            server.free -= 1;
        }
        self.begin(op);
    }

    fn begin(&mut self, op: Op) {
        let submission = &self.ops[op.0 - self.forgotten].submission;
        match &submission.work {
            Work::Mark => self.end(op),
            Work::Busy(ns) => self.schedule(self.now + ns, op, Event::End),
            Work::Flow(flow) => {
                let last = submission.lanes.first().map(|lane| self.lanes[lane.0].last_flow_end);
                let in_a_row = last == Some(self.now);
                let setup = if in_a_row { flow.each_ns } else { flow.each_ns + flow.first_ns };
                self.schedule(self.now + setup, op, Event::FirstByte);
            }
            Work::Gate(limit) if *limit <= 0.0 => self.end(op),
            Work::Gate(limit) => self.schedule(self.now + limit, op, Event::Expire),
            Work::Never => {}
        }
    }

    fn end(&mut self, op: Op) {
        let now = self.now;
        let state = &mut self.ops[op.0 - self.forgotten];
        if state.end.replace(now).is_some() {
            return;
        }
        self.ended.push((op, now));
        let dependents = std::mem::take(&mut state.dependents);
        let server = state.submission.server;
        if matches!(state.submission.work, Work::Flow(_)) {
            for lane in &state.submission.lanes {
                self.lanes[lane.0].last_flow_end = self.now;
            }
        }
        for dependent in dependents {
            let state = self.op(dependent);
            state.waits_for -= 1;
            if state.waits_for == 0 {
                let at = state.submission.at.max(now);
                self.schedule(at, dependent, Event::Ready);
            }
        }
        if let Some(server) = server {
            match self.servers[server.0].queue.pop_front() {
                Some(next) => self.begin(next),
                None => self.servers[server.0].free += 1,
            }
        }
    }

    /// Shares the hops anew among the flows that are on their way.
    fn share(&mut self) {
        let flow_of = |active: &ActiveFlow| match &self.ops[active.op.0 - self.forgotten].submission.work {
            Work::Flow(flow) => Some(flow),
            _ => None,
        };
        let flows: Vec<_> = self.active.iter().filter_map(flow_of).collect();
        // The hops in use, numbered anew: they are few among many.
        let mut used: Vec<usize> = flows.iter().flat_map(|flow| flow.hops.iter().map(|hop| hop.0)).collect();
        used.sort_unstable();
        used.dedup();
        let capacities: Vec<f64> = used.iter().map(|&hop| self.capacities[hop]).collect();
        let opposed = |hop: &SharedHop| self.opposite[hop.0].is_some_and(|other| used.binary_search(&other).is_ok());
        let demand = |flow: &&Flow| Demand {
            hops: flow.hops.iter().filter_map(|hop| used.binary_search(&hop.0).ok()).collect(),
            cap: if flow.hops.iter().any(opposed) { flow.cap * flow.both_ways } else { flow.cap },
        };
        let demands: Vec<_> = flows.iter().map(demand).collect();
        let rates = max_min(&capacities, &demands);
        for (active, rate) in self.active.iter_mut().zip(rates) {
            active.rate = rate;
        }
    }
}

#[cfg(test)]
#[path = "engine_tests.rs"]
mod tests;
