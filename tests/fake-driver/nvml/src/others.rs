//! What else nvml.h has, as far as nvml-wrapper looks it up: nothing of it is used. The names are in
//! `others.txt`, a line each.

#![allow(
    non_snake_case,
    missing_docs,
    reason = "the names are the library's own"
)]

use crate::exports::unexpected;

macro_rules! others {
    ($($name:ident)*) => {
        $(
            /// # Safety
            ///
            /// It does nothing.
            #[unsafe(no_mangle)]
            pub unsafe extern "C" fn $name() -> u32 {
                unexpected(stringify!($name))
            }
        )*
    };
}

include!(concat!(env!("OUT_DIR"), "/others.rs"));
