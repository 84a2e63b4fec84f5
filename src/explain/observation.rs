//! The measured figures with the resources that their flows pass.

use std::collections::BTreeMap;

use model::cell::Measurement;
use model::flow::{Endpoint, Flow};
use model::host::{HostCopy, HostDirection, HostWay};
use model::load::{LoadPattern, Pattern};
use model::measurement::{LocalCopy, Measurements, PeerBandwidth};
use model::placement::{Direction, Engine, Pair, Path, Placement, Side};
use topology::load::{Leg, Load};

use super::item::{Floors, Group, Healthy, Item, Mode, Observation};
use super::resource::{Class, Number, Part, Resource, Resources, Way};
use super::state::{Route, State};

/// Share of its payload rate that a link carries for several flows together. H200: 396 of 450 GB/s over NVLink, 55.5
/// of 63 GB/s over PCIe (measured); with two flows a few per cent more.
const SHARED: f64 = 0.90;

/// Collects all observations of a run, in the order of the report: host copies, copies between GPUs, loads.
pub(crate) fn all<'a>(
    state: &State<'a>,
    measurements: &Measurements,
    floors: &dyn Floors,
    resources: &mut Resources,
) -> Vec<Observation> {
    let mut collect = Collect { state, floors, resources };
    let mut observations = collect.host(measurements);
    observations.extend(collect.peers(measurements));
    observations.extend(collect.local(measurements));
    // Kernels depend on more than the links.
    let by_engine = |load: &&LoadPattern| load.pattern.engine() == Engine::Copy;
    let loads = measurements.load.iter().filter(by_engine);
    observations.extend(loads.filter_map(|load| collect.load(load)));
    observations
}

struct Collect<'a, 'b> {
    state: &'b State<'a>,
    floors: &'b dyn Floors,
    resources: &'b mut Resources,
}

