//! Maps by small numbers that this program gives itself: nobody chooses them so that they collide, and they are looked up
//! many times for every copy, where the usual hash takes a tenth of the time of a worker.

pub use rustc_hash::{FxHashMap as Map, FxHashSet as Set};
