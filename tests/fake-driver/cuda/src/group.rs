//! Kernels that all talk to each other at once: a launch is held until all members of its meeting are launched. Whatever comes
//! before that, such as a wait, starts those that are there.

use std::collections::BTreeMap;
use std::ffi::c_void;
use std::time::Duration;

use hardware::{
    BOX_BYTES, Device, GroupDriver, MET_WORDS, MOST_RANKS, Meeting, Member, TalkLimits,
};

use crate::state::{Fake, code, code_of};

/// The arguments of the kernel of a member.
pub(crate) struct Invited {
    pub boxes: [u64; MOST_RANKS],
    pub count: u32,
    pub rank: u32,
    pub rounds: u32,
    pub base: u32,
    pub blocks: u32,
    pub limits: [u64; 4],
    /// Address of the words that it writes.
    pub met: u64,
}

/// Meetings whose members have not all come, and words that members will write.
#[derive(Default)]
pub(crate) struct Meetings {
    waiting: Vec<(Meeting, Vec<Member>)>,
    /// Addresses of words, by device and place.
    met: BTreeMap<u64, (Device, u32)>,
}

impl Fake {
    pub(crate) fn meet(&mut self, stream: *const c_void, invited: &Invited) -> Result<(), u32> {
        let stream = self.stream(stream)?;
        if invited.count == 0 {
            return Ok(());
        }
        let addresses = invited.boxes.get(..invited.count as usize);
        let addresses = addresses.ok_or(code::INVALID_VALUE)?;
        let mut boxes = Vec::new();
        for address in addresses {
            let memory = self.buffer(*address, BOX_BYTES)?;
            self.talks.mailboxes.insert(*address, (memory, BOX_BYTES));
            boxes.push(memory);
        }
        let own = addresses.get(invited.rank as usize);
        if !self.belongs(*own.ok_or(code::INVALID_VALUE)?, stream.device) {
            return Err(code::INVALID_VALUE);
        }
        self.bytes(invited.met, MET_WORDS * 8)?;
        let [arrival, wait, phase, total] = invited.limits.map(Duration::from_nanos);
        let meeting = Meeting {
            boxes,
            rounds: invited.rounds,
            base: invited.base,
            blocks: invited.blocks,
            limits: TalkLimits { arrival, wait, total },
            phase,
        };
        let waiting = &mut self.talks.meetings.waiting;
        let at = waiting.iter().position(|(other, _)| *other == meeting).unwrap_or_else(|| {
            waiting.push((meeting, Vec::new()));
            waiting.len() - 1
        });
        let members = &mut waiting[at].1;
        let beside = members.iter().filter(|member| member.stream.device == stream.device);
        let place = u32::try_from(beside.count()).map_err(|_| code::INVALID_VALUE)?;
        members.push(Member { stream, rank: invited.rank, place });
        let complete = members.len() == invited.count as usize;
        self.talks.meetings.met.insert(invited.met, (stream.device, place));
        if complete {
            let (meeting, members) = self.talks.meetings.waiting.remove(at);
            self.driver().meet(&meeting, &members).map_err(code_of)?;
        }
        Ok(())
    }

    /// Starts the meetings whose members have not all come.
    pub(crate) fn start_meetings(&mut self) -> Result<(), u32> {
        for (meeting, members) in std::mem::take(&mut self.talks.meetings.waiting) {
            self.driver().meet(&meeting, &members).map_err(code_of)?;
        }
        Ok(())
    }

    /// Writes the words of members that have been waited for.
    pub(crate) fn show_meetings(&mut self) -> Result<(), u32> {
        for (address, (device, place)) in std::mem::take(&mut self.talks.meetings.met) {
            let met = self.driver().met(device, place).map_err(code_of)?;
            self.put_words(address, &met.0)?;
        }
        Ok(())
    }
}