impl<'a> Collect<'a, '_> {
    fn host(&mut self, measurements: &Measurements) -> Vec<Observation> {
        // Of several sizes, the largest counts.
        let mut chosen: BTreeMap<_, &HostCopy> = BTreeMap::new();
        for copy in &measurements.host {
            let way = copy.way();
            if host_mode_of(copy).is_some() && copy.rate().is_some() {
                let key = (way, copy.at_once, copy.gpu, copy.numa_node);
                let largest = chosen.entry(key).or_insert(copy);
                if largest.bytes < copy.bytes {
                    *largest = copy;
                }
            }
        }
        let mut alone = Vec::new();
        let mut at_once: BTreeMap<_, (Vec<Item>, Vec<Vec<Leg<'a>>>)> = BTreeMap::new();
        for ((way, number, ..), copy) in chosen {
            let Some((item, route)) = self.host_copy(copy) else {
                continue;
            };
            if number < 2 {
                alone.push(Observation { items: vec![item], load: None });
            } else {
                let (items, routes) = at_once.entry((way, number)).or_default();
                items.push(item);
                routes.push(route.steps);
            }
        }
        let several = at_once.into_iter().filter(|((_, number), (items, _))| {
            u32::try_from(items.len()).is_ok_and(|items| items == *number)
        });
        let several = several.map(|(_, (items, routes))| self.several_at_once(items, routes));
        alone.extend(several);
        alone
    }

    fn host_copy(&mut self, copy: &HostCopy) -> Option<(Item, Route<'a>)> {
        let mode = host_mode_of(copy)?;
        let mut route = self.state.route(copy.flow(), Path::Direct);
        let both = copy.direction == HostDirection::BothWays;
        if both {
            let back = self.state.route(copy.flow().reversed(), Path::Direct);
            let at_once = Resource::new(Part::Host(copy.gpu), Way::Both);
            route.passes.extend(back.passes);
            route.passes.push(at_once);
        }
        let theory =
            route.theory.or_else(|| Some(copy.theoretical_gbps?.0).filter(|_| copy.at_once < 2));
        let far = self.state.is_far(copy.gpu, copy.numa_node);
        // Over links to another processor that nobody shows: a figure without theory and siblings fits no cause.
        if far && theory.is_none() {
            return None;
        }
        let group = Group {
            direction: Some(copy.direction),
            far,
            load: (copy.at_once > 1).then_some((Pattern::HostToAll, copy.at_once as usize)),
            ..plain(mode, Class::Host, theory)
        };
        let item = Item {
            key: copy.key(),
            passes: self.numbers(&route.passes),
            detour: None,
            achieved: copy.rate()?.0,
            mode,
            theory,
            floor: self.floors.host(copy),
            spread_percent: copy.spread_percent.unwrap_or(0.0),
            group,
            ends: None,
            healthy: Healthy::default(),
        };
        (item.achieved > 0.0).then_some((item, route))
    }

    fn peers(&mut self, measurements: &Measurements) -> Vec<Observation> {
        let mut chosen: BTreeMap<_, &PeerBandwidth> = BTreeMap::new();
        for cell in &measurements.peer {
            let sound = cell.cell().tested() && !cell.verified.is_wrong();
            if sound && mode_of(cell).is_some() {
                let largest = chosen.entry((cell.setup.of_any_size(), cell.pair)).or_insert(cell);
                if largest.setup.bytes < cell.setup.bytes {
                    *largest = cell;
                }
            }
        }
        let item = |cell: &PeerBandwidth| {
            let items = vec![self.peer(cell)?];
            Some(Observation { items, load: None })
        };
        chosen.into_values().filter_map(item).collect()
    }

    fn peer(&mut self, cell: &PeerBandwidth) -> Option<Item> {
        let mode = mode_of(cell)?;
        let (source, destination) = (cell.pair.source, cell.pair.destination);
        let Route { mut passes, theory, class, .. } =
            self.state.route(cell.pair.into(), cell.setup.path);
        let doubled = match mode {
            Mode::Staged => links_passed_twice(&passes),
            _ => Vec::new(),
        };
        if mode == Mode::BothWays {
            let own =
                passes.iter().filter(|one| !matches!(one.part, Part::Class(_) | Part::Machine));
            let own = own.map(|one| Resource::new(one.part, Way::Both));
            passes.extend(own.collect::<Vec<_>>());
        }
        passes.extend(&doubled);
        let theory = theory.or(cell.theoretical_gbps.map(|rate| rate.0));
        let lost = matches!(class, Class::Pcie(_)) && self.state.has_lost(cell.pair);
        let group = Group {
            // Processors are meant to pass both legs.
            doubled: doubled.iter().any(|one| !one.part.is_of_processor()),
            uneven: self.state.is_uneven(class),
            lost,
            ..plain(mode, class, theory)
        };
        let item = Item {
            key: cell.key(),
            mode,
            passes: self.numbers(&passes),
            detour: self.detour(cell.pair, class),
            achieved: cell.achieved_gbps?.0,
            theory,
            floor: self.floors.peer(cell).filter(|_| !lost),
            spread_percent: cell.spread_percent.unwrap_or(0.0),
            group,
            ends: Some((source, destination)),
            healthy: Healthy::default(),
        };
        (item.achieved > 0.0).then_some(item)
    }

    fn local(&mut self, measurements: &Measurements) -> Vec<Observation> {
        let mut chosen: BTreeMap<u32, &LocalCopy> = BTreeMap::new();
        for copy in &measurements.local {
            if copy.is_sound() && copy.achieved_gbps.is_some() {
                let largest = chosen.entry(copy.gpu).or_insert(copy);
                if largest.bytes < copy.bytes {
                    *largest = copy;
                }
            }
        }
        let item = |copy: &LocalCopy| {
            let parts = [
                Resource::new(Part::Local(copy.gpu), Way::Up),
                Resource::new(Part::Gpu(copy.gpu), Way::Up),
                Resource::new(Part::Gpu(copy.gpu), Way::Down),
                Resource::new(Part::Class(Class::Local), Way::Up),
                Resource::new(Part::Machine, Way::Up),
            ];
            let item = Item {
                key: copy.key(),
                mode: Mode::Local,
                passes: self.numbers(&parts),
                detour: None,
                achieved: copy.achieved_gbps?.0,
                theory: None,
                floor: None,
                spread_percent: copy.spread_percent.unwrap_or(0.0),
                group: Group {
                    model: self.state.model(copy.gpu),
                    ..plain(Mode::Local, Class::Local, None)
                },
                ends: None,
                healthy: Healthy::default(),
            };
            (item.achieved > 0.0).then_some(Observation { items: vec![item], load: None })
        };
        chosen.into_values().filter_map(item).collect()
    }

    /// Returns the payload rate of the way over PCIe, for a pair whose copies are to go over NVLink.
    fn detour(&self, pair: Pair, class: Class) -> Option<f64> {
        let theory = self.state.route(pair.into(), Path::Staged).theory;
        theory.filter(|_| class == Class::NvLink)
    }

    /// Returns `None` if a flow has no figure: the others may have used what it left.
    fn load(&mut self, load: &LoadPattern) -> Option<Observation> {
        load.rate()?;
        let (mut items, mut routes) = (Vec::new(), Vec::new());
        for flow in &load.flows {
            let (item, route) = self.load_flow(load, flow.flow(), flow.achieved_gbps?.0)?;
            items.push(item);
            routes.push(route.steps);
        }
        (items.len() > 1).then(|| self.several_at_once(items, routes))
    }

    fn load_flow(
        &mut self,
        load: &LoadPattern,
        flow: Flow,
        achieved: f64,
    ) -> Option<(Item, Route<'a>)> {
        let path = flow.pair().map_or(Path::Direct, |pair| self.state.ways.path(pair));
        let route = self.state.route(flow, path);
        let node = flow.ends().into_iter().find_map(Endpoint::node).flatten();
        let direction = flow.with_host().map(|_| match flow.to {
            Endpoint::Gpu(_) => HostDirection::ToDevice,
            Endpoint::Host { .. } => HostDirection::ToHost,
        });
        let group = Group {
            direction,
            far: flow.with_host().is_some_and(|gpu| self.state.is_far(gpu, node)),
            load: Some((load.pattern, load.flows.len())),
            uneven: self.state.is_uneven(route.class),
            lost: matches!(route.class, Class::Pcie(_))
                && flow.pair().is_some_and(|pair| self.state.has_lost(pair)),
            ..plain(Mode::Load, route.class, route.theory)
        };
        let item = Item {
            key: load.key_of(flow),
            mode: Mode::Load,
            passes: self.numbers(&route.passes),
            detour: flow.pair().and_then(|pair| self.detour(pair, route.class)),
            achieved,
            theory: route.theory,
            floor: None,
            spread_percent: load.spread_percent.unwrap_or(0.0),
            group,
            ends: flow.pair().map(|pair| (pair.source, pair.destination)),
            healthy: Healthy::default(),
        };
        (achieved > 0.0).then_some((item, route))
    }

    fn several_at_once(&self, items: Vec<Item>, ways: Vec<Vec<Leg<'a>>>) -> Observation {
        let load = Load { ways };
        let carries = |step: &Leg<'a>| Some(self.state.carries(step)? * SHARED);
        let limits = load.limits(carries).into_iter().map(|(_, limit)| limit);
        // A single flow is limited by its own rate alone.
        let limits = limits.filter(|limit| limit.flows.len() > 1);
        Observation { items, load: Some(limits.collect()) }
    }

    fn numbers(&mut self, resources: &[Resource]) -> Vec<Number> {
        let numbers = resources.iter().map(|one| self.resources.number(*one));
        let mut numbers: Vec<Number> = numbers.collect();
        numbers.sort_unstable();
        numbers.dedup();
        numbers
    }
}

