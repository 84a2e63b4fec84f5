//! Selects the devices of the worker, and the size of their buffers.

use serde::{Deserialize, Serialize};

use hardware::{DeviceInfo, DeviceMemory, ErrorKind, HardwareError};
use model::measurement::{DriverFacts, Hidden};
use model::units::{Bytes, MIB, PciAddress};

/// Device memory, bytes, left to others and to the driver's own needs when buffers are sized.
const MEMORY_MARGIN: u64 = 64 * MIB;
/// Memory left on a GPU that others use too, bytes: the larger of this and a share of its memory. Others may want more
/// while copies run, and a program that gets no memory ends.
const SHARED_MARGIN: u64 = 2048 * MIB;
/// The share, as a divisor: 5%.
const SHARED_PART: u64 = 20;
/// Least memory for all buffers of a device together, bytes. With less, nothing is measured on it.
const LEAST_BUDGET: u64 = 64 * MIB;
/// Memory used beside the two large buffers, bytes, rounded up: small allocations take whole pages of 2 MiB.
const SMALL_BUFFERS: u64 = 4 * MIB;

/// A GPU that the parent wants tested, as NVML reported it.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Selection {
    pub index: u32,
    /// NVML's UUID, if known.
    pub uuid: Option<String>,
    /// NVML's PCI address, if known.
    pub pci: Option<PciAddress>,
    /// True if other processes hold it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub shared: bool,
    /// True if NVML says that MIG is on.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub split: bool,
    /// True if confidential computing is on.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub confidential: bool,
    /// The processors of its NUMA node, if the machine has several nodes.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub processors: Vec<usize>,
}

#[cfg(test)]
impl Selection {
    /// Returns the device of a simulated machine at this index.
    pub(crate) fn of(driver: &dyn hardware::Driver, index: u32) -> Self {
        let info = &driver.devices()[index as usize];
        Self { index, uuid: info.uuid.clone(), pci: info.pci, ..Self::default() }
    }
}

/// Returns the size of each of a device's two large buffers, bytes.
///
/// # Errors
///
/// Too little of its memory is free.
pub(crate) fn buffer(
    memory: DeviceMemory,
    wanted: &Selection,
    limit: Bytes,
) -> Result<u64, HardwareError> {
    let DeviceMemory { free, total } = memory;
    let (margin, for_whom) = match wanted.shared {
        true => (for_others(total), ", of which most stays free for the processes that hold it"),
        false => (MEMORY_MARGIN, ""),
    };
    let budget = limit.0.min(free.saturating_sub(margin));
    if budget < LEAST_BUDGET {
        return Err(HardwareError::new(
            ErrorKind::OutOfMemory,
            format!(
                "only {} of its memory are free and at least {} are needed{for_whom}: end the processes that use this GPU",
                Bytes(free),
                Bytes(LEAST_BUDGET + margin)
            ),
        ));
    }
    Ok((budget - SMALL_BUFFERS) / 2 / (2 * MIB) * (2 * MIB))
}

/// Returns the memory that stays free for other programs.
pub(crate) fn for_others(total: u64) -> u64 {
    SHARED_MARGIN.max(total / SHARED_PART)
}

/// Records the reason why the kernels could not be loaded: once if that concerns all devices, else for each.
pub(crate) fn note_kernels(
    facts: &mut DriverFacts,
    failure: impl Fn(u32) -> Option<HardwareError>,
) {
    let usable = facts.devices.iter_mut().filter(|device| device.failure.is_none());
    let mut of_devices: Vec<_> = usable
        .map(|device| (failure(device.index).map(|error| error.to_string()), device))
        .collect();
    if of_devices.iter().all(|(failure, _)| failure.is_some()) {
        facts.kernels_failure = of_devices.into_iter().find_map(|(failure, _)| failure);
        return;
    }
    of_devices.iter_mut().for_each(|(failure, device)| device.kernels_failure = failure.take());
}

pub(crate) fn find<'d>(devices: &'d [DeviceInfo], wanted: &Selection) -> Option<&'d DeviceInfo> {
    let same_uuid = |info: &&DeviceInfo| info.uuid.is_some() && info.uuid == wanted.uuid;
    let same_pci = |info: &&DeviceInfo| info.pci.is_some() && info.pci == wanted.pci;
    devices.iter().find(same_uuid).or_else(|| devices.iter().find(same_pci))
}

