//! Images of the GPU kernels, as scripts/build-kernels wrote them: native code by compute capability, and PTX for GPUs that
//! no native image fits. The driver would have to compile PTX on every fresh node, and needs a library for it that some
//! containers lack.

use std::ffi::{c_int, c_void};

use super::error::code;
use super::table::Table;
use hardware::{ErrorKind, HardwareError};

/// An image with native code.
struct Native {
    /// Compute capability that it was built for, major and minor.
    built_for: (u32, u32),
    image: &'static Aligned<[u8]>,
}

/// Bytes at an address as an ELF file needs it.
#[repr(C, align(16))]
struct Aligned<T: ?Sized>(T);

macro_rules! native {
    ($(($major:literal, $minor:literal) = $file:literal),* $(,)?) => {
        &[$(Native {
            built_for: ($major, $minor),
            image: &Aligned(*include_bytes!(concat!("../../../../probes/images/", $file))),
        }),*]
    };
}

/// By compute capability, rising.
const NATIVE: &[Native] = native![
    (5, 0) = "sm_50.cubin",
    (6, 0) = "sm_60.cubin",
    (7, 0) = "sm_70.cubin",
    (7, 5) = "sm_75.cubin",
    (8, 0) = "sm_80.cubin",
    (8, 6) = "sm_86.cubin",
    (8, 9) = "sm_89.cubin",
    (9, 0) = "sm_90.cubin",
    (10, 0) = "sm_100.cubin",
    (12, 0) = "sm_120.cubin",
];
/// PTX text, which ends with a NUL.
const FALLBACK: &str = concat!(include_str!("../../../../probes/images/kernels.ptx"), "\0");
/// Lowest major compute capability that the PTX can be compiled for.
const LOWEST_MAJOR: u32 = 5;
/// The first CUDA version whose drivers load images of this compiler, which is of CUDA 12 (NVIDIA, CUDA compatibility:
/// minor version compatibility). Older drivers get PTX.
const NATIVE_SINCE: c_int = 12000;

/// Returns true if the driver loads native images.
pub(super) fn loads_native(table: &Table) -> bool {
    driver_version(table).is_some_and(|version| version >= NATIVE_SINCE)
}

/// Returns the CUDA version of the driver, such as 12060.
pub(super) fn driver_version(table: &Table) -> Option<c_int> {
    let mut version = 0;
    // SAFETY: writes one int.
    let result = unsafe { table.driver_get_version?(&raw mut version) };
    (result == code::SUCCESS).then_some(version)
}

/// Returns the images for a compute capability, to be tried in this order.
///
/// # Errors
///
/// There are none for so old a GPU.
pub(super) fn images(
    (major, minor): (u32, u32),
    native: bool,
) -> Result<Vec<*const c_void>, HardwareError> {
    if major < LOWEST_MAJOR {
        return Err(HardwareError::new(
            ErrorKind::Unsupported,
            format!(
                "this GPU has compute capability {major}.{minor}, and peerscope has kernels from {LOWEST_MAJOR}.0 (Maxwell) \
                 on"
            ),
        ));
    }
    let native = fitting((major, minor)).filter(|_| native);
    let native = native.map(|native| native.image.0.as_ptr().cast());
    Ok(native.into_iter().chain([FALLBACK.as_ptr().cast()]).collect())
}

/// Returns the image for a compute capability: of the same major, and of the highest minor that is not above
/// (CUDA C++ Programming Guide, binary compatibility).
fn fitting((major, minor): (u32, u32)) -> Option<&'static Native> {
    let fits = |native: &&Native| native.built_for.0 == major && native.built_for.1 <= minor;
    NATIVE.iter().rfind(fits)
}

/// Returns true for codes by which the driver refuses an image that does not fit the GPU or the driver.
pub(super) const fn is_refused(code: u32) -> bool {
    matches!(code, code::INVALID_IMAGE | code::NO_BINARY_FOR_GPU | code::INVALID_SOURCE)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn images_are_of_their_major_and_of_no_later_minor() {
        let of = |major, minor| fitting((major, minor)).map(|native| native.built_for);
        assert_eq!(of(3, 7), None);
        assert_eq!(of(5, 2), Some((5, 0)));
        assert_eq!(of(6, 1), Some((6, 0)));
        assert_eq!(of(7, 2), Some((7, 0)));
        assert_eq!(of(7, 5), Some((7, 5)));
        assert_eq!(of(8, 7), Some((8, 6)));
        assert_eq!(of(9, 0), Some((9, 0)));
        assert_eq!(of(10, 3), Some((10, 0)));
        assert_eq!(of(11, 0), None);
        assert_eq!(of(12, 1), Some((12, 0)));
        assert_eq!(of(13, 0), None);
    }

    #[test]
    fn a_driver_before_cuda_12_and_an_unknown_gpu_get_ptx_alone() {
        assert_eq!(images((9, 0), true).unwrap().len(), 2);
        assert_eq!(images((9, 0), false).unwrap().len(), 1);
        assert_eq!(images((13, 0), true).unwrap().len(), 1);
        assert!(images((3, 5), true).is_err());
    }

    #[test]
    fn every_image_is_built_for_the_capability_it_is_listed_with() {
        for native in NATIVE {
            let bytes = &native.image.0;
            let (major, minor) = native.built_for;
            // ELF for machine 190, EM_CUDA. Its flags have the architecture in their second byte, and since compute
            // capability 10.0 in the one above it.
            assert_eq!((&bytes[..4], bytes[18]), (&b"\x7fELF"[..], 190));
            let built = if major < 10 { bytes[48] } else { bytes[49] };
            assert_eq!(u32::from(built), 10 * major + minor);
            assert_eq!(native.image.0.as_ptr().addr() % 16, 0);
        }
    }
}
