//! Peer access between the open GPUs.

use std::collections::BTreeSet;

use hardware::{Device, ErrorKind, HardwareError};
use model::measurement::CudaPeerAccess;
use model::placement::{Pair, Path};

use crate::bench::open_gpus::Selection;

use crate::bench::Bench;

impl Bench<'_> {
    pub(crate) fn ask_peer_access(
        &self,
        selections: &[Selection],
        opening: &mut dyn FnMut(u32),
    ) -> Vec<CudaPeerAccess> {
        let indices: Vec<u32> = selections.iter().map(|wanted| wanted.index).collect();
        let mut last = None;
        let ask = |pair: Pair| -> Option<CudaPeerAccess> {
            let (source, destination) =
                (self.open_gpus.get(&pair.source)?, self.open_gpus.get(&pair.destination)?);
            if last.replace(pair.source) != Some(pair.source) {
                opening(pair.source);
            }
            let answer = self.driver.can_access_peer(source.device, destination.device);
            let possible = answer.as_ref().ok().copied();
            let error = match answer {
                Ok(true) => self.enable(source.device, destination.device).err(),
                answer => answer.err(),
            };
            let failure_code = error.as_ref().and_then(|error| error.code);
            let hindered = error.as_ref().is_some_and(|error| error.kind == ErrorKind::Hindered);
            let failure = error.map(|error| error.to_string());
            Some(CudaPeerAccess { pair, possible, failure, failure_code, hindered })
        };
        Pair::ordered(&indices).into_iter().filter_map(ask).collect()
    }

    /// Gives one device access to another's memory. Systems without NVSwitch allow only some peers at a time. Access to
    /// the others is then disabled, and enabled again when needed.
    fn enable(&self, device: Device, peer: Device) -> Result<(), HardwareError> {
        if self.enabled.borrow().contains(&(device, peer)) {
            return Ok(());
        }
        let result = match self.driver.set_peer_access(device, peer, true) {
            Err(error) if error.kind == ErrorKind::TooManyPeers => {
                let others: Vec<_> =
                    self.enabled.borrow().iter().filter(|(of, _)| *of == device).copied().collect();
                for (of, other) in others {
                    self.disable(of, other)?;
                }
                self.driver.set_peer_access(device, peer, true)
            }
            result => result,
        };
        result.map(|()| {
            self.enabled.borrow_mut().insert((device, peer));
        })
    }

    /// Gives the sources of these pairs access to their destinations and to no others.
    pub(crate) fn reach_only(&self, pairs: &[Pair]) -> Result<(), HardwareError> {
        let mut wanted = BTreeSet::new();
        for pair in pairs {
            wanted.insert((
                self.open_gpu(pair.source)?.device,
                self.open_gpu(pair.destination)?.device,
            ));
        }
        let sources: BTreeSet<Device> = wanted.iter().map(|(source, _)| *source).collect();
        let of_sources =
            |pair: &&(Device, Device)| sources.contains(&pair.0) && !wanted.contains(*pair);
        let others: Vec<_> = self.enabled.borrow().iter().filter(of_sources).copied().collect();
        others.into_iter().try_for_each(|(source, other)| self.disable(source, other))?;
        wanted.into_iter().try_for_each(|(source, destination)| self.enable(source, destination))
    }

    fn disable(&self, device: Device, peer: Device) -> Result<(), HardwareError> {
        if self.enabled.borrow().contains(&(device, peer)) {
            self.driver.set_peer_access(device, peer, false)?;
            // Remove the pair only now: access that could not be disabled still counts as one of the few.
            self.enabled.borrow_mut().remove(&(device, peer));
        }
        Ok(())
    }

    /// Enables peer access of a pair for the direct path, disables it for the staged one, both ways.
    pub(crate) fn set_path(&self, pair: Pair, path: Path) -> Result<(), HardwareError> {
        let (source, destination) =
            (self.open_gpu(pair.source)?.device, self.open_gpu(pair.destination)?.device);
        match path {
            Path::Direct => {
                self.enable(source, destination)?;
                // Pairs with access in one direction only are still copied in that direction.
                if self
                    .facts
                    .said_of(pair.reversed())
                    .is_some_and(|said| said.possible == Some(true))
                {
                    self.enable(destination, source)?;
                }
                Ok(())
            }
            Path::Staged => {
                self.disable(source, destination)?;
                self.disable(destination, source)
            }
        }
    }

    /// Returns true if the source of a pair can access the memory of its destination now.
    pub(crate) fn is_enabled(&self, pair: Pair) -> bool {
        let ends = self.open_gpu(pair.source).ok().zip(self.open_gpu(pair.destination).ok());
        ends.is_some_and(|(one, other)| self.enabled.borrow().contains(&(one.device, other.device)))
    }
}
