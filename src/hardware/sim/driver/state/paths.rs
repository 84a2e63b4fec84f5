//! Paths of copies, and the hops that they share.

use std::sync::Arc;

use super::State;
use crate::engine::SharedHop;
use crate::routes::{Hop, PathClass};
use crate::spec::{Drift, PathSpeed};

/// A route with the data that the engine needs.
#[derive(Debug, Clone)]
pub(in crate::driver) struct SharedPath {
    /// Speeds of copies on this route.
    pub speed: PathSpeed,
    /// Rate of its narrowest link, GB/s, reduced if a port redirects.
    pub bottleneck_gbps: f64,
    pub hops: Arc<[SharedHop]>,
}

impl State {
    /// Returns the engine's hop for a hop of the machine.
    pub(in crate::driver) fn shared_hop(&mut self, hop: Hop) -> SharedHop {
        if let Some(known) = self.hops.get(&hop) {
            return *known;
        }
        let hops = &mut self.engine.hops;
        let shared = hops.add(self.spec.shared_gbps(hop));
        self.hops.insert(hop, shared);
        if let Some(opposite) = hop.reversed().and_then(|reversed| self.hops.get(&reversed)) {
            hops.oppose(shared, *opposite);
        }
        self.spec.collapsed_gbps(hop).into_iter().for_each(|gbps| hops.collapse(shared, gbps));
        self.spec.sleep(hop).into_iter().for_each(|sleep| hops.put_to_sleep(shared, sleep));
        shared
    }

    /// Returns the share of its rate that a GPU has by now, from 0 to 1.
    pub(in crate::driver) fn drifted(&self, gpu: u32) -> f64 {
        let drifts = self.spec.faults.drifts.iter().filter(|drift| drift.gpu == gpu);
        let left = |drift: &Drift| {
            let over_ns = *drift.over_ms * 1e6;
            let passed = if self.clock_ns < over_ns { self.clock_ns / over_ns } else { 1.0 };
            1.0 - *drift.percent / 100.0 * passed
        };
        let drifted: f64 = drifts.map(left).product();
        drifted * self.spec.clock_at(gpu, self.seconds())
    }

    /// Returns the rate of a GPU's own memory, GB/s. It is the limit if the description has no link on the way.
    fn local_gbps(&self, gpu: u32) -> f64 {
        self.spec.gpus.get(gpu as usize).map_or(f64::INFINITY, |gpu| *gpu.local_gbps)
    }

    /// Returns the path of copies from one GPU to another.
    pub(in crate::driver) fn path(&mut self, from: u32, to: u32, direct: bool) -> SharedPath {
        if let Some(known) = self.paths.get((from, to, direct)) {
            return known;
        }
        let route = if direct {
            self.spec.direct_route(from, to)
        } else {
            self.spec.staged_route(from, to)
        };
        let redirected = if direct && route.class != PathClass::NvLink {
            self.spec.redirect_share(from)
        } else if direct {
            self.spec.ways_share(from, to)
        } else {
            1.0
        };
        let bottleneck_gbps = Some(self.spec.bottleneck_gbps(&route))
            .filter(|rate| rate.is_finite())
            .unwrap_or_else(|| self.local_gbps(from).min(self.local_gbps(to)));
        let path = SharedPath {
            speed: match route.class {
                PathClass::NvLink => self.spec.speeds.nvlink,
                PathClass::Pcie => self.spec.speeds.pcie,
                PathClass::CrossSocket => self.spec.speeds.cross_socket,
                PathClass::Staged => self.spec.speeds.staged,
            },
            bottleneck_gbps: redirected * bottleneck_gbps,
            hops: route.hops.iter().map(|hop| self.shared_hop(*hop)).collect(),
        };
        self.paths.keep((from, to, direct), path.clone());
        path
    }
}
