//! Expectations from a machine that is known to be good.

use std::collections::BTreeMap;

use model::flow::Setup;
use model::placement::{Pair, Path};
use model::report::Report;
use model::snapshot::Gpu;
use model::topology::LinkClass;
use topology::belief::Beliefs;

use super::{Expectations, Floor, Gpus, NvLink, Pcie, Peer, in_words};
use crate::expectations_host::{OfHost, bound};
use crate::figures::{self, Kind};

impl Expectations {
    /// Returns the facts and figures of this report's machine, with floors `margin_percent` below the lowest figure of
    /// each class.
    pub fn from_report(report: &Report, margin_percent: f64) -> Self {
        let gpus = &report.snapshot.gpus;
        let common = |values: Vec<Option<u32>>| {
            values.into_iter().collect::<Option<Vec<_>>>()?.into_iter().min()
        };
        let measurements = report.measurements.as_ref();
        let beliefs = Beliefs::of(&report.snapshot, &report.topology, measurements, |_| false);
        let generation = |gpu: &Gpu| beliefs.on_gpu(gpu.index)?.measured_generation();
        let width = |gpu: &Gpu| {
            let measured = beliefs.on_gpu(gpu.index).and_then(|belief| belief.measured_lanes());
            measured.or(gpu.pcie_width.get())
        };
        let to_u8 = |value: Option<u32>| value.and_then(|value| u8::try_from(value).ok());
        let names: Vec<_> = gpus.iter().filter_map(|gpu| gpu.name.known()).collect();
        let model = names
            .first()
            .filter(|first| names.len() == gpus.len() && names.iter().all(|name| name == *first));
        let access: Vec<_> =
            report.topology.pairs.iter().map(|route| route.peer_access.cuda).collect();
        let OfHost { host, pipeline, calls, launch_loop } =
            OfHost::from_report(report, margin_percent);
        // The current generation of a GPU means nothing while it is idle, so only the generation under load is asked
        // for.
        Self {
            profile: report.measurements.as_ref().map(|measurements| measurements.profile.clone()),
            gpus: Gpus {
                count: u32::try_from(gpus.len()).ok(),
                model: model.map(|name| (*name).clone()),
            },
            pcie: Pcie {
                generation: to_u8(common(
                    gpus.iter().map(|gpu| generation(gpu).map(u32::from)).collect(),
                )),
                width: to_u8(common(gpus.iter().map(|gpu| width(gpu).map(u32::from)).collect())),
            },
            nvlink: NvLink {
                links: common(gpus.iter().map(Gpu::active_nvlinks).collect())
                    .filter(|links| *links > 0),
            },
            peer: Peer {
                access: access
                    .iter()
                    .all(|access| *access == Some(true))
                    .then_some(!access.is_empty()),
            },
            floor: floors(report, margin_percent),
            host,
            pipeline,
            calls,
            launch_loop,
            figures: others(report, margin_percent),
        }
    }
}

/// Returns bounds for the figures that have no list of their own in the file: the worst of each kind, less its margin.
fn others(report: &Report, margin_percent: f64) -> BTreeMap<String, BTreeMap<String, f64>> {
    let mut worst: BTreeMap<(String, String), (Kind, Option<f64>)> = BTreeMap::new();
    let reference = [Path::Direct, Path::Staged].map(|path| Setup::REFERENCE.with_path(path));
    for (identity, figure) in figures::table_of(report.measurements.as_ref()) {
        let has_list = match &identity.1 {
            Kind::Pair(setup) => reference.contains(setup),
            Kind::Host(_) => true,
            Kind::Other { .. } => false,
        };
        if !has_list {
            let value = figure.map(|figure| figure.value);
            let words = in_words(&identity, &report.topology);
            let (kind, known) = worst.entry(words).or_insert((identity.1, value));
            // The machine itself would not meet a bound that asks for a figure without a result.
            *known = known.zip(value).map(|(known, value)| {
                let is_worse = kind.percent_worse(known, value) > 0.0;
                if is_worse { value } else { known }
            });
        }
    }
    let mut bounds: BTreeMap<String, BTreeMap<String, f64>> = BTreeMap::new();
    for ((probe, what), (kind, value)) in worst {
        let bound = value.map(|value| bound(kind.decided_by(), value, margin_percent));
        if let Some(bound) = bound.filter(|bound| *bound > 0.0) {
            bounds.entry(probe).or_default().insert(what, bound);
        }
    }
    bounds
}

/// Returns a floor for each class of which every pair was measured, and for each pair of the other classes. The rate of
/// one pair through the host, which has no other path, shows nothing about those that have one. If most pairs were left
/// out because there are many GPUs, those that were measured represent their class.
fn floors(report: &Report, margin_percent: f64) -> Vec<Floor> {
    let Some(measurements) = &report.measurements else {
        return Vec::new();
    };
    let mut classes: BTreeMap<LinkClass, Vec<Pair>> = BTreeMap::new();
    for route in &report.topology.pairs {
        classes.entry(route.class).or_default().push(route.pair);
    }
    let below = |rate: f64| (rate * (100.0 - margin_percent) / 10.0).floor() / 10.0;
    let mut floors = Vec::new();
    for (class, pairs) in classes {
        for path in [Path::Direct, Path::Staged] {
            let cells = measurements.reference(path);
            let figure = |pair: &Pair| Some((*pair, cells.get(pair)?.achieved_gbps?.0));
            let figures: Vec<_> =
                pairs.iter().filter_map(figure).filter(|(_, rate)| below(*rate) > 0.0).collect();
            let floor = |gbps: f64| Floor { class: None, pair: None, path, gbps: below(gbps) };
            if figures.len() == pairs.len() || !measurements.left_out.is_empty() {
                let least = figures.iter().map(|(_, rate)| *rate).reduce(f64::min);
                floors.extend(least.map(|least| Floor { class: Some(class), ..floor(least) }));
            } else {
                let of_pair = |(pair, rate): (Pair, f64)| Floor {
                    pair: Some((pair.source, pair.destination)),
                    ..floor(rate)
                };
                floors.extend(figures.into_iter().map(of_pair));
            }
        }
    }
    floors
}
