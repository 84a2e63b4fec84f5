//! Random simulated machines, checked within the test's process.

use std::collections::BTreeSet;
use std::fmt::Write;
use std::time::Duration;

use diagnose::{Evidence, Settings};
use fastrand::Rng;
use measure::{Bench, Selection, assemble};
use model::flow::Setup;
use model::measurement::Measurements;
use model::placement::{Direction, Path};
use model::report::{Report, SCHEMA, Timing, Tool, Verdict};
use model::request::Request;
use model::snapshot::{SlowFact, Snapshot};
use model::units::{Bytes, GIB};
use plan::{Action, Group, Profile, Round, profile};

const LIMIT: Duration = Duration::from_secs(60);

/// A place for a card.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Slot {
    /// The switch above it; a root port of its own if there is none.
    pub switch: Option<usize>,
    pub node: usize,
    /// Lanes that the port has, and those that trained.
    pub lanes: u32,
    pub trained: u32,
}

/// A machine with one card in each slot.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Machine {
    pub nodes: usize,
    /// NUMA node and lanes of the uplink of each switch.
    pub switches: Vec<(usize, u32)>,
    pub slots: Vec<Slot>,
    /// Slot of each GPU.
    pub cards: Vec<usize>,
    /// Pairs joined by NVLinks.
    pub bridges: BTreeSet<(usize, usize)>,
    /// Pairs without peer access.
    pub refused: BTreeSet<(usize, usize)>,
}

impl Machine {
    /// Makes a machine with this many GPUs.
    pub(crate) fn random(rng: &mut Rng, gpus: usize) -> Self {
        let nodes = rng.usize(1..=2);
        let switches: Vec<(usize, u32)> =
            (0..rng.usize(0..=3)).map(|_| (rng.usize(0..nodes), 16)).collect();
        let slot = |rng: &mut Rng| {
            let switch = rng.usize(0..=switches.len());
            let switch = (switch < switches.len()).then_some(switch);
            let lanes = if rng.u32(0..6) == 0 { 8 } else { 16 };
            let trained = if rng.u32(0..6) == 0 { 4 } else { lanes };
            let node = switch.map_or_else(|| rng.usize(0..nodes), |switch| switches[switch].0);
            Slot { switch, node, lanes, trained }
        };
        let slots: Vec<Slot> = (0..gpus).map(|_| slot(rng)).collect();
        let mut cards: Vec<usize> = (0..gpus).collect();
        rng.shuffle(&mut cards);
        let mut bridges = BTreeSet::new();
        let mut refused = BTreeSet::new();
        for one in 0..gpus {
            for other in one + 1..gpus {
                let is_free = |gpu| bridges.iter().all(|(a, b)| *a != gpu && *b != gpu);
                match rng.u32(0..12) {
                    0 if is_free(one) && is_free(other) => drop(bridges.insert((one, other))),
                    1 => drop(refused.insert((one, other))),
                    _ => {}
                }
            }
        }
        refused.retain(|pair| !bridges.contains(pair));
        Self { nodes, switches, slots, cards, bridges, refused }
    }

    fn bus_of_switch(&self, switch: usize) -> usize {
        let base = if self.switches[switch].0 == 0 { 0x10 } else { 0x90 };
        base + switch * 0x10
    }

    /// Returns the PCI address of the card in this slot.
    pub(crate) fn address(&self, slot: usize) -> String {
        match self.slots[slot].switch {
            Some(switch) => {
                let bus = self.bus_of_switch(switch) + 2 + slot;
                format!("0000:{bus:02x}:00.0")
            }
            None => {
                let base = if self.slots[slot].node == 0 { 0x60 } else { 0xe0 };
                format!("0000:{:02x}:00.0", base + slot)
            }
        }
    }

