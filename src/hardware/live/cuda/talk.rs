//! Kernels that talk while they run, under the live driver.

use std::ffi::c_int;

use cudarc::driver::sys::CUdeviceptr;

use super::error::lacks;
use super::returned::{heard_at, hops_at};
use super::session::CudaDriver;
use hardware::{
    Buffer, Chase, Device, HEARD_WORDS, HardwareError, Heard, Hops, MAILBOX_BYTES, Talk, TalkDriver,
};

/// CU_DEVICE_P2P_ATTRIBUTE_NATIVE_ATOMIC_SUPPORTED.
const P2P_NATIVE_ATOMICS: c_int = 3;

impl CudaDriver {
    /// Reads words of device memory, after everything on the legacy default stream.
    pub(super) fn read_words<const N: usize>(
        &self,
        device: Device,
        address: impl Fn(CUdeviceptr) -> CUdeviceptr,
    ) -> Result<[u64; N], HardwareError> {
        let mut words = [0_u64; N];
        self.with_kernels(device, |_, returned| {
            let copy = self.table.copy_to_host;
            // SAFETY: N words of device memory, which RETURNED_BYTES has room for, into N words of host memory. The call
            // returns when the copy is done.
            let code = unsafe { copy(words.as_mut_ptr().cast(), address(returned), N * 8) };
            self.table.check("cuMemcpyDtoH", code)
        })?;
        Ok(words)
    }

    /// Clears words that a kernel is to write, so that those of an earlier one are not taken for its own.
    pub(super) fn clear_words<const N: usize>(
        &self,
        device: Device,
        address: impl Fn(CUdeviceptr) -> CUdeviceptr,
    ) -> Result<(), HardwareError> {
        self.write_words(device, address, [0; N])
    }

    /// Writes the words that a kernel begins with.
    pub(super) fn write_words<const N: usize>(
        &self,
        device: Device,
        address: impl Fn(CUdeviceptr) -> CUdeviceptr,
        words: [u64; N],
    ) -> Result<(), HardwareError> {
        self.with_kernels(device, |_, returned| {
            let copy = self.table.copy_to_device;
            // SAFETY: N words of host memory into N words of device memory, which RETURNED_BYTES has room for.
            let code = unsafe { copy(address(returned), words.as_ptr().cast(), N * 8) };
            self.table.check("cuMemcpyHtoD", code)
        })
    }
}

impl TalkDriver for CudaDriver {
    fn native_atomics(&self, device: Device, peer: Device) -> Result<bool, HardwareError> {
        if device == peer {
            return Ok(true);
        }
        let ask = self.table.device_p2p_attribute;
        let ask = ask.ok_or_else(|| lacks("cuDeviceGetP2PAttribute"))?;
        let mut promised: c_int = 0;
        let (device, peer) = (self.handle(device)?, self.handle(peer)?);
        // SAFETY: writes one int.
        let code = unsafe { ask(&raw mut promised, P2P_NATIVE_ATOMICS, device, peer) };
        self.table.check("cuDeviceGetP2PAttribute", code).map(|()| promised != 0)
    }

    fn talk(&self, talks: &[Talk]) -> Result<(), HardwareError> {
        // Find what may fail first: a kernel without its partner would wait in vain.
        let prepared: Result<Vec<_>, HardwareError> = talks
            .iter()
            .map(|talk| {
                let mailboxes = [
                    self.mapped(talk.mine, MAILBOX_BYTES)?,
                    self.mapped(talk.theirs, MAILBOX_BYTES)?,
                ];
                self.clear_words::<HEARD_WORDS>(talk.stream.device, |returned| {
                    heard_at(returned, talk.answers)
                })?;
                // As many as have room on both GPUs.
                let mut channels = u32::MAX;
                for device in [talk.mine, talk.theirs].into_iter().filter_map(Buffer::device) {
                    let of_gpu = self.with_kernels(device, |kernels, _| Ok(kernels.channels()))?;
                    channels = channels.min(of_gpu);
                }
                Ok((talk, mailboxes, channels, self.stream(talk.stream)?))
            })
            .collect();
        for (talk, mailboxes, channels, stream) in prepared? {
            self.with_kernels(talk.stream.device, |kernels, returned| {
                let heard = heard_at(returned, talk.answers);
                kernels.talk(self.table, stream, talk, mailboxes, heard)?;
                kernels.channel(self.table, stream, talk, mailboxes, (heard, channels))
            })?;
        }
        Ok(())
    }

    fn heard(&self, device: Device, answers: bool) -> Result<Heard, HardwareError> {
        self.read_words(device, |returned| heard_at(returned, answers)).map(Heard)
    }

    fn look(&self, mailbox: Buffer, offset: u32) -> Result<u32, HardwareError> {
        let offset = u64::from(offset);
        let address = self.address(mailbox, offset.saturating_add(4))?.addr() as u64 + offset;
        mailbox.device().map_or(Ok(()), |device| self.enter(device))?;
        let mut word = 0_u32;
        let copy = self.table.copy_to_host;
        // SAFETY: four bytes within the buffer into one word of host memory. The call returns when the copy is done.
        let code = unsafe { copy((&raw mut word).cast(), address, 4) };
        self.table.check("cuMemcpyDtoH", code)?;
        Ok(word)
    }

    fn chase(&self, chase: &Chase) -> Result<(), HardwareError> {
        let bytes = u64::from(chase.count) * u64::from(chase.stride);
        let memory = self.mapped(chase.memory, bytes)?;
        let stream = self.stream(chase.stream)?;
        self.clear_words::<2>(chase.stream.device, hops_at)?;
        self.with_kernels(chase.stream.device, |kernels, returned| {
            kernels.chase(self.table, stream, chase, memory, hops_at(returned))
        })
    }

    fn chased(&self, device: Device) -> Result<Hops, HardwareError> {
        let [ns, made] = self.read_words(device, hops_at)?;
        Ok(Hops { made, ns })
    }
}
