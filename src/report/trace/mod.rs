//! The timeline of a run: the work of the GPUs, stream by stream, and the host call that launched it. [`place`] brings the
//! records of the followed rounds onto one clock; the file for trace viewers and the page of a report are drawn from that.

mod chrome;
mod clock;
mod placed;

pub(super) use self::chrome::FORMAT;
pub(super) use self::placed::{PlacedPart, place, stream_names};

#[cfg(test)]
mod tests;
