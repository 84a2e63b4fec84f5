//! Measurements as all probes have them. A probe declares its cell once; JSON, schema, plausibility, disturbed and withheld
//! figures, the count of tested measurements, and tables of all figures follow from the declaration.

mod declare;

use super::flow::{Allocation, Endpoint, Flow, Pattern, Setup};
use super::probe::Probe;
use super::status::{Ending, Status, Verified};
use super::units::{Bytes, GbPerSecond};
pub(crate) use declare::{cell, role};

/// No rate within a machine is higher, GB/s: about a hundred times the rate of all GPU memory in a rack.
const MOST_GBPS: f64 = 1e6;

/// The highest believable percentage of what a link carries or healthy machines reach. A link read at rest, where it
/// shows its lowest rate, has produced 1300.
const MOST_PERCENT: f64 = 10_000.0;

/// Tolerance for rounding of a share that cannot be above 100 per cent.
const ROUNDED: f64 = 0.1;

/// The kind of quantity that a figure is, which limits its value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Quantity {
    /// GB/s.
    Rate,
    /// A part of a whole, per cent.
    Share,
    /// A comparison with a reference, per cent.
    Percent,
    /// A time that cannot be zero.
    Duration,
    /// A time, spread, factor or number: anything from zero on.
    Amount,
}

/// A figure of a measurement.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Figure {
    /// Its key in the report.
    pub key: &'static str,
    /// `None` if it is not known.
    pub value: Option<f64>,
    pub quantity: Quantity,
    /// True if it was not measured: measured figures are compared with it.
    pub is_given: bool,
    /// Number of the flow that it belongs to; `None` for figures of the whole measurement.
    pub flow: Option<usize>,
}

impl Figure {
    pub fn new(key: &'static str, value: impl Value, quantity: Quantity) -> Self {
        Self { key, value: value.value(), quantity, is_given: false, flow: None }
    }

    /// Returns the same figure, as one that measured figures are compared with.
    #[must_use]
    pub const fn given(self) -> Self {
        Self { is_given: true, ..self }
    }

    /// Returns the same figure, of one of several flows.
    #[must_use]
    pub const fn of_flow(self, number: usize) -> Self {
        Self { flow: Some(number), ..self }
    }

    /// Returns its unit, by the end of its key. Empty for a number or an index.
    pub fn unit(&self) -> &'static str {
        let units = [
            ("_gbps", "GB/s"),
            ("percent", "%"),
            ("_us", "us"),
            ("_ns", "ns"),
            ("_ms_per_gib", "ms/GiB"),
            ("_bytes", "B"),
        ];
        let found = units.iter().find(|(end, _)| self.key.ends_with(end));
        found.map_or("", |(_, unit)| unit)
    }

    /// Returns why the value cannot be.
    pub fn impossible(&self) -> Option<String> {
        let (key, value) = (self.key, self.value?);
        let is_amount = value.is_finite() && value >= 0.0;
        let why = match self.quantity {
            Quantity::Rate if !is_amount || value > MOST_GBPS => "which is no rate",
            _ if !is_amount => "which is no quantity",
            Quantity::Share if value > 100.0 + ROUNDED => "which is no share",
            Quantity::Percent if value > MOST_PERCENT => "which is no share",
            Quantity::Duration if value == 0.0 => "and every copy takes time",
            _ => return None,
        };
        Some(format!("{key} is {value}, {why}"))
    }
}

/// A type of figures in cells.
pub trait Value {
    fn value(self) -> Option<f64>;
}

impl Value for &Option<f64> {
    fn value(self) -> Option<f64> {
        *self
    }
}

impl Value for &Option<GbPerSecond> {
    fn value(self) -> Option<f64> {
        self.map(|rate| rate.0)
    }
}

impl Value for &Option<Bytes> {
    #[allow(clippy::cast_precision_loss, reason = "sizes stay far below 2^53")]
    fn value(self) -> Option<f64> {
        self.map(|bytes| bytes.0 as f64)
    }
}

impl Value for &Option<bool> {
    fn value(self) -> Option<f64> {
        self.map(|is| f64::from(u8::from(is)))
    }
}

impl Value for &Option<u32> {
    fn value(self) -> Option<f64> {
        self.map(f64::from)
    }
}

/// One requested measurement of one flow: the fields that all probes share.
#[derive(Debug, Clone, Copy)]
pub struct Cell<'a> {
    pub probe: Probe,
    /// Source and destination.
    pub flow: Flow,
    /// Setup of the copy.
    pub setup: Setup,
    /// Status of the measurement.
    pub status: Status,
    /// True if it has a figure.
    pub has_figure: bool,
    /// Reason why there is no figure.
    pub reason: Option<&'a str>,
    /// Result of checking the bytes.
    pub verified: Verified,
    /// True if another program disturbed it.
    pub disturbed: bool,
    /// True if this platform cannot do it, as the driver says.
    pub not_supported: bool,
}

