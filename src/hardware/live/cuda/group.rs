//! Kernels of several GPUs that all talk to each other at once, under the live driver.

use super::returned::met_at;
use super::session::CudaDriver;
use hardware::{
    BOX_BYTES, Device, ErrorKind, GroupDriver, HardwareError, MET_WORDS, MOST_RANKS, Meeting,
    Member, Met,
};

impl GroupDriver for CudaDriver {
    fn meet(&self, meeting: &Meeting, members: &[Member]) -> Result<(), HardwareError> {
        // Find what may fail first: the others would wait in vain for a member that is missing.
        let mut boxes = [0; MOST_RANKS];
        if meeting.boxes.len() > MOST_RANKS {
            let why = format!("at most {MOST_RANKS} kernels can talk at once");
            return Err(HardwareError::new(ErrorKind::Unsupported, why));
        }
        for (place, memory) in boxes.iter_mut().zip(&meeting.boxes) {
            *place = self.mapped(*memory, BOX_BYTES)?;
        }
        let mut streams = Vec::new();
        for member in members {
            self.clear_words::<MET_WORDS>(member.stream.device, |returned| {
                met_at(returned, member.place)
            })?;
            streams.push(self.stream(member.stream)?);
        }
        for (member, stream) in members.iter().zip(streams) {
            self.with_kernels(member.stream.device, |kernels, returned| {
                let met = met_at(returned, member.place);
                kernels.meet(self.table, stream, (meeting, member.rank), boxes, met)
            })?;
        }
        Ok(())
    }

    fn met(&self, device: Device, place: u32) -> Result<Met, HardwareError> {
        self.read_words(device, |returned| met_at(returned, place)).map(Met)
    }
}
