//! Images of kernels: PTX text, or an ELF file with native code. Of both only the target and the names of the entries matter
//! here.

use std::collections::BTreeSet;
use std::ffi::{CStr, c_void};

use crate::state::code;

/// An image that a program wants loaded.
pub(crate) struct Image {
    /// The compute capability that it was built for, as in `sm_90`.
    pub target: i32,
    /// True for native code.
    pub native: bool,
    pub entries: BTreeSet<String>,
}

/// Bytes of the header of an ELF file.
const HEADER: usize = 64;

impl Image {
    /// Reads the image at this address.
    pub(crate) fn at(image: *const c_void) -> Result<Self, u32> {
        if image.is_null() {
            return Err(code::INVALID_VALUE);
        }
        // SAFETY: cuda.h demands a PTX text with a NUL at its end, or a file of at least this size; text as short as this
        // differs from the magic number in its first byte.
        if unsafe { image.cast::<u8>().read() } == 0x7f {
            // SAFETY: as above.
            let header = unsafe { std::slice::from_raw_parts(image.cast::<u8>(), HEADER) };
            // The file ends with one of its two tables of headers.
            let programs = number(header, 32, 8)? + number(header, 54, 2)? * number(header, 56, 2)?;
            let sections = number(header, 40, 8)? + number(header, 58, 2)? * number(header, 60, 2)?;
            let size = programs.max(sections);
            // SAFETY: the file has the size that its header states.
            return Self::native(unsafe { std::slice::from_raw_parts(image.cast::<u8>(), size) });
        }
        // SAFETY: as above.
        let text = unsafe { CStr::from_ptr(image.cast()) };
        Self::ptx(text.to_str().map_err(|_| code::INVALID_IMAGE)?)
    }

    fn ptx(text: &str) -> Result<Self, u32> {
        let mut lines = text.lines();
        let target = lines.find_map(|line| line.strip_prefix(".target sm_"));
        let entries = text.lines().filter_map(|line| line.trim().strip_prefix(".visible .entry "));
        Ok(Self {
            target: target
                .and_then(|target| target.trim().parse().ok())
                .ok_or(code::INVALID_IMAGE)?,
            native: false,
            entries: entries.map(|entry| entry.trim_end_matches('(').trim().to_owned()).collect(),
        })
    }

    fn native(file: &[u8]) -> Result<Self, u32> {
        // Machine 190 is EM_CUDA. Images from compute capability 10.0 on, of another version, have the target in another
        // byte of the flags.
        if number(file, 18, 2)? != 190 {
            return Err(code::INVALID_IMAGE);
        }
        let target = match number(file, 8, 1)? {
            ..8 => number(file, 48, 1)?,
            _ => number(file, 49, 1)?,
        };
        let (sections, count) = (number(file, 40, 8)?, number(file, 60, 2)?);
        let section = |index: usize| sections + index * 64;
        let names = number(file, section(number(file, 62, 2)?) + 24, 8)?;
        let mut entries = BTreeSet::new();
        for index in 0..count {
            let name = names + number(file, section(index), 4)?;
            let name = file.get(name..).ok_or(code::INVALID_IMAGE)?;
            let name = CStr::from_bytes_until_nul(name).map_err(|_| code::INVALID_IMAGE)?;
            let code_of = name.to_str().ok().and_then(|name| name.strip_prefix(".text."));
            entries.extend(code_of.map(str::to_owned));
        }
        Ok(Self {
            target: i32::try_from(target).map_err(|_| code::INVALID_IMAGE)?,
            native: true,
            entries,
        })
    }

    /// Returns the code by which a driver of a CUDA version refuses the image for a GPU; none if it loads it.
    pub(crate) fn refusal(&self, [major, minor]: [i32; 2], cuda_version: i32) -> Option<u32> {
        let set = |name| std::env::var(name).is_ok_and(|value| value == "1");
        if !self.native {
            let disabled = set("CUDA_DISABLE_PTX_JIT").then_some(code::JIT_COMPILATION_DISABLED);
            let later = self.target > 10 * major + minor;
            return disabled.or(later.then_some(code::NO_BINARY_FOR_GPU));
        }
        let runs = self.target / 10 == major && self.target % 10 <= minor;
        if cuda_version < 12000 {
            return Some(code::INVALID_IMAGE);
        }
        (!runs || set("CUDA_FORCE_PTX_JIT")).then_some(code::NO_BINARY_FOR_GPU)
    }
}

/// Returns a little-endian number of a file.
fn number(file: &[u8], at: usize, bytes: usize) -> Result<usize, u32> {
    let digits = file.get(at..at.saturating_add(bytes)).ok_or(code::INVALID_IMAGE)?;
    let value = digits.iter().rev().fold(0_u64, |value, digit| value << 8 | u64::from(*digit));
    usize::try_from(value).map_err(|_| code::INVALID_IMAGE)
}
