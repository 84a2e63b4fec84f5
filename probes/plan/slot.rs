//! Rounds that can be run at once, and their numbers.

use crate::{Request, Round, Task};
use model::flow::Flow;
use model::units::Bytes;

/// Rounds of one task that can be run at once, with the flows of each round.
pub(crate) struct Slot {
    pub(crate) task: Task,
    pub(crate) of: Vec<Vec<Flow>>,
}

impl Slot {
    /// A slot with one round.
    pub(crate) fn one(task: Task, flows: Vec<Flow>) -> Self {
        Self { task, of: vec![flows] }
    }
}

pub(crate) fn numbered(planned: Vec<Slot>, request: &Request<'_>) -> Vec<Round> {
    let mut rounds = Vec::with_capacity(planned.iter().map(|slot| slot.of.len()).sum());
    for (slot, Slot { task, of }) in (0..).zip(planned) {
        let flows = of.first().map_or(&[][..], Vec::as_slice);
        let deadline = request.deadline.unwrap_or_else(|| task.deadline(flows, request.topology));
        let id = u32::try_from(rounds.len()).unwrap_or(u32::MAX);
        rounds.extend((id..).zip(of).map(|(id, flows)| Round {
            id,
            slot,
            flows,
            task,
            deadline,
            timeline: false,
            name: String::new(),
        }));
    }
    rounds
}

/// Reads a size such as `64 MiB` from a profile.
pub(crate) fn size<'de, D: serde::Deserializer<'de>>(from: D) -> Result<Bytes, D::Error> {
    let text = <String as serde::Deserialize>::deserialize(from)?;
    text.parse().map_err(serde::de::Error::custom)
}
