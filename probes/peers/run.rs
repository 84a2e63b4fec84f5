//! Measures the bandwidth of plain rows of copies. Adds rows until they agree, for one pair or several at once, and
//! checks the bytes afterwards.

use crate::Row;
use crate::bench::Bench;
use crate::bench::rows::Timing;
use crate::bench::transfer::Transfer;
use crate::figures::at_the_same_time;
use crate::peers::plan::{FIXED_COST_BYTES, FIXED_COST_COPIES};
use crate::statistics::{median, settled, slow, spread_percent};
use hardware::HardwareError;
use model::flow::Setup;
use model::placement::{Direction, Pair, Path, Placement, Side};

/// Largest difference of rows that agree, per cent: further rows would change nothing. Rows of 1 GB on H200 scatter by
/// 0.1 to 0.2% (docs/dev/method.md).
const AGREE_PERCENT: f64 = 0.3;
/// The same for staged copies. On H200 rows of them scatter by 0.1 to 1.4%, and four more rows did not agree better.
const STAGED_AGREE_PERCENT: f64 = 2.0;
/// Largest number of rows added if they do not agree.
const MORE_ROWS: u32 = 4;
/// Copies of a marked row, which separates directions that do not run at the same time. The first is not counted.
const MARKED_COPIES: u32 = 4;
/// Copies after a row that took far longer than the others. If one in thirty is slow, 200 have five or more of them with 79%; if
/// one in 200 is, which healthy machines may have, with 0.4%.
const AGAIN_COPIES: u32 = 200;
/// Longest time for these copies, nanoseconds.
const AGAIN_NS: f64 = 8e8;
/// Most times that a run looks again. Chosen: links that all wake up cost it no more than 4 s.
const MOST_LOOKS: u32 = 4;
/// Largest difference between a row of several pairs at once and that of one of them alone, per cent: NVSwitch shows no
/// difference (docs/dev/facts.md, "Flows at the same time").
pub(crate) const APART_PERCENT: f64 = 0.3;

/// Returns the largest difference of rows on this path that agree, per cent.
const fn agree_percent(path: Path) -> f64 {
    match path {
        Path::Direct => AGREE_PERCENT,
        Path::Staged => STAGED_AGREE_PERCENT,
    }
}

