//! A run: what it reads of the machine, the processes that measure, and the record of both.

pub mod discover;
pub mod recording;
pub mod worker;
