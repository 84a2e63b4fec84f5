//! Bandwidth of plain rows of copies: as many rows as it takes until they agree, of one pair or of
//! several at once, with the bytes checked afterwards.

use super::Row;
use super::bench::Bench;
use super::contents::Check;
use super::figures::at_the_same_time;
use super::lane::{Lane, Shape};
use super::statistics::{median, settled, spread_percent};
use crate::hardware::HardwareError;
use crate::model::flow::Setup;
use crate::model::placement::{Direction, Pair, Path, Placement};
use crate::model::units::Bytes;
use crate::plan::{FIXED_COST_BYTES, FIXED_COST_COPIES, stream_of};

/// Rows that differ by less, in per cent, agree: more of them would change nothing. Rows of 1 GB on H200
/// scatter by 0.1 to 0.2% (docs/measurement.md).
const AGREE_PERCENT: f64 = 0.3;
/// The rows that are added at most where they do not agree.
const MORE_ROWS: u32 = 4;
/// Copies of a marked row, by which directions that do not run at the same time are told apart. The first
/// is not counted.
const MARKED_COPIES: u32 = 4;
/// A row of several pairs at once may differ by this much, in per cent, from that of one of them alone:
/// NVSwitch shows no difference (facts.md, section 7).
pub(super) const APART_PERCENT: f64 = 0.3;

