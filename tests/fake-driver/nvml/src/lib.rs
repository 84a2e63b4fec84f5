//! An NVML library that answers from a machine description: the functions that peerscope calls,
//! with their C signatures, over the simulated machine's facts. The library's other functions are
//! there too, say "function not found" and leave a note: a call that nobody thought of is seen by the
//! tests.

#![allow(unsafe_code, reason = "the functions of nvml.h are C")]
#![allow(clippy::missing_safety_doc, reason = "nvml.h documents the functions")]

mod answers;
mod exports;
mod numbers;
mod others;

pub use exports::FUNCTIONS;

use nvml_wrapper_sys::bindings as sys;

// The sizes of nvml.h; the live code has the others.
const _: () =
    assert!(size_of::<sys::nvmlPciInfo_t>() == 68 && size_of::<sys::nvmlMemory_v2_t>() == 40);
const _: () =
    assert!(size_of::<sys::nvmlBAR1Memory_t>() == 24 && size_of::<sys::nvmlProcessInfo_t>() == 24);
const _: () = assert!(size_of::<sys::nvmlDevice_t>() == 8);