impl Cell<'_> {
    /// Returns true if the bytes come from or go to this GPU.
    pub fn uses(&self, gpu: u32) -> bool {
        self.flow.ends().contains(&Endpoint::Gpu(gpu))
    }

    /// Returns true if it has a result. Wrong bytes are a result, regardless of the timing.
    pub fn tested(&self) -> bool {
        self.verified.is_wrong()
            || (self.status == Status::Measured && self.has_figure && !self.disturbed)
    }
}

/// The key of a figure, unique within a report.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct FigureKey {
    /// The probe that measured it.
    pub probe: Probe,
    /// Source and destination.
    pub flow: Flow,
    /// Setup of the copy, its size included.
    pub setup: Setup,
    /// The rest of the key.
    pub apart: Apart,
}

/// The part of a key in which figures of one flow and setup differ.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Apart {
    /// There is only one such figure.
    Nothing,
    /// Origin of the host's buffer, and GPUs that copied at the same time.
    Host(Allocation, u32),
    /// The pattern that the flow is one of, and its name among those of its kind.
    Load(Pattern, String),
}

/// The subject of a measurement, which each probe names itself.
pub trait Subject {
    /// Returns source and destination of the copied bytes. A measurement without copies returns the GPU for both.
    fn flow(&self) -> Flow;

    /// Returns the setup of its copy.
    fn setup(&self) -> Setup;

    /// Returns the part of its key that differs from others of its flow and setup.
    fn apart(&self) -> Apart {
        Apart::Nothing
    }

    /// Describes, for people, the difference from other measurements of its probe and flow.
    fn what(&self) -> String;

    /// Returns the same without the size, for figures that are compared regardless of it.
    fn what_of_any_size(&self) -> String {
        self.what()
    }

    /// Returns its name, unique within its probe.
    fn title(&self) -> String {
        format!("{}, {}", self.flow(), self.what())
    }
}

/// A measurement of the report, as `cell!` declares it.
pub trait Measurement: Subject {
    fn probe(&self) -> Probe;

    /// Returns what it was planned with, each by its name in a table.
    fn axes(&self) -> Vec<(&'static str, String)>;

    /// Returns the names that `axes` uses.
    fn axis_names() -> Vec<&'static str>
    where
        Self: Sized;

    /// Returns its figures, the main figure first. Figures that it is compared with come last.
    fn figures(&self) -> Vec<Figure>;

    /// Removes the measured figures. Those that it is compared with stay.
    fn forget(&mut self);

    fn ending(&self) -> &Ending;

    fn ending_mut(&mut self) -> &mut Ending;

    /// Returns the result of checking the bytes.
    fn verified(&self) -> Verified;

    /// Marks a measured figure whose bytes were not checked, although its probe checks them, as not verified.
    fn doubt_unchecked(&mut self);

    /// Returns true if the measurement has a result.
    fn has_figure(&self) -> bool;

    /// Returns the number of flows, each of which is a cell.
    fn parts(&self) -> usize;

    /// Returns source and destination of one of the flows.
    fn flow_of(&self, part: usize) -> Flow;

    /// Returns its name, for people.
    fn identity(&self) -> String {
        format!("{}, {}", self.probe(), self.title())
    }

    /// Returns the key of the figure of its flow.
    fn key(&self) -> FigureKey {
        self.key_of(self.flow())
    }

    /// Returns the key of the figure of one of its flows.
    fn key_of(&self, flow: Flow) -> FigureKey {
        FigureKey { probe: self.probe(), flow, setup: self.setup(), apart: self.apart() }
    }

    /// Returns the fields that all probes share.
    fn cell(&self) -> Cell<'_> {
        let ending = self.ending();
        Cell {
            probe: self.probe(),
            flow: self.flow(),
            setup: self.setup(),
            status: ending.status,
            has_figure: self.has_figure(),
            reason: ending.reason.as_deref(),
            verified: self.verified(),
            disturbed: ending.disturbed,
            not_supported: ending.not_supported,
        }
    }

    /// Returns true if its figures are valid: they were measured, the bytes arrived, and no other program disturbed them.
    fn is_sound(&self) -> bool {
        self.has_figure() && self.ending().is_sound() && !self.verified().is_wrong()
    }

    /// Returns the cell of one of the flows.
    fn part(&self, number: usize) -> Cell<'_> {
        Cell { flow: self.flow_of(number), ..self.cell() }
    }
}

/// Sorts figures by their rank, and appends those of single flows.
pub(crate) fn in_order<const FIELDS: usize>(
    own: [Option<(u8, Figure)>; FIELDS],
    of_flows: Vec<Figure>,
) -> Vec<Figure> {
    let mut own: Vec<_> = own.into_iter().flatten().collect();
    own.sort_by_key(|(rank, _)| *rank);
    let own = own.into_iter().map(|(_, figure)| figure);
    own.chain(of_flows).collect()
}