impl Bench<'_> {
    /// Times rows of copies of each pair, all at once.
    pub(super) fn bandwidth(
        &self,
        pairs: &[Pair],
        setup: Setup,
        rows: u32,
        copies: u32,
    ) -> Result<Vec<Row>, HardwareError> {
        pairs.iter().try_for_each(|pair| self.set_path(*pair, setup.path))?;
        let shape = Shape::of(setup, copies.max(1));
        let marks = shape.copies.max(MARKED_COPIES).max(FIXED_COST_COPIES);
        let lanes = pairs.iter().map(|pair| self.lane(*pair, setup, marks)).collect::<Result<Vec<_>, _>>()?;
        let checked = self.cannot_check(pairs).is_none();
        if checked {
            if !self.is_filled(pairs) {
                self.fill(pairs, setup)?;
            }
            self.poison(pairs)?;
        }
        let mut found: Vec<_> = lanes.iter().map(|lane| empty(lane, setup, &shape, pairs.len())).collect();
        let mut left = rows + MORE_ROWS;
        while left > 0 && !pairs.iter().zip(&found).all(|(pair, row)| self.is_enough(*pair, setup, row, rows)) {
            self.one_more(&lanes, shape, &mut found)?;
            left -= 1;
        }
        self.small_rows(&lanes, setup, &mut found)?;
        self.marked_row(&lanes, shape, &mut found)?;
        if checked {
            for (row, counted) in found.iter_mut().zip(self.compare(pairs, setup.bytes.0)?) {
                row.check = Some(Check::of(&counted));
            }
        }
        self.learn_pace(pairs, setup, &found);
        Ok(found)
    }

    /// The same of pairs that share nothing, each a round of its own: at once, unless that was found to make
    /// a difference.
    pub(super) fn bandwidth_at_once(
        &self,
        pairs: &[Pair],
        setup: Setup,
        rows: u32,
        copies: u32,
    ) -> Result<Vec<Row>, HardwareError> {
        let kind = (setup.engine, setup.issuer, setup.path, setup.bytes);
        let alone = |pair: &Pair| self.bandwidth(&[*pair], setup, rows, copies).map(|mut rows| rows.remove(0));
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

    /// Rows of one of several pairs by itself, to compare.
    fn rows_alone(&self, pair: Pair, setup: Setup, rows: u32, copies: u32) -> Result<Vec<super::Span>, HardwareError> {
        let shape = Shape::of(setup, copies.max(1));
        let lanes = [self.lane(pair, setup, shape.copies)?];
        (0..rows).map(|_| Ok(self.row(&lanes, shape)?.remove(0).spans.remove(0))).collect()
    }

    fn one_more(&self, lanes: &[Lane], shape: Shape, found: &mut [Row]) -> Result<(), HardwareError> {
        for (row, timed) in found.iter_mut().zip(self.row(lanes, shape)?) {
            row.rows.extend(timed.spans);
            row.host_ns.push(timed.host_ns);
        }
        Ok(())
    }

    /// Whether there are enough rows: as many as wanted that agree with each other, or a single one
    /// that agrees with what the pair has shown before.
    fn is_enough(&self, pair: Pair, setup: Setup, row: &Row, wanted: u32) -> bool {
        let copy_ns = row.copy_ns();
        let counted = settled(&copy_ns);
        let agree = match counted {
            [] => false,
            [only] => {
                self.pace_seen(pair, setup).is_none_or(|pace| spread_percent(&[pace, *only]) <= Some(AGREE_PERCENT))
            }
            several => spread_percent(several) <= Some(AGREE_PERCENT),
        };
        counted.len() >= wanted as usize && agree
    }

    /// Rows of small copies, whose time tells what a copy costs beside its bytes. On the staged path they would
    /// say something of its staging.
    fn small_rows(&self, lanes: &[Lane], setup: Setup, found: &mut [Row]) -> Result<(), HardwareError> {
        let one_way = (setup.path, setup.direction) == (Path::Direct, Direction::OneWay);
        if !one_way || setup.placement != Placement::REFERENCE || setup.bytes.0 <= FIXED_COST_BYTES {
            return Ok(());
        }
        let shape = Shape::of(setup.with_bytes(Bytes(FIXED_COST_BYTES)), FIXED_COST_COPIES);
        for (row, timed) in found.iter_mut().zip(self.row(lanes, shape)?) {
            row.small = timed.spans;
        }
        Ok(())
    }

    /// Where the two directions of a round did not run at the same time, a row more in which each copy has its
    /// own time.
    fn marked_row(&self, lanes: &[Lane], shape: Shape, found: &mut [Row]) -> Result<(), HardwareError> {
        let [one, other] = &*found else { return Ok(()) };
        if one.at_once > 1 || at_the_same_time(one, other) {
            return Ok(());
        }
        let shape = Shape { marked: true, copies: MARKED_COPIES, ..shape };
        for (row, timed) in found.iter_mut().zip(self.row(lanes, shape)?) {
            row.marked = timed.spans;
        }
        Ok(())
    }

    /// Remembers how long a byte takes.
    #[allow(clippy::cast_precision_loss, reason = "sizes stay far below 2^53")]
    fn learn_pace(&self, pairs: &[Pair], setup: Setup, found: &[Row]) {
        if setup.placement != Placement::REFERENCE {
            return;
        }
        for (pair, row) in pairs.iter().zip(found) {
            if let Some(ns) = median(settled(&row.copy_ns())) {
                self.pace.borrow_mut().insert((*pair, setup.of_any_size()), ns / setup.bytes.0 as f64);
            }
        }
    }

    /// Nanoseconds that such a copy takes in the reference placement, where that was measured before.
    #[allow(clippy::cast_precision_loss, reason = "sizes stay far below 2^53")]
    fn pace_seen(&self, pair: Pair, setup: Setup) -> Option<f64> {
        let reference = setup.of_any_size().with_placement(Placement::REFERENCE);
        self.pace.borrow().get(&(pair, reference)).map(|pace| pace * setup.bytes.0 as f64)
    }
}

fn empty(lane: &Lane, setup: Setup, shape: &Shape, pairs: usize) -> Row {
    Row {
        gpu: lane.issuer_index,
        stream: stream_of(setup.placement, setup.issuer),
        copies: shape.copies,
        // Of a pair both ways there are two lanes.
        at_once: if setup.direction == Direction::BothWays { 1 } else { u32::try_from(pairs).unwrap_or(u32::MAX) },
        ..Row::default()
    }
}
