//! Copies of scattered blocks under the live driver.

use std::ffi::c_void;

use cudarc::driver::sys::{CUmemcpyAttributes, CUmemcpySrcAccessOrder};

use super::error::{addressable, lacks};
use super::session::CudaDriver;
use hardware::{Blocks, Buffer, ErrorKind, HardwareError, Stream};
use model::small::BlockWay;

impl CudaDriver {
    /// Returns true if one call can copy many blocks.
    pub(super) fn batches(&self) -> bool {
        self.table.copy_batch_v2.is_some() || self.table.copy_batch.is_some()
    }

    /// Enqueues copies of blocks, each to the same offset at the destination.
    pub(super) fn scattered(
        &self,
        way: BlockWay,
        stream: Stream,
        (destination, source): (Buffer, Buffer),
        blocks: Blocks,
    ) -> Result<(), HardwareError> {
        if blocks.bytes == 0 || !blocks.count.is_power_of_two() {
            return Err(HardwareError::new(
                ErrorKind::Other,
                "blocks must have bytes, and their number must be a power of two",
            ));
        }
        self.enter(stream.device)?;
        match way {
            BlockWay::Loop => self.in_a_loop(stream, (destination, source), blocks),
            BlockWay::Batch => self.in_a_batch(stream, (destination, source), blocks),
            BlockWay::Gather => {
                let handle = self.stream(stream)?;
                let to = self.mapped(destination, blocks.total())?;
                let from = self.mapped(source, blocks.total())?;
                self.with_kernels(stream.device, |kernels, _| {
                    kernels.gather(self.table, handle, (to, from), blocks)
                })
            }
        }
    }

    fn in_a_loop(
        &self,
        stream: Stream,
        (destination, source): (Buffer, Buffer),
        blocks: Blocks,
    ) -> Result<(), HardwareError> {
        let handle = self.stream(stream)?;
        let to = self.address(destination, blocks.total())?;
        let from = self.address(source, blocks.total())?;
        let size = addressable(blocks.bytes)?;
        match (destination.device(), source.device()) {
            (Some(destination), Some(source)) => {
                let (to_context, from_context) =
                    (self.context(destination)?.0, self.context(source)?.0);
                let (to, from) = (to.addr() as u64, from.addr() as u64);
                let copy = self.table.copy_peer_async;
                blocks.offsets().try_for_each(|at| {
                    // SAFETY: both ranges lie within live allocations of these contexts.
                    let code =
                        unsafe { copy(to + at, to_context, from + at, from_context, size, handle) };
                    self.table.check("cuMemcpyPeerAsync", code)
                })
            }
            (Some(_), None) => {
                let copy = self.table.copy_up;
                let copy = copy.ok_or_else(|| lacks("cuMemcpyHtoDAsync_v2"))?;
                let to = to.addr() as u64;
                blocks.offsets().try_for_each(|at| {
                    let from = from.wrapping_byte_add(at as usize);
                    // SAFETY: both ranges lie within live allocations, which stay until the copy has ended.
                    let code = unsafe { copy(to + at, from, size, handle) };
                    self.table.check("cuMemcpyHtoDAsync", code)
                })
            }
            (None, Some(_)) => {
                let copy = self.table.copy_down;
                let copy = copy.ok_or_else(|| lacks("cuMemcpyDtoHAsync_v2"))?;
                let from = from.addr() as u64;
                blocks.offsets().try_for_each(|at| {
                    let to = to.wrapping_byte_add(at as usize);
                    // SAFETY: both ranges lie within live allocations, which stay until the copy has ended.
                    let code = unsafe { copy(to, from + at, size, handle) };
                    self.table.check("cuMemcpyDtoHAsync", code)
                })
            }
            (None, None) => Err(HardwareError::new(ErrorKind::Other, "no copy within the host")),
        }
    }

    /// One call for all blocks. The driver finds out by itself where the addresses are.
    fn in_a_batch(
        &self,
        stream: Stream,
        (destination, source): (Buffer, Buffer),
        blocks: Blocks,
    ) -> Result<(), HardwareError> {
        let handle = self.stream(stream)?;
        let pointer = |of: *mut c_void| of.expose_provenance() as u64;
        let to = pointer(self.address(destination, blocks.total())?);
        let from = pointer(self.address(source, blocks.total())?);
        let mut destinations: Vec<u64> = blocks.offsets().map(|at| to + at).collect();
        let mut sources: Vec<u64> = blocks.offsets().map(|at| from + at).collect();
        let mut sizes = vec![addressable(blocks.bytes)?; blocks.count as usize];
        // SAFETY: a plain structure of C, for which all zeros means no hint and no flag.
        let mut attributes: CUmemcpyAttributes = unsafe { std::mem::zeroed() };
        attributes.srcAccessOrder = CUmemcpySrcAccessOrder::CU_MEMCPY_SRC_ACCESS_ORDER_STREAM;
        let mut first = 0_usize;
        let (count, table) = (sizes.len(), self.table);
        if let Some(copy) = table.copy_batch_v2 {
            // SAFETY: arrays of `count` entries, one structure and its first index, which the driver reads during the call;
            // the ranges lie within live allocations that stay until the copies have ended.
            let code = unsafe {
                copy(
                    destinations.as_mut_ptr(),
                    sources.as_mut_ptr(),
                    sizes.as_mut_ptr(),
                    count,
                    &raw mut attributes,
                    &raw mut first,
                    1,
                    handle,
                )
            };
            return table.check("cuMemcpyBatchAsync", code);
        }
        let copy = table.copy_batch.ok_or_else(|| lacks("cuMemcpyBatchAsync"))?;
        let mut failed = 0_usize;
        // SAFETY: as above, and the driver writes the number of the copy that failed.
        let code = unsafe {
            copy(
                destinations.as_mut_ptr(),
                sources.as_mut_ptr(),
                sizes.as_mut_ptr(),
                count,
                &raw mut attributes,
                &raw mut first,
                1,
                &raw mut failed,
                handle,
            )
        };
        table.check("cuMemcpyBatchAsync", code)
    }
}
