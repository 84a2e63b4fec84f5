//! Turns the timeline of a run into a file for trace viewers. It shows the work of the GPUs, stream by stream, and the
//! host call that launched it. Pure: from the records of the followed rounds to the text of the file. [`place`] brings
//! the records onto one clock; the page of a report draws from that too.

mod chrome;
mod clock;
mod placed;

use model::timeline::Timeline;

pub use self::chrome::{About, draw};
pub use self::placed::{Placed, PlacedPart, place, stream_names};

/// Returns true if there is nothing to draw.
pub fn is_empty(timelines: &[Timeline]) -> bool {
    timelines.iter().all(|timeline| timeline.parts.is_empty())
}

#[cfg(test)]
mod tests;
