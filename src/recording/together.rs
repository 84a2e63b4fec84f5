//! Readings of links that came together, in as few entries as say the same: of hundreds of GPUs nearly all are alike, and
//! one entry for each was 545 MB of a run's journal.

use super::entry::Event;
use crate::hardware::LinkSample;

/// The entries for readings that came together, GPU by GPU, each GPU's in their order.
pub fn entries(readings: Vec<(u32, LinkSample)>) -> Vec<Event> {
    // Of each GPU, the first that it said in a row, then the second: an entry has each GPU once.
    let mut turns: Vec<Vec<Alike>> = Vec::new();
    for (gpu, turn, sample, times) in in_a_row(readings) {
        if turns.len() <= turn {
            turns.resize_with(turn + 1, Vec::new);
        }
        let alike = &mut turns[turn];
        match alike
            .iter_mut()
            .find(|alike| alike.times == times && alike.sample == sample)
        {
            Some(alike) => alike.gpus.push(gpu),
            None => alike.push(Alike {
                gpus: vec![gpu],
                times,
                sample,
            }),
        }
    }
    let entry = |Alike {
                     gpus,
                     times,
                     sample,
                 }| Event::Links {
        gpus,
        times,
        sample,
    };
    turns.into_iter().flatten().map(entry).collect()
}

/// GPUs that said the same as often.
struct Alike {
    gpus: Vec<u32>,
    times: u32,
    sample: LinkSample,
}

/// What each GPU said: which of its turns it is, what, and how often in a row.
fn in_a_row(readings: Vec<(u32, LinkSample)>) -> Vec<(u32, usize, LinkSample, u32)> {
    let mut rows: Vec<(u32, usize, LinkSample, u32)> = Vec::new();
    for (gpu, sample) in readings {
        match rows.last_mut() {
            Some((same, _, said, times)) if *same == gpu && *said == sample => *times += 1,
            Some((same, turn, ..)) if *same == gpu => {
                let turn = *turn + 1;
                rows.push((gpu, turn, sample, 1));
            }
            _ => rows.push((gpu, 0, sample, 1)),
        }
    }
    rows
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gpus_that_say_the_same_as_often_share_an_entry() {
        let sample = |replays| LinkSample {
            replays: Some(replays),
            ..LinkSample::default()
        };
        // Three GPUs, of which the last one differs at first.
        let said = [(0, [1, 1, 2, 1]), (1, [1, 1, 2, 1]), (7, [5, 1, 1, 2])];
        let readings = said
            .iter()
            .flat_map(|(gpu, said)| said.map(|replays| (*gpu, sample(replays))))
            .collect();
        let entry = |gpus: &[u32], times, replays| Event::Links {
            gpus: gpus.to_vec(),
            times,
            sample: sample(replays),
        };
        let expected = [
            entry(&[0, 1], 2, 1),
            entry(&[7], 1, 5),
            entry(&[0, 1], 1, 2),
            entry(&[7], 2, 1),
            entry(&[0, 1], 1, 1),
            entry(&[7], 1, 2),
        ];
        assert_eq!(entries(readings), expected);
        assert_eq!(entries(Vec::new()), []);
    }
}
