//! What programs will use between the GPUs: NCCL's transport of each pair, and the all-reduce of inference engines. The
//! rules are those of the programs (`docs/forecast.md` cites file and version), the facts those of the report.

mod all_reduce;
mod between;
mod memory;
mod nccl;
mod protocols;
mod ring_buffers;
mod rules;
mod variables;
mod version;

use model::forecast::Forecast;
use model::report::Report;

pub(crate) use self::between::Machine;
pub(crate) use self::variables::Level;
pub use self::version::Version;

/// Returns what programs will use on the machine of a report, by the rules of this version of NCCL; `None` with fewer
/// than two GPUs.
pub fn forecast(report: &Report, nccl: Version) -> Option<Forecast> {
    if report.snapshot.gpus.len() < 2 {
        return None;
    }
    let machine = Machine::of(report);
    Some(Forecast {
        nccl: nccl::forecast(&machine, nccl),
        all_reduce: all_reduce::forecast(&machine),
    })
}

#[cfg(test)]
mod tests;
