//! Readings of a link in their order.

use std::ops::Range;

use hardware::LinkSample;

/// Readings of one GPU. Most are like the one before, and a long run of many GPUs has a million.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Readings {
    /// Each with how often it came in a row.
    runs: Vec<(LinkSample, usize)>,
    /// All of them.
    len: usize,
}

impl Readings {
    /// The next reading, which came so often in a row.
    pub fn push(&mut self, sample: &LinkSample, times: usize) {
        if times == 0 {
            return;
        }
        self.len = self.len.saturating_add(times);
        match self.runs.last_mut() {
            Some((last, already)) if last == sample => *already = already.saturating_add(times),
            _ => self.runs.push((sample.clone(), times)),
        }
    }

    /// How many there are.
    #[allow(clippy::len_without_is_empty, reason = "nobody asks")]
    pub const fn len(&self) -> usize {
        self.len
    }

    /// Those that differ from the one before, each with its place among all.
    pub fn changes(&self) -> impl DoubleEndedIterator<Item = (usize, &LinkSample)> + Clone {
        let mut places = Vec::with_capacity(self.runs.len());
        let mut place = 0_usize;
        for (_, times) in &self.runs {
            places.push(place);
            place = place.saturating_add(*times);
        }
        places
            .into_iter()
            .zip(self.runs.iter().map(|(sample, _)| sample))
    }

    /// The readings from one place up to another, where they are there.
    pub fn part(&self, places: Range<usize>) -> Self {
        let mut part = Self::default();
        for ((sample, times), (place, _)) in self.runs.iter().zip(self.changes()) {
            let (from, to) = (
                places.start.max(place),
                places.end.min(place.saturating_add(*times)),
            );
            part.push(sample, to.saturating_sub(from));
        }
        part
    }

    /// The last one.
    pub fn last(&self) -> Option<&LinkSample> {
        self.runs.last().map(|(sample, _)| sample)
    }
}

#[cfg(test)]
impl<'a> FromIterator<&'a LinkSample> for Readings {
    fn from_iter<T: IntoIterator<Item = &'a LinkSample>>(samples: T) -> Self {
        let mut readings = Self::default();
        samples
            .into_iter()
            .for_each(|sample| readings.push(sample, 1));
        readings
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(replays: u64) -> LinkSample {
        LinkSample {
            replays: Some(replays),
            ..LinkSample::default()
        }
    }

    #[test]
    fn readings_that_repeat_are_kept_once_and_none_is_lost() {
        let told = [1, 1, 1, 2, 1].map(sample);
        let readings: Readings = told.iter().collect();
        let mut together = Readings::default();
        for (replays, times) in [(1, 2), (1, 1), (7, 0), (2, 1), (1, 1)] {
            together.push(&sample(replays), times);
        }
        assert_eq!(readings, together);
        let changes: Vec<_> = readings
            .changes()
            .map(|(place, sample)| (place, sample.replays))
            .collect();
        assert_eq!(
            (readings.len(), changes),
            (5, vec![(0, Some(1)), (3, Some(2)), (4, Some(1))])
        );
        for from in 0..7 {
            for to in from..7 {
                let part: Readings = told.iter().skip(from).take(to - from).collect();
                assert_eq!(readings.part(from..to), part, "{from}..{to}");
            }
        }
        assert_eq!(readings.last(), told.last());
    }
}
