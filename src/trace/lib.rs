//! The timeline of a run, as a file for trace viewers: what the GPUs did, stream by stream, and which call of the host
//! launched it. Pure: from what was noted of the rounds that were followed to the text of the file. [`place`] brings it onto
//! one clock; the page of a report draws from that too.

mod chrome;
mod clock;
mod placed;

use model::timeline::Timeline;

pub use self::chrome::{About, draw};
pub use self::placed::{Placed, PlacedPart, place, stream_names};

/// Whether there is nothing to draw.
pub fn is_empty(timelines: &[Timeline]) -> bool {
    timelines.iter().all(|timeline| timeline.parts.is_empty())
}

#[cfg(test)]
mod tests;
