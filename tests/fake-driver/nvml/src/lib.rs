//! An NVML library that answers from a machine description. It has the functions that peerscope calls, with their C
//! signatures, on top of the simulated machine's facts. It also exports the library's other functions. Those return
//! "function not found" and record the call, so that the tests see calls that nobody thought of.

#![allow(unsafe_code, reason = "the functions of nvml.h are C")]
#![allow(clippy::missing_safety_doc, reason = "nvml.h documents the functions")]

mod answers;
mod exports;
mod numbers;
mod others;

pub use exports::FUNCTIONS;

use nvml_wrapper_sys::bindings as sys;

// The sizes of nvml.h; the live code checks the others.
const _: () =
    assert!(size_of::<sys::nvmlPciInfo_t>() == 68 && size_of::<sys::nvmlMemory_v2_t>() == 40);
const _: () =
    assert!(size_of::<sys::nvmlBAR1Memory_t>() == 24 && size_of::<sys::nvmlProcessInfo_t>() == 24);
const _: () = assert!(size_of::<sys::nvmlDevice_t>() == 8);
