//! The columns that measurements have in a table, for each type that they are planned with.

use serde::Serialize;

use super::flow::{HostMemory, Setup};
use super::placement::{Engine, HostMode, KernelStream, Pair, Path, Placement, Side};
use super::units::Bytes;

/// A type of what measurements are planned with.
pub(crate) trait Axis {
    /// Names of its columns in a table; empty if it has one column, named after its field.
    const NAMES: &'static [&'static str] = &[];

    /// Returns the value of each column.
    fn values(&self) -> Vec<String>;
}

/// Returns the names of the columns of a field.
pub(crate) fn names_of<T: Axis>(field: &'static str) -> Vec<&'static str> {
    match T::NAMES {
        [] => vec![field],
        names => names.to_vec(),
    }
}

/// Returns names and values of a field.
pub(crate) fn columns_of<T: Axis>(value: &T, field: &'static str) -> Vec<(&'static str, String)> {
    names_of::<T>(field).into_iter().zip(value.values()).collect()
}

/// Returns a value as JSON has it, without quotation marks. Null is empty.
pub fn plain(value: impl Serialize) -> String {
    match serde_json::to_value(value) {
        Ok(serde_json::Value::String(word)) => word,
        Ok(serde_json::Value::Null) | Err(_) => String::new(),
        Ok(other) => other.to_string(),
    }
}

/// Lists axes of one column, with values as JSON has them.
macro_rules! axes {
    ($($type:ty),* $(,)?) => {
        $(impl crate::axis::Axis for $type {
            fn values(&self) -> Vec<String> {
                vec![crate::axis::plain(self)]
            }
        })*
    };
}

axes!(u32, f64, bool, String, Bytes, HostMemory, HostMode, Engine, KernelStream, Path, Side);

impl<T: Axis> Axis for Option<T> {
    const NAMES: &'static [&'static str] = T::NAMES;

    fn values(&self) -> Vec<String> {
        let columns = T::NAMES.len().max(1);
        self.as_ref().map_or_else(|| vec![String::new(); columns], T::values)
    }
}

impl Axis for Vec<u32> {
    fn values(&self) -> Vec<String> {
        let numbers: Vec<String> = self.iter().map(ToString::to_string).collect();
        vec![numbers.join(" ")]
    }
}

impl Axis for Placement {
    fn values(&self) -> Vec<String> {
        vec![self.to_string()]
    }
}

impl Axis for Pair {
    const NAMES: &'static [&'static str] = &["source", "destination"];

    fn values(&self) -> Vec<String> {
        vec![plain(self.source), plain(self.destination)]
    }
}

impl Axis for Setup {
    const NAMES: &'static [&'static str] =
        &["placement", "issuer", "engine", "direction", "path", "bytes"];

    fn values(&self) -> Vec<String> {
        let Self { placement, issuer, engine, direction, path, bytes } = self;
        vec![
            placement.to_string(),
            plain(issuer),
            plain(engine),
            plain(direction),
            plain(path),
            plain(bytes),
        ]
    }
}

pub(crate) use axes;
