//! A discrete-event engine: operations in lanes, on a virtual clock in nanoseconds. It knows
//! lanes, servers, gates and flows, and nothing of CUDA; streams and events are put together from
//! these in the driver.
//!
//! An operation starts when every operation it depends on has ended and, where it needs a server
//! (a copy engine, say), one is free. Time moves only when somebody asks for it: the host enqueues
//! operations with its own clock and lets the engine run when it waits.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

use super::hops::{Hops, Met};
use super::work::Time;
pub use super::work::{Ended, Flow, Lane, Op, Server, SharedHop, Stuck, Submission, Work};

#[derive(Debug)]
struct OpState {
    submission: Submission,
    waits_for: usize,
    /// Servers that it has.
    held: usize,
    dependents: Vec<Op>,
    end: Option<f64>,
}

#[derive(Debug)]
struct LaneState {
    last: Option<Op>,
    last_flow_end: f64,
    /// An event was recorded since the last flow.
    recorded: bool,
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
    met: Met,
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

/// The engine. Operations that have ended are forgotten from the oldest on.
#[derive(Debug, Default)]
pub struct Engine {
    now: f64,
    /// Operations forgotten.
    forgotten: usize,
    ops: VecDeque<OpState>,
    lanes: Vec<LaneState>,
    servers: Vec<ServerState>,
    /// What flows share.
    pub hops: Hops,
    agenda: BinaryHeap<Reverse<(Time, Op, Event)>>,
    active: Vec<ActiveFlow>,
    gates: Vec<Op>,
    ended: Vec<Ended>,
    expired: bool,
}

impl Engine {
    /// A new lane.
    pub fn add_lane(&mut self) -> Lane {
        self.lanes.push(LaneState { last: None, last_flow_end: f64::NEG_INFINITY, recorded: false });
        Lane(self.lanes.len() - 1)
    }

    /// A new server for this many operations at once, in the order in which they are ready.
    pub fn add_server(&mut self, places: u32) -> Server {
        self.servers.push(ServerState { free: places, queue: VecDeque::new() });
        Server(self.servers.len() - 1)
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
        if matches!(submission.work, Work::Gate { .. }) {
            self.gates.push(op);
        }
        let at = submission.at.max(self.now);
        let waits_for = before.len();
        self.ops.push_back(OpState { submission, waits_for, held: 0, dependents: Vec::new(), end: None });
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
            let Work::Gate { late, .. } = state.submission.work else { continue };
            state.submission.work = Work::Opened(time + late);
            // A gate that work still stands before opens when its turn comes.
            if state.waits_for == 0 {
                self.schedule(time + late, gate, Event::End);
            }
        }
    }

    /// Whether a gate opened by itself since the last call.
    pub fn take_expired(&mut self) -> bool {
        std::mem::take(&mut self.expired)
    }

    /// The operations that ended since the last call, in order.
    pub fn take_ended(&mut self) -> Vec<Ended> {
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
        let (now, mut done) = (self.now, Vec::new());
        self.active.retain(|flow| {
            let is_done = flow.left <= 1e-3 || now + flow.left / flow.rate <= now;
            done.extend(is_done.then_some((flow.op, flow.met)));
            !is_done
        });
        let mut changed = !done.is_empty();
        for (op, met) in done {
            self.end(op, met);
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
                        self.active.push(ActiveFlow { op, left, rate: 0.0, met: Met::default() });
                        changed = true;
                    }
                }
                Event::End if self.end_of(op).is_none() => self.end(op, Met::default()),
                Event::End => {}
                Event::Expire if self.end_of(op).is_none() => {
                    self.expired = true;
                    self.end(op, Met::default());
                }
                Event::Expire => {}
                Event::Reshare => changed = true,
            }
        }
        if changed {
            self.share();
        }
    }

    /// An operation has nothing before it any more: it takes its servers, and begins when it has them.
    fn ready(&mut self, op: Op) {
        loop {
            let state = &self.ops[op.0 - self.forgotten];
            let Some(server) = state.submission.servers.get(state.held).copied() else { break };
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
            Work::Mark | Work::Record => self.end(op, Met::default()),
            Work::Busy(ns) => self.schedule(self.now + ns, op, Event::End),
            Work::Flow(flow) => {
                let lane = submission.lanes.first().map(|lane| &self.lanes[lane.0]);
                let in_a_row = lane.filter(|lane| lane.last_flow_end >= self.now);
                let besides = match in_a_row.map(|lane| lane.recorded) {
                    None => flow.first_ns,
                    Some(true) => flow.event_ns,
                    Some(false) => 0.0,
                };
                self.schedule(self.now + flow.each_ns + besides, op, Event::FirstByte);
            }
            Work::Opened(at) => self.schedule(self.now.max(*at), op, Event::End),
            Work::Gate { limit, .. } => self.schedule(self.now + limit, op, Event::Expire),
            Work::Never => {}
        }
    }

    fn end(&mut self, op: Op, met: Met) {
        let now = self.now;
        let state = &mut self.ops[op.0 - self.forgotten];
        if state.end.replace(now).is_some() {
            return;
        }
        self.ended.push(Ended { op, at: now, met });
        let dependents = std::mem::take(&mut state.dependents);
        let servers = std::mem::take(&mut state.submission.servers);
        for lane in &state.submission.lanes {
            let lane = &mut self.lanes[lane.0];
            match state.submission.work {
                Work::Flow(_) => (lane.last_flow_end, lane.recorded) = (now, false),
                Work::Record => lane.recorded = true,
                _ => {}
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
        for server in servers {
            match self.servers[server.0].queue.pop_front() {
                Some(next) => {
                    self.op(next).held += 1;
                    self.ready(next);
                }
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
        let shares = self.hops.share(self.now, &flows);
        for (active, (rate, met)) in self.active.iter_mut().zip(shares.flows) {
            active.rate = rate;
            active.met.opposite |= met.opposite;
            active.met.others |= met.others;
            active.met.third |= met.third;
        }
        if let (Some(until), Some(flow)) = (shares.until, self.active.first().map(|flow| flow.op)) {
            self.schedule(until, flow, Event::Reshare);
        }
    }
}

#[cfg(test)]
#[path = "engine_tests.rs"]
mod tests;