impl Bench<'_> {
    /// Times rows of copies of each pair, all at once.
    pub(crate) fn bandwidth(
        &self,
        pairs: &[Pair],
        setup: Setup,
        rows: u32,
        copies: u32,
    ) -> Result<Vec<Row>, HardwareError> {
        pairs.iter().try_for_each(|pair| self.set_path(*pair, setup.path))?;
        let transfers = self.between(pairs, setup, copies.max(1))?;
        let checked = transfers.iter().all(|transfer| transfer.kernels);
        if checked {
            let is_filled = |one: &Transfer| self.is_filled(one.from, one.bytes);
            if !transfers.iter().all(is_filled) {
                self.fill(&transfers)?;
            }
            self.poison(&transfers)?;
            self.settle(transfers.iter().map(|transfer| transfer.to))?;
        }
        // The two flows of a pair that copies both ways count as one.
        let at_once = if setup.direction == Direction::BothWays {
            1
        } else {
            u32::try_from(pairs.len()).unwrap_or(u32::MAX)
        };
        let mut found: Vec<_> = transfers.iter().map(|transfer| transfer.row(at_once)).collect();
        let is_enough = |transfer: &Transfer, row: &Row| {
            let pair = transfer.flow.pair();
            pair.is_some_and(|pair| self.is_enough(pair, setup, row, rows))
        };
        let timing = timing(setup);
        self.rows_until(&transfers, timing, rows + MORE_ROWS, &mut found, is_enough)?;
        self.look_again(&transfers, setup, &mut found)?;
        self.marked_row(&transfers, setup, &mut found)?;
        // Before the small copies, which write again what the last copy of these rows may have lost.
        if checked {
            let counted = self.compare(&transfers)?;
            for ((row, transfer), counted) in found.iter_mut().zip(&transfers).zip(&counted) {
                row.check = Some(transfer.judged(counted));
            }
        }
        self.small_rows(&transfers, setup, &mut found)?;
        self.learn_pace(pairs, setup, &found);
        Ok(found)
    }

    /// Returns copies between pairs, with the streams that frameworks order them by.
    pub(crate) fn between(
        &self,
        pairs: &[Pair],
        setup: Setup,
        copies: u32,
    ) -> Result<Vec<Transfer>, HardwareError> {
        let transfer = |pair: &Pair| {
            let (issuer, partner, other) = match setup.issuer {
                Side::Source => (pair.source, pair.destination, Side::Destination),
                Side::Destination => (pair.destination, pair.source, Side::Source),
            };
            let current = |side| self.current_stream(*pair, setup.placement, side);
            Ok(Transfer {
                issuer,
                stream: current(setup.issuer)?,
                partner: Some((partner, current(other)?)),
                copies,
                ..self.transfer((*pair).into(), setup.engine, setup.bytes.0, &[])?
            })
        };
        pairs.iter().map(transfer).collect()
    }

    /// Times rows of copies of pairs that share nothing, each a round of its own. They run at once, unless that was
    /// found to make a difference.
    pub(crate) fn bandwidth_at_once(
        &self,
        pairs: &[Pair],
        setup: Setup,
        rows: u32,
        copies: u32,
    ) -> Result<Vec<Row>, HardwareError> {
        let kind = (setup.engine, setup.issuer, setup.path, setup.bytes);
        let alone = |pair: &Pair| {
            self.bandwidth(&[*pair], setup, rows, copies).map(|mut rows| rows.remove(0))
        };
        if self.at_once.borrow().is_apart(kind) {
            return pairs.iter().map(alone).collect();
        }
        let mut found = self.bandwidth(pairs, setup, rows, copies)?;
        if setup.placement != Placement::REFERENCE {
            return Ok(found);
        }
        let due = self.at_once.borrow_mut().next(kind);
        if let Some(turn) = due {
            let which = turn % pairs.len();
            found[which].alone = self.rows_alone(pairs[which], setup, rows, copies)?;
            if found[which].differs_alone() {
                self.at_once.borrow_mut().keep_apart(kind);
                let compared = found[which].clone();
                found = pairs.iter().map(alone).collect::<Result<Vec<_>, _>>()?;
                found[which].alone = compared.alone;
                found[which].together = compared.rows;
            }
        }
        Ok(found)
    }

    /// Times rows of one of several pairs by itself, for comparison.
    fn rows_alone(
        &self,
        pair: Pair,
        setup: Setup,
        rows: u32,
        copies: u32,
    ) -> Result<Vec<crate::Span>, HardwareError> {
        let transfers = self.between(&[pair], setup, copies.max(1))?;
        (0..rows)
            .map(|_| Ok(self.row(&transfers, timing(setup))?.remove(0).spans.remove(0)))
            .collect()
    }

    /// Returns true if there are enough rows: at least `wanted` rows that agree with each other, or a single one that
    /// agrees with earlier rows of the pair.
    fn is_enough(&self, pair: Pair, setup: Setup, row: &Row, wanted: u32) -> bool {
        let copy_ns = row.copy_ns();
        let counted = settled(&copy_ns);
        let agree = match counted {
            [] => false,
            [only] => self.is_as_seen(pair, setup, *only),
            several => spread_percent(several) <= Some(agree_percent(setup.path)),
        };
        counted.len() >= wanted as usize && agree
    }

    /// Times many more rows if one took far longer than the others: one copy in thirty may do so, and a few rows show
    /// at most one of them. A link that wakes up has one such row and no other.
    fn look_again(
        &self,
        transfers: &[Transfer],
        setup: Setup,
        found: &mut [Row],
    ) -> Result<(), HardwareError> {
        let plain = (setup.path, setup.direction) == (Path::Direct, Direction::OneWay);
        let copy_ns: Vec<_> = found.iter().map(Row::copy_ns).collect();
        let odd = copy_ns.iter().any(|copy_ns| !slow(copy_ns).is_empty());
        let looks = self.looks_again.get();
        if !plain || !odd || looks >= MOST_LOOKS {
            return Ok(());
        }
        self.looks_again.set(looks + 1);
        let longest = copy_ns.iter().filter_map(|copy_ns| median(copy_ns));
        let row_ns = longest.fold(0.0, f64::max) * f64::from(found[0].copies);
        let wanted = AGAIN_COPIES.div_ceil(found[0].copies.max(1));
        let began = found[0].rows.len();
        let is_enough = |_: &Transfer, row: &Row| {
            let more = u32::try_from(row.rows.len() - began).unwrap_or(u32::MAX);
            more >= wanted || f64::from(more) * row_ns >= AGAIN_NS
        };
        self.rows_until(transfers, timing(setup), wanted, found, is_enough)
    }

    /// Times rows of small copies, which show the cost of a copy apart from its bytes. On the staged path they would
    /// measure its staging.
    fn small_rows(
        &self,
        transfers: &[Transfer],
        setup: Setup,
        found: &mut [Row],
    ) -> Result<(), HardwareError> {
        let one_way = (setup.path, setup.direction) == (Path::Direct, Direction::OneWay);
        if !one_way || setup.placement != Placement::REFERENCE || setup.bytes.0 <= FIXED_COST_BYTES
        {
            return Ok(());
        }
        let small = |transfer: &Transfer| Transfer {
            bytes: FIXED_COST_BYTES,
            copies: FIXED_COST_COPIES,
            ..*transfer
        };
        let small: Vec<_> = transfers.iter().map(small).collect();
        for (row, timed) in found.iter_mut().zip(self.row(&small, timing(setup))?) {
            row.small = timed.spans;
        }
        Ok(())
    }

    /// Times one more row in which each copy has its own time, if a round's two directions did not run at the same
    /// time.
    fn marked_row(
        &self,
        transfers: &[Transfer],
        setup: Setup,
        found: &mut [Row],
    ) -> Result<(), HardwareError> {
        let [one, other] = &*found else { return Ok(()) };
        if one.at_once > 1 || at_the_same_time(one, other) {
            return Ok(());
        }
        let few = |transfer: &Transfer| Transfer { copies: MARKED_COPIES, ..*transfer };
        let few: Vec<_> = transfers.iter().map(few).collect();
        let timing = Timing { marked: true, ..timing(setup) };
        for (row, timed) in found.iter_mut().zip(self.row(&few, timing)?) {
            row.marked = timed.spans;
        }
        Ok(())
    }

    /// Returns true if a copy took as long as others of the pair, or longer by the cost of its placement for other
    /// pairs. On H200 the default stream of the source costs a row 18 us, two thirds of a per cent, and always the
    /// same.
    fn is_as_seen(&self, pair: Pair, setup: Setup, copy_ns: f64) -> bool {
        let Some(pace) = self.pace_seen(pair, setup) else {
            return true;
        };
        let cost = self.placement_ns.borrow().get(&setup.of_any_size()).copied();
        let agrees = |expected: f64| spread_percent(&[expected, copy_ns]) <= Some(AGREE_PERCENT);
        agrees(pace) || cost.is_some_and(|cost| agrees(pace + cost))
    }

    /// Stores the time per byte in the reference placement, and the extra time of a copy in another one.
    #[allow(clippy::cast_precision_loss, reason = "sizes stay far below 2^53")]
    fn learn_pace(&self, pairs: &[Pair], setup: Setup, found: &[Row]) {
        for (pair, row) in pairs.iter().zip(found) {
            let Some(ns) = median(settled(&row.copy_ns())) else {
                continue;
            };
            if setup.placement == Placement::REFERENCE {
                self.pace
                    .borrow_mut()
                    .insert((*pair, setup.of_any_size()), ns / setup.bytes.0 as f64);
            } else if let Some(pace) = self.pace_seen(*pair, setup) {
                self.placement_ns.borrow_mut().insert(setup.of_any_size(), ns - pace);
            }
        }
    }

    /// Returns the nanoseconds of such a copy in the reference placement, if measured before.
    #[allow(clippy::cast_precision_loss, reason = "sizes stay far below 2^53")]
    fn pace_seen(&self, pair: Pair, setup: Setup) -> Option<f64> {
        let reference = setup.of_any_size().with_placement(Placement::REFERENCE);
        self.pace.borrow().get(&(pair, reference)).map(|pace| pace * setup.bytes.0 as f64)
    }
}

