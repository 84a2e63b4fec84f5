//! Measurements as all probes have them. A probe declares its cell once; JSON, schema, plausibility, disturbed and withheld
//! figures, the count of tested measurements, and tables of all figures follow from the declaration.

use super::flow::{Endpoint, Flow, Setup};
use super::probe::Probe;
use super::status::{Ending, Status, Verified};
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
    /// True if it was not measured: measured figures are compared with it.
    pub is_given: bool,
    /// Number of the flow that it belongs to; `None` for figures of the whole measurement.
    pub flow: Option<usize>,
}

impl Figure {
    pub fn new(key: &'static str, value: impl Value, quantity: Quantity) -> Self {
        Self {
            key,
            value: value.value(),
            quantity,
            is_given: false,
            flow: None,
        }
    }

    /// Returns the same figure, as one that measured figures are compared with.
    #[must_use]
    pub const fn given(self) -> Self {
        Self {
            is_given: true,
            ..self
        }
    }

    /// Returns the same figure, of one of several flows.
    #[must_use]
    pub const fn of_flow(self, number: usize) -> Self {
        Self {
            flow: Some(number),
            ..self
        }
    }

    /// Returns its unit, by the end of its key. Empty for a number or an index.
    pub fn unit(&self) -> &'static str {
        let units = [
            ("_gbps", "GB/s"),
            ("percent", "%"),
            ("_us", "us"),
            ("_ms_per_gib", "ms/GiB"),
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

/// The subject of a measurement, which each probe names itself.
pub trait Subject {
    /// Returns source and destination of the copied bytes. A measurement without copies returns the GPU for both.
    fn flow(&self) -> Flow;

    /// Returns the setup of its copy.
    fn setup(&self) -> Setup;

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

    /// Returns its name, unique within a report.
    fn identity(&self) -> String {
        format!("{}, {}", self.probe(), self.title())
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
        Cell {
            flow: self.flow_of(number),
            ..self.cell()
        }
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

/// Declares a cell once: its probe, what it is planned `with`, and what it `has` afterwards. Struct, JSON, schema and
/// [`Measurement`] follow; [`Subject`] is written by hand. The role of a field follows `=>`:
///
/// - a [`Quantity`]: a measured figure; `main` before it marks the figure that counts as a result;
/// - `given` and a quantity: a figure that the measured ones are compared with;
/// - `also`: a value that goes with the figures;
/// - `checked`: the result of checking the bytes; `sometimes` before it if there may be none to check;
/// - `flows`: the flows of a pattern, each with figures of its own.
///
/// A field of `has` starts as its default, or as the value after `=`.
macro_rules! cell {
    (
        $(#[$about:meta])*
        $name:ident: $probe:ident
        with { $($(#[$key_about:meta])* $key:ident: $key_type:ty $(=> $part:ident)?),* $(,)? }
        has { $($(#[$field_about:meta])* $field:ident: $type:ty $(= $start:expr)? $(=> $($role:ident)+)?),* $(,)? }
    ) => {
        $(#[$about])*
        #[derive(Debug, Clone, PartialEq, serde::Serialize, serde::Deserialize)]
        #[cfg_attr(any(test, feature = "testing"), derive(schemars::JsonSchema))]
        pub struct $name {
            $($(#[$key_about])* pub $key: $key_type,)*
            $($(#[$field_about])* pub $field: $type,)*
            /// Status of the measurement.
            #[serde(flatten)]
            pub ending: crate::status::Ending,
        }

        impl $name {
            /// Returns a measurement without figures, to be filled in.
            #[allow(clippy::too_many_arguments, reason = "each is a field")]
            pub fn blank($($key: $key_type),*) -> Self {
                Self {
                    $($key,)*
                    $($field: crate::cell::role!(start $($start)?),)*
                    ending: crate::status::Ending::MEASURED,
                }
            }
        }

        impl crate::cell::Measurement for $name {
            fn probe(&self) -> crate::probe::Probe {
                crate::probe::Probe::$probe
            }

            fn axes(&self) -> Vec<(&'static str, String)> {
                [$(crate::cell::role!(axes self.$key, $key, $($part)?)),*].concat()
            }

            fn axis_names() -> Vec<&'static str> {
                [$(crate::cell::role!(names $key_type, $key, $($part)?)),*].concat()
            }

            fn figures(&self) -> Vec<crate::cell::Figure> {
                let own = [$(crate::cell::role!(figure self.$field, $field, $($($role)+)?)),*];
                let of_flows = [$(crate::cell::role!(figures self.$key, $($part)?)),*];
                crate::cell::in_order(own, of_flows.concat())
            }

            fn forget(&mut self) {
                $(crate::cell::role!(forget self.$key, $($part)?);)*
                $(crate::cell::role!(forget self.$field, $($($role)+)?);)*
            }

            fn ending(&self) -> &crate::status::Ending {
                &self.ending
            }

            fn ending_mut(&mut self) -> &mut crate::status::Ending {
                &mut self.ending
            }

            fn verified(&self) -> crate::status::Verified {
                let checked = [$(crate::cell::role!(checked self.$field, $($($role)+)?)),*];
                checked.into_iter().flatten().next().unwrap_or(crate::status::Verified::Skipped)
            }

            fn doubt_unchecked(&mut self) {
                if self.has_figure() && self.ending.status == crate::status::Status::Measured {
                    $(crate::cell::role!(doubt self.$field, $($($role)+)?);)*
                }
            }

            fn has_figure(&self) -> bool {
                [$(crate::cell::role!(main self.$field, $($($role)+)?)),*].contains(&true)
            }

            fn parts(&self) -> usize {
                let parts = [$(crate::cell::role!(parts self.$key, $($part)?)),*];
                parts.into_iter().flatten().next().unwrap_or(1)
            }

            fn flow_of(&self, part: usize) -> crate::flow::Flow {
                let flows = [$(crate::cell::role!(flow self.$key, part, $($part)?)),*];
                flows.into_iter().flatten().next().unwrap_or_else(|| crate::cell::Subject::flow(self))
            }
        }
    };
}

/// Expands to the part that a field has in each function of `cell!`, by its role.
macro_rules! role {
    (start) => { Default::default() };
    (start $start:expr) => { $start };

    (axes $value:expr, $field:ident,) => { crate::axis::columns_of(&$value, stringify!($field)) };
    (axes $value:expr, $field:ident, flows) => { Vec::new() };
    (names $type:ty, $field:ident,) => { crate::axis::names_of::<$type>(stringify!($field)) };
    (names $type:ty, $field:ident, flows) => { Vec::new() };

    (figure $value:expr, $field:ident,) => { None };
    (figure $value:expr, $field:ident, also) => { None };
    (figure $value:expr, $field:ident, checked) => { None };
    (figure $value:expr, $field:ident, sometimes checked) => { None };
    (figure $value:expr, $field:ident, main $kind:ident) => {
        Some((0, crate::cell::role!(new $value, $field, $kind)))
    };
    (figure $value:expr, $field:ident, $kind:ident) => {
        Some((1, crate::cell::role!(new $value, $field, $kind)))
    };
    (figure $value:expr, $field:ident, given $kind:ident) => {
        Some((2, crate::cell::role!(new $value, $field, $kind).given()))
    };
    (new $value:expr, $field:ident, $kind:ident) => {
        crate::cell::Figure::new(stringify!($field), &$value, crate::cell::Quantity::$kind)
    };
    (figures $value:expr,) => { Vec::new() };
    (figures $value:expr, flows) => {
        $value.iter().enumerate().flat_map(|(number, flow)| flow.figures(number)).collect()
    };

    (forget $value:expr,) => {};
    (forget $value:expr, checked) => {};
    (forget $value:expr, sometimes checked) => {};
    (forget $value:expr, given $kind:ident) => {};
    (forget $value:expr, flows) => {
        $value.iter_mut().for_each(|flow| flow.forget());
    };
    (forget $value:expr, $($measured:ident)+) => { $value = None; };

    (checked $value:expr, checked) => { Some($value) };
    (checked $value:expr, sometimes checked) => { Some($value) };
    (checked $value:expr, $($other:ident)*) => { None };

    (doubt $value:expr, checked) => { $value = $value.or_doubtful() };
    (doubt $value:expr, $($other:ident)*) => {};

    (main $value:expr, main $kind:ident) => { $value.is_some() };
    (main $value:expr, $($other:ident)*) => { false };

    (parts $value:expr, flows) => { Some($value.len()) };
    (parts $value:expr,) => { None };

    (flow $value:expr, $part:expr, flows) => { Some($value[$part].flow()) };
    (flow $value:expr, $part:expr,) => {{
        let _ = $part;
        None
    }};
}

pub(crate) use {cell, role};

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mapped::Mapped;
    use crate::placement::{Engine, Pair};
    use crate::sharing::{Rung, Sharing, View};
    use crate::units::Bytes;

    #[test]
    fn a_figure_whose_bytes_should_have_been_checked_and_were_not_is_doubtful() {
        let (pair, bytes) = (Pair::ordered(&[0, 1])[0], Bytes(4096));
        let mut figure = Mapped::blank(pair, Engine::Copy, bytes);
        figure.achieved_gbps = Some(GbPerSecond(1.0));
        let (mut right, mut none) = (figure.clone(), figure.clone());
        right.verified = Verified::Ok;
        none.ending.status = Status::Skipped;
        let mut event = Sharing::blank(0, 1, View::All, Rung::LegacyEvent, bytes);
        event.works = Some(true);
        let all: [&mut dyn Measurement; 4] = [&mut figure, &mut right, &mut none, &mut event];
        let verified = all.map(|one| {
            one.doubt_unchecked();
            one.verified()
        });
        assert_eq!(
            verified,
            [
                Verified::Inconclusive,
                Verified::Ok,
                Verified::Skipped,
                Verified::Skipped, // An event has no bytes.
            ]
        );
    }
}
