//! Measurements as all probes have them. A probe declares the figures of its cell once; plausibility, disturbed and withheld
//! figures, and the count of tested measurements follow from the declaration.

use super::flow::{Endpoint, Flow, Setup};
use super::probe::Probe;
use super::status::{Status, Verified};
use super::units::GbPerSecond;

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
    /// A fairness index from 0 to 1.
    Index,
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
}

impl Figure {
    pub fn new(key: &'static str, value: impl Value, quantity: Quantity) -> Self {
        Self {
            key,
            value: value.value(),
            quantity,
        }
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
            Quantity::Index if value > 1.0 + ROUNDED => "above 1",
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

/// The end of a measurement.
#[derive(Debug, Clone, Copy)]
pub struct Ended<'a> {
    pub status: Status,
    /// Reason why there is no figure.
    pub reason: Option<&'a str>,
    /// True if another program disturbed it.
    pub disturbed: bool,
}

/// A measurement of the report.
pub trait Measurement {
    fn probe(&self) -> Probe;

    /// Returns source and destination of the copied bytes. A measurement without copies returns the GPU for both.
    fn flow(&self) -> Flow;

    /// Returns the setup of its copy.
    fn setup(&self) -> Setup;

    /// Describes, for people, the difference from other measurements of its probe and flow.
    fn what(&self) -> String;

    /// Returns its figures, the main figure first. Figures that it is compared with come last.
    fn figures(&self) -> Vec<Figure>;

    /// Removes the measured figures. Those that it is compared with stay.
    fn forget(&mut self);

    fn ended(&self) -> Ended<'_>;

    /// Sets status and reason.
    fn end(&mut self, status: Status, reason: Option<String>);

    /// Sets if another program disturbed it.
    fn set_disturbed(&mut self, disturbed: bool);

    fn verified(&self) -> Verified {
        Verified::Skipped
    }

    /// Returns true if the measurement has a result.
    fn has_figure(&self) -> bool;

    /// Returns its name, unique within a report.
    fn identity(&self) -> String {
        format!("{}, {}, {}", self.probe(), self.flow(), self.what())
    }

    /// Returns the fields that all probes share.
    fn cell(&self) -> Cell<'_> {
        let Ended {
            status,
            reason,
            disturbed,
        } = self.ended();
        Cell {
            probe: self.probe(),
            flow: self.flow(),
            setup: self.setup(),
            status,
            has_figure: self.has_figure(),
            reason,
            verified: self.verified(),
            disturbed,
        }
    }

    /// Returns the number of flows, each of which is a cell.
    fn parts(&self) -> usize {
        1
    }

    /// Returns the cell of one of the flows.
    fn part(&self, _number: usize) -> Cell<'_> {
        self.cell()
    }
}

/// Declares the figures of a cell, within `impl Measurement`: each with its kind of quantity, the main figure first. `given`
/// are figures that the measured ones are compared with, `also` values that go with the figures, `other` everything else; a
/// figure after `or` is as good as the main one. A field that is in no list does not compile.
macro_rules! figures {
    (
        measured { $main:ident: $kind:ident $(, $figure:ident: $quantity:ident)* $(,)? }
        $(or $or:ident)?
        $(given { $($given:ident: $given_quantity:ident),* $(,)? })?
        $(also { $($also:ident),* $(,)? })?
        other { $($other:ident),* $(,)? }
    ) => {
        fn figures(&self) -> Vec<crate::cell::Figure> {
            use crate::cell::{Figure, Quantity};
            let Self { $main, $($figure,)* $($($given,)*)? $($($also: _,)*)? $($other: _,)* } = self;
            vec![
                Figure::new(stringify!($main), $main, Quantity::$kind),
                $(Figure::new(stringify!($figure), $figure, Quantity::$quantity),)*
                $($(Figure::new(stringify!($given), $given, Quantity::$given_quantity),)*)?
            ]
        }

        fn forget(&mut self) {
            self.$main = None;
            $(self.$figure = None;)*
            $($(self.$also = None;)*)?
        }

        fn has_figure(&self) -> bool {
            self.$main.is_some() $(|| self.$or.is_some())?
        }
    };
}

/// Gives `impl Measurement` the end of a cell: from its fields `status`, `reason` and `disturbed`, or from `ending`.
macro_rules! ended {
    () => {
        ended!(@ status, reason, disturbed);
    };
    (ending) => {
        ended!(@ ending.status, ending.reason, ending.disturbed);
    };
    (@ $($status:ident).+, $($reason:ident).+, $($disturbed:ident).+) => {
        fn ended(&self) -> crate::cell::Ended<'_> {
            crate::cell::Ended {
                status: self.$($status).+,
                reason: self.$($reason).+.as_deref(),
                disturbed: self.$($disturbed).+,
            }
        }

        fn end(&mut self, status: crate::status::Status, reason: Option<String>) {
            self.$($status).+ = status;
            self.$($reason).+ = reason;
        }

        fn set_disturbed(&mut self, disturbed: bool) {
            self.$($disturbed).+ = disturbed;
        }
    };
}

pub(crate) use {ended, figures};