/// Returns the way in which copies between pairs are timed. A staged row has no gate, since its calls hold the host
/// until staging buffers are free.
const fn timing(setup: Setup) -> Timing {
    Timing {
        gated: matches!(setup.path, Path::Direct),
        blocking: setup.placement.is_blocking(),
        ..Timing::PLAIN
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Selection;
    use model::placement::{HostMode, StreamKind};
    use model::units::Bytes;

    #[test]
    fn one_row_is_enough_where_its_placement_costs_what_it_cost_another_pair() {
        let driver = sim::driver(sim::Simulated::find("h200x2").unwrap().spec).unwrap();
        let select = |index: u32| Selection::of(driver.as_ref(), index);
        let bench = Bench::open(driver.as_ref(), &[select(0), select(1)], Bytes(1 << 30));
        let pairs = [Pair { source: 0, destination: 1 }, Pair { source: 1, destination: 0 }];
        let reference = Setup::REFERENCE.with_bytes(Bytes(1 << 20));
        let side = Placement::REFERENCE;
        let default = reference.with_placement(Placement {
            source: StreamKind::Default,
            host: HostMode::NonBlocking,
            ..side
        });
        let row = |us: f64| Row {
            rows: vec![crate::Span { start_ns: 0.0, end_ns: us * 1e3 }],
            copies: 1,
            ..Row::default()
        };
        bench.learn_pace(&pairs, reference, &[row(100.0), row(120.0)]);
        // Only a time as in the reference placement is enough: the cost of the placement is not known yet.
        let is_enough = |pair: usize, us: f64| bench.is_as_seen(pairs[pair], default, us * 1e3);
        assert!(is_enough(0, 100.1) && !is_enough(0, 101.0) && !is_enough(1, 121.0));
        bench.learn_pace(&pairs[..1], default, &[row(101.0)]);
        assert!(
            is_enough(1, 121.0)
                && is_enough(1, 120.0)
                && !is_enough(1, 122.0)
                && !is_enough(1, 119.0)
        );
    }
}
