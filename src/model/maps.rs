//! Maps keyed by small numbers that this program assigns. Nobody can choose the keys so that they collide. Every copy
//! looks them up many times; the default hash would take a tenth of a worker's time.

pub use rustc_hash::{FxHashMap as Map, FxHashSet as Set};
