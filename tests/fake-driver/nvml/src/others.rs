//! The other functions of nvml.h that nvml-wrapper looks up. None of them is used: `functions.txt` has the names of all
//! functions, a line each, and those that `exports.rs` has are left out.

#![allow(non_snake_case, missing_docs, reason = "the names are the library's own")]

use crate::exports::unexpected;

macro_rules! others {
    ($($name:ident)*) => {
        $(
            /// # Safety
            ///
            /// It does nothing.
            #[unsafe(no_mangle)]
            pub(crate) unsafe extern "C" fn $name() -> u32 {
                unexpected(stringify!($name))
            }
        )*
    };
}

include!(concat!(env!("OUT_DIR"), "/others.rs"));
