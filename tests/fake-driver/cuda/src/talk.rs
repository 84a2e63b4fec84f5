//! Kernels that talk: a launch is held until its partner, with the mailboxes swapped, is launched too. Whatever comes before
//! that, such as a wait, starts it alone.

use std::collections::BTreeMap;
use std::ffi::c_void;
use std::time::Duration;

use fake_machine::traffic;
use hardware::{
    BLOCK_BYTES, BlockList, BlockTraffic, BlockWork, Buffer, Chase, Device, HEARD_WORDS,
    LinkDriver, MAILBOX_BYTES, MOST_BLOCKS, MOST_LISTS, Talk, TalkDriver, TalkLimits,
};
use model::live::Phase;

use crate::state::{Fake, code, code_of};

/// The arguments of a talk kernel.
pub(crate) struct Told {
    pub mailboxes: [u64; 2],
    pub role: u32,
    pub rounds: u32,
    pub base: u32,
    pub phases: u32,
    pub limits: [u64; 3],
    /// Address of the words that it writes.
    pub heard: u64,
}

/// Launches that wait for their partners, and words that kernels will write.
#[derive(Default)]
pub(crate) struct Talks {
    waiting: Vec<Talk>,
    /// Addresses of words that talks write, by device and role.
    heard: BTreeMap<u64, (Device, bool)>,
    /// Mailboxes of talks, by address, with their bytes.
    mailboxes: BTreeMap<u64, (Buffer, u64)>,
    /// Addresses of words that chases write.
    hops: BTreeMap<u64, Device>,
    /// Addresses of words that kernels of single links write, with the number of lists.
    passed: BTreeMap<u64, (Device, usize)>,
    /// Bytes sent and received by GPU and link.
    carried: BTreeMap<(u32, u8), [u64; 2]>,
}

/// Lists of blocks as a kernel gets them.
#[derive(Clone, Copy)]
#[repr(C)]
pub(crate) struct Lists {
    first: [u32; MOST_LISTS + 1],
    repeats: [u32; MOST_LISTS],
    blocks: [u32; MOST_BLOCKS],
}

impl Fake {
    pub(crate) fn talk(&mut self, stream: *const c_void, told: &Told) -> Result<(), u32> {
        let stream = self.stream(stream)?;
        if told.phases == 0 {
            return Ok(());
        }
        let [mine, theirs] = told.mailboxes;
        let [arrival, wait, total] = told.limits.map(Duration::from_nanos);
        let talk = Talk {
            stream,
            mine: self.buffer(mine, MAILBOX_BYTES)?,
            theirs: self.buffer(theirs, MAILBOX_BYTES)?,
            answers: told.role != 0,
            rounds: told.rounds,
            base: told.base,
            atomics: told.phases >> Phase::Atomics as u32 & 1 != 0,
            limits: TalkLimits { arrival, wait, total, channels: Duration::from_millis(5) },
        };
        if !self.belongs(mine, stream.device) {
            return Err(code::INVALID_VALUE);
        }
        self.bytes(told.heard, HEARD_WORDS * 8)?;
        self.talks.mailboxes.insert(mine, (talk.mine, MAILBOX_BYTES));
        self.talks.heard.insert(told.heard, (stream.device, talk.answers));
        let partner = self
            .talks
            .waiting
            .iter()
            .position(|other| other.mine == talk.theirs && other.theirs == talk.mine);
        match partner {
            Some(at) => {
                let other = self.talks.waiting.remove(at);
                self.driver().talk(&[other, talk]).map_err(code_of)
            }
            None => {
                self.talks.waiting.push(talk);
                Ok(())
            }
        }
    }

    /// Accepts channels between two mailboxes.
    pub(crate) fn channel(
        &mut self,
        stream: *const c_void,
        rounds: u32,
        mailboxes: [u64; 2],
    ) -> Result<(), u32> {
        self.stream(stream)?;
        let mut mailboxes = mailboxes.into_iter().filter(|_| rounds > 0);
        mailboxes.try_for_each(|mailbox| self.buffer(mailbox, MAILBOX_BYTES).map(drop))
    }

    /// Starts the launches whose partners have not come.
    pub(crate) fn start_talks(&mut self) -> Result<(), u32> {
        for talk in std::mem::take(&mut self.talks.waiting) {
            self.driver().talk(&[talk]).map_err(code_of)?;
        }
        Ok(())
    }

