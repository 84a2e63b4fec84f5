//! Where a file of NCCL and the machine differ.

use super::figures::count;
use super::page::{Page, Paint};
use model::report::Report;

/// Writes the differences, if a file was given.
pub(super) fn write(page: &mut Page, report: &Report) {
    let Some(against) = &report.against else {
        return;
    };
    page.heading(&format!("NCCL's file {} beside this machine", against.file));
    if against.differences.is_empty() {
        page.note(
            Paint::Plain,
            &format!("{} compared: no difference", count(against.compared as usize, "statement")),
        );
    }
    for difference in &against.differences {
        page.note(Paint::Warning, &difference.of);
        page.item(4, 13, "file", Paint::Faint, &difference.file);
        page.item(4, 13, "machine", Paint::Faint, &difference.machine);
        if let Some(costs) = &difference.costs {
            page.item(4, 13, "costs", Paint::Faint, costs);
        }
    }
}
