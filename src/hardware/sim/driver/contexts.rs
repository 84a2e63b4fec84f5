//! Contexts: the open devices, and their errors.

use super::context::{Context, Servers};
use super::failed;
use super::state::State;
use crate::spec::GpuSpec;
use hardware::{Device, ErrorKind, HardwareError};

impl State {
    /// Creates the context of a device.
    pub(super) fn open(&mut self, device: Device) -> Result<(), HardwareError> {
        let &GpuSpec { copy_engines, host_engines, one_host_engine, .. } = self.gpu(device)?;
        if let Some(fault) =
            self.spec.faults.contexts.iter().find(|fault| self.index(device) == Ok(fault.gpu))
        {
            return Err(failed(
                ErrorKind::Other,
                "cuDevicePrimaryCtxRetain",
                &fault.meaning,
                fault.code,
            ));
        }
        if let Some(context @ None) = self.contexts.get_mut(device.0 as usize) {
            let to_host = self.engine.add_server(*host_engines);
            let servers = Servers {
                copies_out: self.engine.add_server(*copy_engines),
                copies_in: self.engine.add_server(*copy_engines),
                to_host,
                from_host: if one_host_engine {
                    to_host
                } else {
                    self.engine.add_server(*host_engines)
                },
                multiprocessors: self.engine.add_server(1),
            };
            let lanes = vec![self.engine.add_lane()];
            *context = Some(Context {
                servers,
                broken: None,
                due: None,
                lanes,
                blocking: Vec::new(),
                per_thread: None,
            });
        }
        Ok(())
    }

    /// Returns NVML's index of a device.
    pub(super) fn index(&self, device: Device) -> Result<u32, HardwareError> {
        let unknown = || failed(ErrorKind::Other, "cuDeviceGet", "invalid device ordinal", 101);
        self.gpus.get(device.0 as usize).copied().ok_or_else(unknown)
    }

    /// Returns the specification of a device.
    pub(super) fn gpu(&self, device: Device) -> Result<&GpuSpec, HardwareError> {
        let index = self.index(device)?;
        Ok(&self.spec.gpus[index as usize])
    }

    pub(super) fn context(&self, device: Device) -> Option<&Context> {
        self.contexts.get(device.0 as usize)?.as_ref()
    }

    pub(super) fn context_mut(&mut self, device: Device) -> Option<&mut Context> {
        self.contexts.get_mut(device.0 as usize)?.as_mut()
    }

    fn opened(&self, device: Device) -> Result<&Context, HardwareError> {
        let closed =
            || failed(ErrorKind::Other, "cuCtxSetCurrent", "the device has no context", 201);
        self.context(device).ok_or_else(closed)
    }

    /// Returns the limited resources of a device.
    pub(super) fn servers(&self, device: Device) -> Result<Servers, HardwareError> {
        Ok(self.opened(device)?.servers)
    }

    /// Fails if no work can be given to a device.
    pub(super) fn usable_device(&self, device: Device) -> Result<(), HardwareError> {
        self.opened(device)?.broken.as_ref().map_or(Ok(()), |error| Err(error.clone()))
    }

    /// Does the same for a new call, which returns pending errors of earlier work.
    pub(super) fn answers(&mut self, device: Device) -> Result<(), HardwareError> {
        if let Some(context) = self.context_mut(device)
            && let Some(due) = &mut context.due
        {
            due.calls = due.calls.saturating_sub(1);
            if due.calls == 0 {
                let meaning = "an error of earlier work on this device";
                let kind = if due.lasts { ErrorKind::Sticky } else { ErrorKind::Other };
                let error = failed(kind, "cuCtxSynchronize", meaning, due.code);
                let lasts = due.lasts;
                context.due = None;
                if !lasts {
                    return Err(error);
                }
                context.broken = Some(error);
            }
        }
        self.usable_device(device)
    }
}