/// Returns an error if a device is a MIG instance. Its figures are those of a slice, and would be judged as the GPU's.
/// CUDA shows one instance to a process, so the others cannot be measured beside it.
pub(crate) fn whole(info: &DeviceInfo, wanted: &Selection) -> Result<(), HardwareError> {
    let instance = match &info.instance {
        Some(uuid) => format!("one instance of this GPU ({uuid})"),
        None if wanted.split && info.uuid != wanted.uuid => "one instance of this GPU".to_owned(),
        None => return Ok(()),
    };
    let why = format!(
        "MIG is on: CUDA shows {instance}, whose figures are not the GPU's, and no other instance. The instances are not \
         measured"
    );
    Err(HardwareError::new(ErrorKind::Unsupported, why))
}

/// Returns the reason why CUDA does not show a GPU that NVML shows.
pub(crate) fn hidden() -> (Hidden, String) {
    match std::env::var("CUDA_VISIBLE_DEVICES") {
        Ok(mask) => (
            Hidden::Masked,
            format!(
                "CUDA does not show this GPU, CUDA_VISIBLE_DEVICES is '{mask}': unset it, or choose the visible GPUs \
                 with --gpus"
            ),
        ),
        Err(_) => (
            Hidden::Unexplained,
            "CUDA does not show this GPU although NVML does: see dmesg for NVRM and Xid messages, and whether MIG is \
             on or the container was given this GPU"
                .to_owned(),
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use model::measurement::CudaDevice;
    use model::units::GIB;

    fn wanted(shared: bool) -> Selection {
        Selection { index: 0, uuid: None, pci: None, shared, ..Selection::default() }
    }

    #[test]
    fn memory_is_left_to_others_where_there_are_others() {
        let limit = Bytes(GIB);
        let both = |free: u64, total: u64| {
            let memory = DeviceMemory { free, total };
            [false, true].map(|shared| {
                buffer(memory, &wanted(shared), limit).ok().map(|size| 2 * size / MIB)
            })
        };
        // Plenty is free: the limit applies, less the small buffers.
        assert_eq!(both(100 * GIB, 141 * GIB), [Some(1020), Some(1020)]);
        // 5% of 141 GiB are 7.05 GiB, and of 24 GiB less than 2 GiB.
        assert_eq!(both(7 * GIB, 141 * GIB), [Some(1020), None]);
        assert_eq!(both(15 * GIB / 2, 141 * GIB), [Some(1020), Some(456)]);
        assert_eq!(both(5 * GIB / 2, 24 * GIB), [Some(1020), Some(508)]);
        let error =
            buffer(DeviceMemory { free: GIB, total: 24 * GIB }, &wanted(true), limit).unwrap_err();
        assert_eq!(error.kind, ErrorKind::OutOfMemory);
        assert!(error.message.contains("for the processes that hold it"), "{error}");
    }

    #[test]
    fn kernels_that_one_device_refuses_are_its_own_failure() {
        let facts = |failing: &[u32]| {
            let device =
                |index| CudaDevice { index, ordinal: Some(index), ..CudaDevice::default() };
            let mut facts =
                DriverFacts { devices: (0..3).map(device).collect(), ..DriverFacts::default() };
            facts.devices[2].failure = Some("not opened".into());
            let refused = || HardwareError::new(ErrorKind::Unsupported, "refused");
            note_kernels(&mut facts, |gpu| failing.contains(&gpu).then(refused));
            facts
        };
        let none = facts(&[]);
        assert!((0..3).all(|gpu| none.kernels_failure_of(gpu).is_none()));
        let one = facts(&[1]);
        assert_eq!((one.kernels_failure.as_deref(), one.kernels_failure_of(0)), (None, None));
        assert_eq!(one.kernels_failure_of(1), Some("refused"));
        // A failure of all devices is reported once.
        let all = facts(&[0, 1]);
        assert!(all.devices.iter().all(|device| device.kernels_failure.is_none()));
        assert_eq!(
            (all.kernels_failure_of(0), all.kernels_failure_of(1)),
            (Some("refused"), Some("refused"))
        );
    }
}
