//! The advice for programs on the machine.

use super::page::{Page, Paint};
use model::report::Report;

/// Writes the report's advice, one item per topic. Writes nothing if there is no advice.
pub(super) fn write(page: &mut Page, report: &Report) {
    if report.advice.is_empty() {
        return;
    }
    page.heading("For programs on this machine");
    for advice in &report.advice {
        let mut text = advice.sentence.clone();
        if !advice.pytorch.is_empty() {
            text += &format!(" In PyTorch: {}.", advice.pytorch.join("; "));
        }
        page.item(2, 11, advice.basis.topic(), Paint::Strong, &text);
    }
}
