//! The macro that declares a cell.

/// Declares a cell once: its probe, what it is planned `with`, and what it `has` afterwards. Struct, JSON, schema and
/// [`Measurement`](super::Measurement) follow; [`Subject`](super::Subject) is written by hand. The role of a field follows `=>`:
///
/// - a [`Quantity`](super::Quantity): a measured figure; `main` before it marks the figure that counts as a result;
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
    use crate::cell::Measurement;
    use crate::flow::Setup;
    use crate::peer::PeerBandwidth;
    use crate::placement::Pair;
    use crate::sharing::{Rung, Sharing};
    use crate::status::{Status, Verified};
    use crate::units::{Bytes, GbPerSecond};

    #[test]
    fn a_figure_whose_bytes_should_have_been_checked_and_were_not_is_doubtful() {
        let pair = Pair::ordered(&[0, 1])[0];
        let mut figure = PeerBandwidth::blank(pair, Setup::REFERENCE);
        figure.achieved_gbps = Some(GbPerSecond(1.0));
        let (mut right, mut none) = (figure.clone(), figure.clone());
        right.verified = Verified::Ok;
        none.ending.status = Status::Skipped;
        let mut refused = Sharing::blank(0, 1, Rung::Descriptor, Bytes(4096));
        refused.works = Some(false);
        let all: [&mut dyn Measurement; 4] = [&mut figure, &mut right, &mut none, &mut refused];
        let verified = all.map(|one| {
            one.doubt_unchecked();
            one.verified()
        });
        // A refused call moved no bytes that could be wrong: the last one.
        let expected = [Verified::Inconclusive, Verified::Ok, Verified::Skipped, Verified::Skipped];
        assert_eq!(verified, expected);
    }
}
