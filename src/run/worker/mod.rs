//! The worker: a child process, the only one that opens CUDA. It receives rounds over a pipe as JSON lines and answers
//! each. A copy that hangs or a driver that crashes costs only the pair at fault: the parent ends the child and starts
//! another.

mod again;
pub mod child;
pub mod environment;
mod handle;
mod hangs;
mod link;
mod listener;
mod process;
pub mod protocol;
pub mod share;
pub mod start;
pub mod supervisor;

pub use handle::Worker;
pub use listener::Listener;
pub use start::Launch;

#[cfg(test)]
mod start_tests;
#[cfg(test)]
mod testing;
#[cfg(test)]
mod tests;
