//! Changes of the machine that would account for figures, and what each costs.
//!
//! Costs are in bits: the length of the shortest text that names the change among all of its kind. The fewest and
//! likeliest changes are the shortest text (consistency-based diagnosis: Reiter, "A Theory of Diagnosis from First
//! Principles", 1987; de Kleer and Williams, "Diagnosing Multiple Faults", 1987).

use std::rc::Rc;

use model::topology::{LinkKind, Topology};

use super::item::{Item, Mode, Modes};
use super::resource::{Number, Part, Way};
use super::state::State;

/// What a change does to the flows that pass a resource.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Effect {
    /// All flows together get this rate at most, GB/s.
    Capacity(f64),
    /// Each flow gets this part of its rate.
    Factor(f64),
    /// Each flow is as slow as its whole group is, beside what healthy machines reach.
    Level,
    /// Copies over NVLink have the rate of the way over PCIe.
    Detour,
}

/// A change of one part of the machine, or of a hop that some GPUs share and no file shows.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Hypothesis {
    /// The part. Several: the exits of the GPUs that share a hidden hop.
    pub parts: Rc<[Part]>,
    /// The direction that it changes; `None` for both directions.
    pub way: Option<Way>,
    /// Sets of resources, sorted. Each set has a limit of its own.
    pub on: Rc<[Vec<Number>]>,
    pub effect: Effect,
    /// The figures that it changes.
    pub modes: Modes,
    /// True if it limits only several flows at once.
    pub under_load: bool,
    /// Its cost.
    pub bits: f64,
}

impl Hypothesis {
    /// Returns true if it may change this figure.
    pub(crate) fn is_on(&self, item: &Item) -> bool {
        self.modes.has(item.mode)
    }

    /// Returns true if it is the limit of a hop above several GPUs that no file shows.
    pub(crate) fn is_hidden_hop(&self) -> bool {
        self.parts.len() > 1 && matches!(self.effect, Effect::Capacity(_))
    }

    /// Returns the number of its sets that a flow passes.
    pub(crate) fn passed_by(&self, item: &Item) -> usize {
        (self.on.iter()).filter(|set| meet(set, &item.passes)).count()
    }

    /// Returns true if both ends of a flow lie below the hidden hop: the flow may pass it or not. Staged copies always do.
    pub(crate) fn is_inside(&self, item: &Item) -> bool {
        if item.mode == Mode::Staged {
            return false;
        }
        let has = |gpu| self.parts.contains(&Part::Exit(gpu));
        item.ends.is_some_and(|(source, destination)| has(source) && has(destination))
    }

    fn is_of_same_kind(&self, other: &Self) -> bool {
        let discriminant = |one: &Self| std::mem::discriminant(&one.effect);
        (self.modes, self.under_load) == (other.modes, other.under_load)
            && discriminant(self) == discriminant(other)
            && self.parts == other.parts
    }

    /// Returns true if one of the two makes the other absurd: the same change of the same part twice, one of them in
    /// one direction only.
    pub(crate) fn excludes(&self, other: &Self) -> bool {
        let both = |one: &Self| one.way.is_none();
        self.is_of_same_kind(other) && (both(self) || both(other) || self.way == other.way)
    }
}

/// Returns true if two sorted lists have a number in common.
pub(crate) fn meet(one: &[Number], other: &[Number]) -> bool {
    let (small, large) = if one.len() <= other.len() { (one, other) } else { (other, one) };
    small.iter().any(|number| large.binary_search(number).is_ok())
}

/// What changes of this machine cost.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Costs {
    gpus: f64,
    pairs: f64,
    links: f64,
    is_virtual: bool,
}

impl Costs {
    #[allow(clippy::cast_precision_loss, reason = "numbers of parts")]
    pub(crate) fn of(state: &State<'_>) -> Self {
        let gpus = state.gpus.len().max(1) as f64;
        let links = |topology: &Topology| {
            let pcie = topology
                .links
                .iter()
                .filter(|link| link.kind == LinkKind::Pcie && link.pcie.is_some());
            pcie.count().max(1) as f64
        };
        Self {
            gpus: gpus.log2(),
            pairs: (gpus * (gpus - 1.0) / 2.0).max(1.0).log2(),
            links: links(state.topology).log2(),
            is_virtual: state.is_virtual,
        }
    }

    /// Returns the bits of a change of a part. Which kinds are cheap was found with machines whose faults are known.
    pub(crate) fn part(&self, part: Part) -> f64 {
        match part {
            _ if part.is_of_processor() => 6.0,
            Part::Link(_) => 4.0 + self.links,
            Part::NvPort(_) => 5.0 + self.gpus,
            Part::NvPair(..) => 5.0 + self.pairs,
            Part::Gpu(_) => 5.5 + self.gpus,
            Part::Local(_) => 4.0 + self.gpus,
            Part::Host(_) | Part::Stage(_) => 7.0 + self.gpus,
            Part::Pair(..) => 8.0 + self.pairs,
            Part::StagedPair(..) => 9.0 + self.pairs,
            Part::Machine => 11.0,
            _ => 9.0,
        }
    }

    /// Returns the bits of a hop that no file shows above this number of GPUs. Guests hide hops, machines rarely do.
    #[allow(clippy::cast_precision_loss, reason = "numbers of parts")]
    pub(crate) fn hidden(&self, gpus: usize) -> f64 {
        let seldom = if self.is_virtual { 0.0 } else { 2.0 };
        9.0 + seldom + 0.7 * gpus as f64
    }

    /// Returns the bits of a loss that only shows while both directions are busy.
    pub(crate) fn both_ways(&self) -> f64 {
        8.0 + self.gpus
    }
}
