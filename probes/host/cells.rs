//! The cells of a round of copies between host and GPU: one for a round both ways, else one per flow.

use crate::figures::{count, no_samples, without_figures};
use crate::statistics::{median, settled, spread_percent};
use crate::{Outcome, Row};
use model::flow::{Endpoint, Flow, Setup};
use model::host::{Allocation, HostCopy, HostDirection};
use model::placement::Direction;
use model::status::Ending;
use model::units::GbPerSecond;

/// Returns the cells of a round.
pub(crate) fn cells(
    flows: &[Flow],
    setup: Setup,
    allocation: Allocation,
    outcome: &Outcome,
) -> Vec<HostCopy> {
    if setup.direction == Direction::BothWays {
        return both_ways(flows, setup, allocation, outcome).into_iter().collect();
    }
    let at_once = u32::try_from(flows.len()).unwrap_or(u32::MAX);
    let cell = |(at, flow): (usize, &Flow)| {
        let cell = HostCopy { at_once, ..empty(*flow, setup, allocation)? };
        Some(match row(outcome, at) {
            Ok(row) => with(cell, &[row], setup),
            Err(ending) => HostCopy { ending, ..cell },
        })
    };
    flows.iter().enumerate().filter_map(cell).collect()
}

/// Returns the row of a flow, or the reason why there is none.
fn row(outcome: &Outcome, at: usize) -> Result<&Row, Ending> {
    let Outcome::Rows { rows } = outcome else {
        return Err(without_figures(outcome));
    };
    rows.get(at).ok_or_else(no_samples)
}

fn both_ways(
    flows: &[Flow],
    setup: Setup,
    allocation: Allocation,
    outcome: &Outcome,
) -> Option<HostCopy> {
    let up = flows.iter().position(|flow| matches!(flow.to, Endpoint::Gpu(_)))?;
    let down = flows.iter().position(|flow| matches!(flow.from, Endpoint::Gpu(_)))?;
    let cell =
        HostCopy { direction: HostDirection::BothWays, ..empty(flows[up], setup, allocation)? };
    let rows = row(outcome, up).and_then(|up| Ok((up, row(outcome, down)?)));
    Some(match rows {
        Ok((up, down)) => HostCopy {
            to_device_gbps: median(&rates(up, setup)).map(GbPerSecond),
            to_host_gbps: median(&rates(down, setup)).map(GbPerSecond),
            ..with(cell, &[up, down], setup)
        },
        Err(ending) => HostCopy { ending, ..cell },
    })
}

/// Returns the GB/s of each row.
fn rates(row: &Row, setup: Setup) -> Vec<f64> {
    settled(&row.copy_ns()).iter().map(|ns| GbPerSecond::of(setup.bytes.0, *ns).0).collect()
}

/// Adds the figures of these rows, one for each direction, to a cell.
#[allow(clippy::cast_precision_loss, reason = "one or two")]
fn with(cell: HostCopy, rows: &[&Row], setup: Setup) -> HostCopy {
    let of_rows: Vec<Vec<f64>> = rows.iter().map(|row| rates(row, setup)).collect();
    let medians: Option<Vec<f64>> = of_rows.iter().map(|rates| median(rates)).collect();
    let Some(medians) = medians else {
        return HostCopy { ending: no_samples(), ..cell };
    };
    let host_ns: Vec<f64> = rows.iter().flat_map(|row| row.host_ns.iter().copied()).collect();
    let check = Row::worst_check(rows.iter().copied());
    HostCopy {
        achieved_gbps: Some(GbPerSecond(medians.iter().sum::<f64>() / medians.len() as f64)),
        samples: of_rows.iter().map(|rates| count(rates)).min().unwrap_or(0),
        spread_percent: of_rows.iter().filter_map(|rates| spread_percent(rates)).reduce(f64::max),
        host_blocked_us: median(&host_ns).map(|ns| ns / 1e3),
        verified: check.verified,
        verification_detail: check.detail,
        ..cell
    }
}

/// Returns the cell of a flow between host and GPU, without figures.
fn empty(flow: Flow, setup: Setup, allocation: Allocation) -> Option<HostCopy> {
    let (gpu, node, memory, direction) = match (flow.from, flow.to) {
        (Endpoint::Host { node, memory }, Endpoint::Gpu(gpu)) => {
            (gpu, node, memory, HostDirection::ToDevice)
        }
        (Endpoint::Gpu(gpu), Endpoint::Host { node, memory }) => {
            (gpu, node, memory, HostDirection::ToHost)
        }
        _ => return None,
    };
    let (engine, bytes) = (setup.engine, setup.bytes);
    Some(HostCopy::blank(gpu, node, memory, direction, engine, allocation, 1, bytes))
}
