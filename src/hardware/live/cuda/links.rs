//! Traffic over single NVLinks, under the live driver.

use super::super::nvml::Nvml;
use super::returned::passed_at;
use super::session::CudaDriver;
use hardware::{
    BLOCK_BYTES, BlockTraffic, Device, ErrorKind, HardwareError, LinkBytes, LinkDriver,
    MOST_BLOCKS, MOST_LISTS, Passed,
};
use model::reading::Unknown;

/// Words of all lists.
const WORDS: usize = 3 * MOST_LISTS;

/// Returns the bytes of memory up to the end of the last block.
fn reach(traffic: &BlockTraffic) -> Result<u64, HardwareError> {
    let blocks = || traffic.lists.iter().flat_map(|list| &list.blocks);
    if traffic.lists.len() > MOST_LISTS || blocks().count() > MOST_BLOCKS {
        let why = "more blocks than the kernel has room for";
        return Err(HardwareError::new(ErrorKind::Other, why));
    }
    Ok(blocks().max().map_or(0, |last| (u64::from(*last) + 1) * BLOCK_BYTES))
}

impl LinkDriver for CudaDriver {
    fn pass(&self, traffic: &BlockTraffic) -> Result<(), HardwareError> {
        let memory = self.mapped(traffic.memory, reach(traffic)?)?;
        let stream = self.stream(traffic.stream)?;
        self.clear_words::<WORDS>(traffic.stream.device, passed_at)?;
        self.with_kernels(traffic.stream.device, |kernels, returned| {
            kernels.links(self.table, stream, traffic, memory, passed_at(returned))
        })
    }

    fn passed(&self, device: Device, lists: usize) -> Result<Vec<Passed>, HardwareError> {
        let words = self.read_words::<WORDS>(device, passed_at)?;
        let passed = words.chunks_exact(3).take(lists).map(|words| match words {
            [0, ..] | [_, 0, ..] => Err(HardwareError::new(
                ErrorKind::Other,
                "the kernel of single links has left no result: it was not run",
            )),
            [begun, ended, wrong] => Ok(Passed { ns: ended.saturating_sub(!begun), wrong: *wrong }),
            _ => Ok(Passed { ns: 0, wrong: 0 }),
        });
        passed.collect()
    }

    fn link_bytes(&self, gpu: u32) -> Result<Vec<LinkBytes>, HardwareError> {
        let nvml = self.nvml.get_or_init(Nvml::open).clone();
        let counted = nvml.map_err(|why| (ErrorKind::Impossible, why.message)).and_then(|nvml| {
            nvml.link_bytes(gpu).map_err(|why| match why {
                Unknown::Failed(why) => (ErrorKind::Hindered, why),
                lacks => (ErrorKind::Impossible, lacks.to_string()),
            })
        });
        counted.map_err(|(kind, why)| {
            HardwareError::new(
                kind,
                format!("NVML does not count the bytes of single links: {why}"),
            )
        })
    }
}