    /// Returns the description of the machine.
    pub(crate) fn describe(&self) -> String {
        let mut text = String::from("summary = \"random\"\n");
        let node = "{ cpus = \"0-31\", memory = \"256GiB\" }";
        writeln!(text, "numa_nodes = [{}]", vec![node; self.nodes].join(", ")).unwrap();
        let mut function = |address: &str, rest: &str| {
            writeln!(text, "[[pci]]\naddress = \"{address}\"\n{rest}").unwrap();
        };
        let root = |node: usize| if node == 0 { "00" } else { "80" };
        for (switch, (node, lanes)) in self.switches.iter().enumerate() {
            let (bus, root) = (self.bus_of_switch(switch), root(*node));
            let port = format!("0000:{root}:{:02x}.0", switch + 1);
            let link = format!("max = \"Gen4 x{lanes}\"");
            let of_node = format!("kind = \"root-port\"\nnuma_node = {node}\n{link}");
            function(&port, &of_node);
            let upstream = format!("0000:{bus:02x}:00.0");
            let below = format!("parent = \"{port}\"\nkind = \"switch-upstream\"\n{link}");
            function(&upstream, &below);
        }
        for (at, slot) in self.slots.iter().enumerate() {
            let port_link = format!("max = \"Gen4 x{}\"", slot.lanes);
            let port = match slot.switch {
                Some(switch) => {
                    let bus = self.bus_of_switch(switch);
                    let port = format!("0000:{:02x}:{at:02x}.0", bus + 1);
                    let rest = format!(
                        "parent = \"0000:{bus:02x}:00.0\"\nkind = \"switch-downstream\"\n{port_link}"
                    );
                    function(&port, &rest);
                    port
                }
                None => {
                    let port = format!("0000:{}:{:02x}.0", root(slot.node), 8 + at);
                    let node = slot.node;
                    let rest = format!("kind = \"root-port\"\nnuma_node = {node}\n{port_link}");
                    function(&port, &rest);
                    port
                }
            };
            let rest = format!(
                "parent = \"{port}\"\nmax = \"Gen4 x16\"\ntrained = \"Gen4 x{}\"\nslot = \"S{at}\"",
                slot.trained
            );
            function(&self.address(at), &rest);
        }
        for (gpu, slot) in self.cards.iter().enumerate() {
            let address = self.address(*slot);
            writeln!(text, "[[gpus]]\nname = \"Test GPU\"\npci = \"{address}\"").unwrap();
            let links = self.bridges.iter().filter_map(|(one, other)| {
                let partner = [(*one, *other), (*other, *one)];
                let (_, partner) = partner.into_iter().find(|(own, _)| *own == gpu)?;
                Some(format!("{{ count = 4, version = \"3.0\", remote = {{ gpu = {partner} }} }}"))
            });
            let links: Vec<String> = links.collect();
            if !links.is_empty() {
                writeln!(text, "nvlinks = [{}]", links.join(", ")).unwrap();
            }
        }
        if !self.refused.is_empty() {
            let rule = |(one, other): &(usize, usize)| {
                format!(
                    "{{ pairs = {{ both = [{one}, {other}] }}, rule = {{ nvml = \"CNS\", cuda = \"refused\" }} }}"
                )
            };
            let rules: Vec<String> = self.refused.iter().map(rule).collect();
            writeln!(text, "[peers]\nexceptions = [{}]", rules.join(", ")).unwrap();
        }
        text
    }

    /// Checks the machine.
    pub(crate) fn check(&self) -> Report {
        check(&self.describe())
    }
}

/// Checks a machine: the copies that decisions are made of, as the profile `standard` makes them.
pub(crate) fn check(description: &str) -> Report {
    let spec =
        sim::load::parse(description).unwrap_or_else(|error| panic!("{error}\n{description}"));
    let snapshot = discover::discover(sim::telemetry(spec.clone()), SlowFact::ALL, LIMIT);
    let driver = sim::driver(spec).unwrap();
    let select = |gpu: &model::snapshot::Gpu| Selection {
        index: gpu.index,
        uuid: gpu.uuid.known().cloned(),
        pci: gpu.pci.get(),
        ..Selection::default()
    };
    let selections: Vec<Selection> = snapshot.gpus.iter().map(select).collect();
    let bench = Bench::open(driver.as_ref(), &selections, Bytes(GIB));
    let facts = bench.facts().clone();
    let mut topology = topology::with_cuda(topology::build(&snapshot), &facts);
    let gpus: Vec<u32> = snapshot.gpus.iter().map(|gpu| gpu.index).collect();
    let rounds = plan::rounds(&plan::Request {
        gpus: &gpus,
        driver: &facts,
        topology: &topology,
        profile: &Profile::load(profile::Name::Standard).unwrap(),
        groups: &BTreeSet::from([Group::Peers, Group::Host, Group::Load]),
        overlap_bytes: None,
        deadline: None,
        serial: false,
    });
    let rounds: Vec<Round> = rounds.into_iter().filter(is_decisive).collect();
    let outcomes = rounds.iter().map(|round| (round.id, bench.run_one(round))).collect();
    let mut measurements =
        Measurements { driver: facts.clone(), ..assemble(&rounds, &outcomes, &topology) };
    topology::refute::readings(&snapshot, &mut topology, &mut measurements);
    topology::host::fill(&snapshot, &topology, &mut measurements.host);
    topology::load::fill(&snapshot, &topology, &mut measurements.load);
    judged(snapshot, topology, measurements)
}

fn is_decisive(round: &Round) -> bool {
    let setup = round.task.setup.of_any_size();
    let ways = [
        Setup::REFERENCE,
        Setup::REFERENCE.with_path(Path::Staged),
        Setup::REFERENCE.with_direction(Direction::BothWays),
    ];
    let between = round.flows.iter().all(|flow| flow.pair().is_some());
    let is_check = matches!(round.task.action, Action::Verify);
    matches!(round.task.action, Action::Load { .. })
        || (!is_check && (!between || ways.contains(&setup)))
}

fn judged(
    snapshot: Snapshot,
    topology: model::topology::Topology,
    measurements: Measurements,
) -> Report {
    let mut report = Report {
        schema: SCHEMA.into(),
        tool: Tool::this(),
        started_at: "2026-01-01T00:00:00Z".into(),
        machine: "random".into(),
        read_from: None,
        request: Request::default(),
        snapshot,
        topology,
        measurements: Some(measurements),
        findings: Vec::new(),
        advice: Vec::new(),
        forecast: None,
        veto: None,
        against: None,
        bracket: None,
        rolling: None,
        verdict: Verdict::default(),
        timing: Timing::default(),
    };
    report.findings = diagnose::judge(&Evidence::of(&report, &Settings::default()));
    report
}
