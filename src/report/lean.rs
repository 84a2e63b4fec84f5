//! JSON for reports of very many GPUs: without white space, and without what follows from the rest of the report.
//! 256 GPUs are 65280 pairs, which took 132 MB. Reading puts everything back ([`crate::model::restore`],
//! [`crate::topology::complete`]); docs/report.md has what is left out.

use std::cell::RefCell;
use std::io::{self, Write};

use serde_json::ser::Formatter;

/// Keys of routes that follow from the facts, and of figures that follow from routes and rules.
const FOLLOWS: [&[u8]; 10] = [
    b"hops",
    b"theoretical_source",
    b"staged_theoretical_gbps",
    b"nvml_read",
    b"nvml_write",
    b"expected_gbps",
    b"expected_percent",
    b"expected_low_gbps",
    b"expected_high_gbps",
    b"asymptotic_gbps",
];

/// Tables with a row for every pair, and what they lie in: a row that says the same as the row before it is left out.
const ROWS: [(&[u8], &[u8]); 2] = [(b"snapshot", b"pairs"), (b"driver", b"peer_access")];

/// Tables without nulls: what is not there is not known or none.
const WITHOUT_NULLS: [&[u8]; 3] = [b"pairs", b"peer", b"host"];

/// Keys that scripts rely on to be there, null or not.
const ALWAYS: [&[u8]; 9] = [
    b"achieved_gbps",
    b"theoretical_gbps",
    b"percent",
    b"spread_percent",
    b"host_blocked_us",
    b"bottleneck",
    b"cuda",
    b"numa_node",
    b"reason",
];

/// So much is collected before it is written, bytes.
const COLLECTED: usize = 1 << 16;

/// What is not written yet, and where it goes. It ends with what may still be taken back.
pub(super) struct Collected<W> {
    text: Vec<u8>,
    to: W,
}

impl<W: Write> Collected<W> {
    pub(super) fn new(to: W) -> RefCell<Self> {
        RefCell::new(Self {
            text: Vec::new(),
            to,
        })
    }

    /// Writes the rest.
    pub(super) fn finish(mut self) -> io::Result<()> {
        self.to.write_all(&self.text)
    }
}

/// Collects what the serialiser writes.
pub(super) struct Collecting<'a, W>(pub(super) &'a RefCell<Collected<W>>);

impl<W> Write for Collecting<'_, W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.write_all(bytes).map(|()| bytes.len())
    }

    fn write_all(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.0.borrow_mut().text.extend_from_slice(bytes);
        Ok(())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// A member of an object that is being written.
struct Member {
    /// Where it starts in the text, its comma included; none once that was written.
    start: Option<usize>,
    key: Vec<u8>,
    /// Where its value starts.
    value: usize,
}

/// Leaves out what can be left out, member by member and row by row.
pub(super) struct Lean<'a, W> {
    collected: &'a RefCell<Collected<W>>,
    /// Whether each object that is open has a member already.
    objects: Vec<bool>,
    members: Vec<Member>,
    /// Where each array value that is open starts, its comma included.
    values: Vec<usize>,
    /// The last row, without its destination.
    row: Vec<u8>,
}

impl<'a, W: Write> Lean<'a, W> {
    pub(super) fn new(collected: &'a RefCell<Collected<W>>) -> Self {
        Self {
            collected,
            objects: Vec::new(),
            members: Vec::new(),
            values: Vec::new(),
            row: Vec::new(),
        }
    }

    fn length(&self) -> usize {
        self.collected.borrow().text.len()
    }

    fn lies_in(&self, keys: &[&[u8]]) -> bool {
        self.members
            .iter()
            .any(|member| keys.contains(&member.key.as_slice()))
    }

    /// Whether this value need not be written.
    fn is_left_out(&self, member: &Member, value: &[u8]) -> bool {
        let key = member.key.as_slice();
        FOLLOWS.contains(&key) || (value == b"null" && self.may_be_null(key))
    }

    fn may_be_null(&self, key: &[u8]) -> bool {
        !ALWAYS.contains(&key) && self.lies_in(&WITHOUT_NULLS) && !self.lies_in(&[b"snapshot"])
    }

    /// Whether the array that is open is a table of pairs.
    fn in_rows(&self) -> bool {
        let [.., outer, inner] = self.members.as_slice() else {
            return false;
        };
        self.values.len() == 1 && ROWS.contains(&(outer.key.as_slice(), inner.key.as_slice()))
    }

    /// Takes the row that begins here back, if it says the same as the one before.
    fn end_row(&mut self, start: usize) {
        let mut collected = self.collected.borrow_mut();
        let text = collected.text.get(start..).unwrap_or_default();
        let row = without_destination(text.strip_prefix(b",").unwrap_or(text));
        if row == self.row {
            collected.text.truncate(start);
        }
        self.row = row;
    }

    /// Writes what is collected, where nothing of it can be taken back any more.
    fn pass_on(&mut self) -> io::Result<()> {
        let may_go = self
            .members
            .iter()
            .any(|member| FOLLOWS.contains(&member.key.as_slice()));
        if may_go || self.values.len() > 1 || self.length() < COLLECTED {
            return Ok(());
        }
        let mut collected = self.collected.borrow_mut();
        let text = std::mem::take(&mut collected.text);
        collected.to.write_all(&text)?;
        self.members
            .iter_mut()
            .for_each(|member| member.start = None);
        Ok(())
    }
}