/// Returns the links that a staged copy passes up and down again, as resources of both directions.
fn links_passed_twice(passes: &[Resource]) -> Vec<Resource> {
    let is_down = |part: Part| passes.contains(&Resource::new(part, Way::Down));
    let ups = passes.iter().filter(|one| one.way == Way::Up);
    let twice = ups.filter(|one| matches!(one.part, Part::Link(_)) && is_down(one.part));
    twice.map(|one| Resource::new(one.part, Way::Both)).collect()
}

/// Returns the mode of a copy with the host; `None` for copies that are measured for another purpose, or of whose rate the
/// processor decides.
fn host_mode_of(copy: &HostCopy) -> Option<Mode> {
    let way = copy.way();
    let is_both = way.direction == HostDirection::BothWays;
    match (is_both, copy.at_once) {
        _ if way != HostWay::PINNED.with_direction(way.direction) => None,
        (true, 1) => Some(Mode::HostBothWays),
        (false, 1) => Some(Mode::Host),
        (false, _) => Some(Mode::HostAtOnce),
        (true, _) => None,
    }
}

/// Returns the mode of a copy between GPUs; `None` for copies that are measured for another purpose.
fn mode_of(cell: &PeerBandwidth) -> Option<Mode> {
    let setup = cell.setup;
    if setup.placement != Placement::REFERENCE {
        return None;
    }
    let mode = match (setup.engine, setup.issuer) {
        (Engine::Copy, Side::Source) => Mode::Copy,
        (Engine::Copy, Side::Destination) => Mode::Read,
        (Engine::Kernel, Side::Source) => Mode::KernelWrite,
        (Engine::Kernel, Side::Destination) => Mode::KernelRead,
    };
    match (setup.path, setup.direction, mode) {
        (Path::Staged, Direction::OneWay, Mode::Copy) => Some(Mode::Staged),
        (Path::Direct, Direction::OneWay, mode) => Some(mode),
        (Path::Direct, Direction::BothWays, Mode::Copy) => Some(Mode::BothWays),
        _ => None,
    }
}

fn plain(mode: Mode, class: Class, theory: Option<f64>) -> Group {
    Group {
        mode,
        class,
        direction: None,
        far: false,
        doubled: false,
        uneven: false,
        load: None,
        known: theory.is_some(),
        tenths: 0,
        model: None,
        lost: false,
    }
}