    pub(crate) fn chase(
        &mut self,
        stream: *const c_void,
        memory: u64,
        [count, stride, hops]: [u32; 3],
        limit: u64,
        written: u64,
    ) -> Result<(), u32> {
        let stream = self.stream(stream)?;
        if count == 0 {
            return Ok(());
        }
        let bytes = u64::from(count) * u64::from(stride);
        let memory = self.at(self.unified(memory), bytes, stream.device)?;
        self.bytes(written, 16)?;
        self.talks.hops.insert(written, stream.device);
        let chase =
            Chase { stream, memory, count, stride, hops, limit: Duration::from_nanos(limit) };
        self.driver().chase(&chase).map_err(code_of)
    }

    pub(crate) fn links(
        &mut self,
        stream: *const c_void,
        memory: u64,
        work: u32,
        (lists, of): (u32, Lists),
        [seed, last]: [u32; 2],
        written: u64,
    ) -> Result<(), u32> {
        let stream = self.stream(stream)?;
        if lists == 0 {
            return Ok(());
        }
        let works = [BlockWork::Count, BlockWork::Store, BlockWork::Load, BlockWork::Chase];
        let work = *works.get(work as usize).ok_or(code::INVALID_VALUE)?;
        let list = |at: usize| {
            let blocks =
                of.blocks.get(*of.first.get(at)? as usize..*of.first.get(at + 1)? as usize)?;
            Some(BlockList { blocks: blocks.to_vec(), repeats: *of.repeats.get(at)? })
        };
        let lists: Option<Vec<_>> = (0..lists as usize).map(list).collect();
        let lists = lists.ok_or(code::INVALID_VALUE)?;
        let last_block = lists.iter().flat_map(|list| list.blocks.iter().copied()).max();
        let bytes = last_block.map_or(0, |block| (u64::from(block) + 1) * BLOCK_BYTES);
        let memory = self.at(self.unified(memory), bytes, stream.device)?;
        self.bytes(written, lists.len() * 24)?;
        self.talks.passed.insert(written, (stream.device, lists.len()));
        self.driver()
            .pass(&BlockTraffic { stream, memory, work, lists, seed, last })
            .map_err(code_of)?;
        self.tell_links()
    }

    /// Tells the fake NVML what single links have carried.
    fn tell_links(&mut self) -> Result<(), u32> {
        for (gpu, address) in (0..).zip(self.gpu_addresses()) {
            for link in self.driver().link_bytes(gpu).map_err(code_of)? {
                let carried = [link.sent, link.received];
                let before =
                    self.talks.carried.insert((gpu, link.link), carried).unwrap_or_default();
                let rise = [0, 1].map(|way| carried[way] - before[way]);
                if rise != [0, 0] {
                    traffic::note_link(traffic::OnLink { gpu: address, link: link.link, rise });
                }
            }
        }
        Ok(())
    }

    /// Writes the words of kernels that have been waited for.
    pub(crate) fn show_talks(&mut self) -> Result<(), u32> {
        for (address, (device, answers)) in std::mem::take(&mut self.talks.heard) {
            let heard = self.driver().heard(device, answers).map_err(code_of)?;
            self.put_words(address, &heard.0)?;
        }
        for (address, (device, lists)) in std::mem::take(&mut self.talks.passed) {
            let passed = self.driver().passed(device, lists).map_err(code_of)?;
            // Each began at the first nanosecond.
            let words = passed.iter().flat_map(|of| [!1, of.ns + 1, of.wrong]);
            self.put_words(address, &words.collect::<Vec<_>>())?;
        }
        for (address, device) in std::mem::take(&mut self.talks.hops) {
            let hops = self.driver().chased(device).map_err(code_of)?;
            self.put_words(address, &[hops.ns, hops.made])?;
        }
        Ok(())
    }

    fn put_words(&mut self, address: u64, words: &[u64]) -> Result<(), u32> {
        let held = self.bytes(address, words.len() * 8)?;
        for (word, bytes) in words.iter().zip(held.chunks_exact_mut(8)) {
            bytes.copy_from_slice(&word.to_le_bytes());
        }
        Ok(())
    }

    /// Returns the word at an address within a mailbox; none for other memory.
    pub(crate) fn word_of_mailbox(&self, address: u64, bytes: usize) -> Result<Option<u32>, u32> {
        if bytes != 4 {
            return Ok(None);
        }
        let mailbox = self.talks.mailboxes.range(..=address).next_back();
        let Some((begin, (mailbox, _))) =
            mailbox.filter(|(begin, (_, length))| address - *begin < *length)
        else {
            return Ok(None);
        };
        let offset = u32::try_from(address - begin).map_err(|_| code::INVALID_VALUE)?;
        self.driver().look(*mailbox, offset).map(Some).map_err(code_of)
    }
}
