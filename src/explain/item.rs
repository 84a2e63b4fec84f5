//! A measured figure: what it measures, what its flow passes, and what it should be.

use model::cell::FigureKey;
use model::host::{HostCopy, HostDirection};
use model::load::Pattern;
use model::measurement::PeerBandwidth;
use topology::load::Together;

use super::resource::{Class, Number};

/// What a figure measures, regardless of its flow.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Mode {
    /// Direct copy that the source issues.
    Copy,
    /// Direct copy that the destination issues.
    Read,
    /// Direct copy by a kernel of the source.
    KernelWrite,
    /// Direct copy by a kernel of the destination.
    KernelRead,
    /// Direct copy while the opposite direction is busy.
    BothWays,
    /// Copy of two GPUs through host memory.
    Staged,
    /// Copy with page-locked host memory.
    Host,
    /// The same with both directions busy.
    HostBothWays,
    /// The same by several GPUs at once.
    HostAtOnce,
    /// Copy within a GPU.
    Local,
    /// One of several flows at once.
    Load,
}

/// A set of modes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Modes(u16);

impl Modes {
    pub(crate) const ALL: Self = Self(u16::MAX);
    /// Direct copies between GPUs, alone or several at once.
    pub(crate) const DIRECT: Self = Self::of(&[
        Mode::Copy,
        Mode::Read,
        Mode::KernelWrite,
        Mode::KernelRead,
        Mode::BothWays,
        Mode::Load,
    ]);
    /// Copies with the host.
    pub(crate) const HOST: Self = Self::of(&[Mode::Host, Mode::HostBothWays, Mode::HostAtOnce]);

    pub(crate) const fn of(modes: &[Mode]) -> Self {
        let (mut bits, mut at) = (0, 0);
        while at < modes.len() {
            bits |= 1 << modes[at] as u16;
            at += 1;
        }
        Self(bits)
    }

    pub(crate) const fn has(self, mode: Mode) -> bool {
        self.0 & (1 << mode as u16) != 0
    }
}

/// The figures that one is compared with.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Group {
    pub mode: Mode,
    pub class: Class,
    /// Direction of copies with the host.
    pub direction: Option<HostDirection>,
    /// True if the way to host memory passes the way between nodes.
    pub far: bool,
    /// True if both legs of a staged copy pass one link.
    pub doubled: bool,
    /// True if the way leads between two of more than two NUMA nodes: such ways differ, and no file shows how.
    pub uneven: bool,
    /// Pattern and number of flows of a load.
    pub load: Option<(Pattern, usize)>,
    /// False if no rate on the way is known: then rates are compared instead of shares.
    pub known: bool,
    /// Tenths of its rate alone that a flow has beside the others of a load.
    pub tenths: u8,
    /// True if NVLinks that are down would join the two GPUs: their copies were never meant to go over PCIe.
    pub lost: bool,
    /// For copies within a GPU: the first GPU of the same model.
    pub model: Option<u32>,
}

/// One figure.
#[derive(Debug, Clone)]
pub(crate) struct Item {
    pub key: FigureKey,
    pub mode: Mode,
    /// Numbers of the resources that its flow passes, sorted.
    pub passes: Vec<Number>,
    /// Payload rate of the way over PCIe for a copy over NVLink, GB/s.
    pub detour: Option<f64>,
    /// GB/s.
    pub achieved: f64,
    /// Payload rate of the narrowest hop, GB/s.
    pub theory: Option<f64>,
    /// Least share of `theory` that a healthy machine reaches.
    pub floor: Option<f64>,
    pub spread_percent: f64,
    pub group: Group,
    /// Both ends of the flow, if they are GPUs.
    pub ends: Option<(u32, u32)>,
    pub healthy: Healthy,
}

impl Item {
    /// Returns true if it is lower than it may be.
    pub(crate) fn is_low(&self) -> bool {
        self.achieved < self.healthy.rate * (1.0 - self.healthy.tolerance)
    }
}

/// What was measured at the same time: one figure, or those of all flows of a load.
pub(crate) struct Observation {
    pub items: Vec<Item>,
    /// What links carry for several flows, if there are several.
    pub load: Option<Vec<Together>>,
}

/// Least shares of the theoretical rate that healthy machines reach, from 0 to 1. `None` if no share is known.
pub trait Floors {
    /// Returns the share for a copy between GPUs.
    fn peer(&self, cell: &PeerBandwidth) -> Option<f64>;
    /// Returns the share for a copy with the host.
    fn host(&self, copy: &HostCopy) -> Option<f64>;
    /// Returns true if an uplink that no file shows limits this GPU by design, as a chipset's does.
    fn is_below_hidden_uplink(&self, _gpu: u32) -> bool {
        false
    }
}

/// What a figure should be on this machine if nothing were wrong with it.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Healthy {
    /// Rate, GB/s.
    pub rate: f64,
    /// Part of the rate by which the figure may lie below it.
    pub tolerance: f64,
    /// Part of it that the scatter of the whole run allows, even if its whole group is low.
    pub excused: f64,
    /// Loss that counts as one bit, as a natural logarithm.
    pub log_per_bit: f64,
    /// Part of the healthy rate that its whole group reaches: below 1, all alike are slow.
    pub level: f64,
    /// Part of a limit that copies of this class get of it, beside those that get most: copies through processors get less of
    /// the same link.
    pub efficiency: f64,
    /// Rate that the way carries for a plain copy, GB/s. A limit above it limits nothing.
    pub carries: f64,
    /// For a flow of a load: rate alone, GB/s.
    pub alone: f64,
    /// For a flow of a load: part of the predicted share that such flows really reach.
    pub reached: f64,
}
