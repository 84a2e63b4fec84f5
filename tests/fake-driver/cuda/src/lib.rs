//! A CUDA driver library that answers from a machine description. It has the functions that peerscope calls, with their
//! C signatures, on top of the simulated driver.
//!
//! Handles are encoded numbers, which are checked; device pointers are looked up. This crate adds what the simulated
//! driver lacks: real bytes for the check kernel's counts, the gate's flag in host memory, kernels by name. It turns
//! errors of the simulated driver into their codes.

#![allow(unsafe_code, reason = "the functions of cuda.h are C")]
#![allow(clippy::missing_safety_doc, reason = "cuda.h documents the functions")]

mod exports;
mod host;
mod image;
mod kernel;
mod shared;
mod state;
mod talk;
mod words;

pub use exports::FUNCTIONS;

use cudarc::driver::sys;

// The sizes of cuda.h, on 64-bit machines.
const _: () = assert!(size_of::<sys::CUuuid>() == 16 && size_of::<sys::CUdeviceptr>() == 8);
const _: () = assert!(size_of::<sys::CUdevice>() == 4 && size_of::<sys::CUcontext>() == 8);
const _: () = assert!(size_of::<sys::CUstream>() == 8 && size_of::<sys::CUevent>() == 8);
const _: () = assert!(size_of::<sys::CUmemAllocationProp>() == 32);
const _: () = assert!(size_of::<sys::CUmemAccessDesc>() == 12);
const _: () = assert!(size_of::<sys::CUipcMemHandle>() == shared::HANDLE);
const _: () = assert!(size_of::<sys::CUmodule>() == 8 && size_of::<sys::CUfunction>() == 8);