/// The text of a row without the number of its destination.
fn without_destination(row: &[u8]) -> Vec<u8> {
    const KEY: &[u8] = b"\"destination\":";
    let Some(at) = row.windows(KEY.len()).position(|window| window == KEY) else {
        return row.to_vec();
    };
    let (before, after) = row.split_at(at + KEY.len());
    let digits = after
        .iter()
        .take_while(|byte| byte.is_ascii_digit())
        .count();
    [before, after.get(digits..).unwrap_or_default()].concat()
}

impl<W: Write> Formatter for Lean<'_, W> {
    fn begin_array_value<T: ?Sized + Write>(&mut self, to: &mut T, first: bool) -> io::Result<()> {
        self.values.push(self.length());
        if first {
            self.row.clear();
            return Ok(());
        }
        to.write_all(b",")
    }

    fn end_array_value<T: ?Sized + Write>(&mut self, _: &mut T) -> io::Result<()> {
        let is_row = self.in_rows();
        let start = self.values.last().copied().unwrap_or_default();
        if is_row {
            self.end_row(start);
        }
        let passed = self.pass_on();
        self.values.pop();
        passed
    }

    fn begin_object<T: ?Sized + Write>(&mut self, to: &mut T) -> io::Result<()> {
        self.objects.push(false);
        to.write_all(b"{")
    }

    fn end_object<T: ?Sized + Write>(&mut self, to: &mut T) -> io::Result<()> {
        self.objects.pop();
        to.write_all(b"}")
    }

    fn begin_object_key<T: ?Sized + Write>(&mut self, to: &mut T, _: bool) -> io::Result<()> {
        let start = self.length();
        if self.objects.last() == Some(&true) {
            to.write_all(b",")?;
        }
        self.members.push(Member {
            start: Some(start),
            key: Vec::new(),
            value: self.length(),
        });
        Ok(())
    }

    fn begin_object_value<T: ?Sized + Write>(&mut self, to: &mut T) -> io::Result<()> {
        let collected = self.collected.borrow();
        if let Some(member) = self.members.last_mut() {
            let key = collected.text.get(member.value..).unwrap_or_default();
            member.key = key
                .get(1..key.len().saturating_sub(1))
                .unwrap_or_default()
                .to_vec();
            member.value = collected.text.len() + 1;
        }
        drop(collected);
        to.write_all(b":")
    }

    fn end_object_value<T: ?Sized + Write>(&mut self, _: &mut T) -> io::Result<()> {
        let Some(member) = self.members.pop() else {
            return Ok(());
        };
        let collected = self.collected.borrow();
        let value = collected.text.get(member.value..).unwrap_or_default();
        let left_out = member.start.filter(|_| self.is_left_out(&member, value));
        drop(collected);
        match (left_out, self.objects.last_mut()) {
            (Some(start), _) => self.collected.borrow_mut().text.truncate(start),
            (None, Some(has_member)) => *has_member = true,
            (None, None) => {}
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use crate::model::report::Report;
    use crate::model::units::GbPerSecond;
    use crate::report::{json, sample};

    #[test]
    fn what_is_left_out_is_put_back() {
        let mut report = sample::healthy(4);
        // Rows that differ from the one before them.
        report.snapshot.pairs[2].p2p_atomics =
            Ok(crate::model::snapshot::P2pStatus::NotSupported).into();
        let mut lean = Vec::new();
        json::lean(&report, &mut lean).unwrap();
        let text = String::from_utf8(lean).unwrap();
        for key in [
            "\"hops\"",
            "\"asymptotic_gbps\"",
            "\"expected_low_gbps\"",
            "\"theoretical_source\"",
            "\"expected_gbps\"",
            "\"verification_detail\"",
            "\n  ",
        ] {
            assert!(!text.contains(key), "{key}: {text}");
        }
        assert!(
            text.len() * 3 < json::tidy(&report).len() * 2,
            "{} of {}",
            text.len(),
            json::tidy(&report).len()
        );
        let schema = std::fs::read_to_string(concat!(
            env!("CARGO_MANIFEST_DIR"),
            "/docs/report.schema.json"
        ))
        .unwrap();
        let schema = serde_json::from_str(&schema).unwrap();
        let errors = jsonschema::validator_for(&schema).unwrap();
        let value = serde_json::from_str(&text).unwrap();
        assert_eq!(
            errors
                .iter_errors(&value)
                .map(|error| error.to_string())
                .collect::<Vec<_>>(),
            Vec::<String>::new()
        );
        let mut back: Report = serde_json::from_str(&text).unwrap();
        assert!(back.snapshot.pairs.len() < report.snapshot.pairs.len());
        crate::model::restore::rows(&mut back);
        crate::topology::complete(&mut back);
        assert_eq!(back.snapshot.pairs, report.snapshot.pairs);
        // Rates have four decimal places, those of the links that routes are made of as well.
        let routes = |report: &Report| json::tidy(&report.topology.pairs);
        assert_eq!(routes(&back), routes(&report));
        let cells = |report: &Report| {
            report
                .measurements
                .as_ref()
                .map_or(Vec::new(), |them| them.peer.clone())
        };
        let rounded = |rate: Option<GbPerSecond>| rate.map(|rate| rate.0.round());
        let before: Vec<_> = cells(&report)
            .iter()
            .map(|cell| rounded(cell.without_fixed_cost()))
            .collect();
        assert!(before.iter().any(Option::is_some));
        assert_eq!(
            cells(&back)
                .iter()
                .map(|cell| rounded(cell.asymptotic_gbps))
                .collect::<Vec<_>>(),
            before
        );
        let driver = |report: &Report| report.measurements.as_ref().map(|them| them.driver.clone());
        assert_eq!(driver(&back), driver(&report));
    }
}
