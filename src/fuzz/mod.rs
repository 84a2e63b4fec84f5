//! Broken input that passes through several rooms.

mod sim;
mod worker;
