//! The active flows, with the bytes left and the rate of each.

use super::work::Contention;
use super::work::Op;

/// All active flows, in the order in which they began. Every event visits all of them, so the data that it reads is
/// stored together.
#[derive(Debug, Default)]
pub(super) struct Active {
    pub ops: Vec<Op>,
    contention: Vec<Contention>,
    /// Bytes.
    left: Vec<f64>,
    /// GB/s.
    rates: Vec<f64>,
}

impl Active {
    /// Adds a flow; its rate follows with [`Self::put`].
    pub(crate) fn push(&mut self, op: Op, bytes: f64) {
        self.ops.push(op);
        self.contention.push(Contention::default());
        self.left.push(bytes);
        self.rates.push(0.0);
        let flows = u32::try_from(self.ops.len()).unwrap_or(u32::MAX);
        self.contention
            .iter_mut()
            .for_each(|contention| contention.flows = contention.flows.max(flows));
    }

    /// Returns the time at which the first flow will end.
    pub(crate) fn soonest(&self, now: f64) -> f64 {
        let ends = self.left.iter().zip(&self.rates).map(|(left, rate)| now + left / rate);
        ends.fold(f64::INFINITY, |soonest, end| if end < soonest { end } else { soonest })
    }

    /// Advances the time by `span`.
    pub(crate) fn pass(&mut self, span: f64) {
        for (left, rate) in self.left.iter_mut().zip(&self.rates) {
            *left = (*left - span * rate).max(0.0);
        }
    }

    /// Moves the ended flows to `done`, with the conditions that they met. Bytes left over by rounding must not keep a
    /// flow alive: the clock could not pass it.
    pub(crate) fn take_done(&mut self, now: f64, done: &mut Vec<(Op, Contention)>) {
        let is_done = |left: f64, rate: f64| (left <= 1e-3) | (now + left / rate <= now);
        let any = self
            .left
            .iter()
            .zip(&self.rates)
            .fold(false, |any, (left, rate)| any | is_done(*left, *rate));
        if !any {
            return;
        }
        let mut kept = 0;
        for place in 0..self.ops.len() {
            if is_done(self.left[place], self.rates[place]) {
                done.push((self.ops[place], self.contention[place]));
                continue;
            }
            self.ops[kept] = self.ops[place];
            self.contention[kept] = self.contention[place];
            self.left[kept] = self.left[place];
            self.rates[kept] = self.rates[place];
            kept += 1;
        }
        self.ops.truncate(kept);
        self.contention.truncate(kept);
        self.left.truncate(kept);
        self.rates.truncate(kept);
    }

    /// Sets the rates of the flows, and adds the conditions that they meet.
    pub(crate) fn put(&mut self, shares: impl IntoIterator<Item = (f64, Contention)>) {
        for ((rate, contention), (new_rate, now)) in
            self.rates.iter_mut().zip(&mut self.contention).zip(shares)
        {
            *rate = new_rate;
            contention.opposite |= now.opposite;
            contention.others |= now.others;
            contention.third |= now.third;
        }
    }
}
