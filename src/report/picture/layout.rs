//! The places of all elements, in units of the picture. The box of a part spans everything below it, so that no two
//! links cross. The layout depends on the report alone and uses whole numbers.

use std::collections::{BTreeMap, BTreeSet};

use unicode_width::UnicodeWidthStr;

use super::fold;
use super::joins::{self, Join};
use super::parts::{self, Above, Unit};
use model::report::Report;
use model::topology::NodeKind;

/// Space around everything.
const MARGIN: i32 = 12;
/// Space between parts side by side.
const GAP: i32 = 8;
/// Height of a part with others below it.
const BAR: i32 = 36;
/// Height of a link.
const LINK: i32 = 34;
/// Width of a GPU.
const GPU: i32 = 70;
/// Width of an adapter.
const ADAPTER: i32 = 62;
/// Height of GPUs and adapters.
pub(super) const LEAF: i32 = 70;
/// A GPU within a folded group: width, height, and number in a row.
pub(super) const SMALL: (i32, i32, usize) = (28, 20, 12);
/// Distance between arcs one below the other.
const ARC: i32 = 24;

#[derive(Default)]
pub(super) struct Layout {
    pub width: i32,
    pub height: i32,
    pub boxes: Vec<Boxed>,
    pub links: Vec<Drawn>,
    pub sockets: Vec<[i32; 3]>,
    pub arcs: Vec<Arc>,
    /// The place of the NVSwitches, if there are any, and their GPUs.
    pub plane: Option<([i32; 4], Vec<u32>)>,
    /// A line of text below everything, with its position.
    pub note: Option<(i32, String)>,
}

pub(super) struct Boxed {
    pub at: [i32; 4],
    pub part: Unit,
}

impl Boxed {
    const fn middle(&self) -> i32 {
        self.at[0] + self.at[2] / 2
    }
}

/// A downward link.
pub(super) struct Drawn {
    pub x: i32,
    pub y: [i32; 2],
    pub link: Above,
    pub gpus: Vec<u32>,
    /// True if it is an NVLink.
    pub nvlink: bool,
}

/// A direct connection of two GPUs, drawn below them.
pub(super) struct Arc {
    pub from: i32,
    pub to: i32,
    pub y: i32,
    pub depth: i32,
    pub join: Join,
}

impl Drawn {
    /// Returns the right end of the caption, with some room.
    fn right(&self) -> i32 {
        let of = self.link.of.as_ref().map_or(0, |of| text_width(&format!("of {of} ✖"), 10));
        self.x + BESIDE + text_width(&self.link.label, 10).max(of).min(CAPTION) + 2
    }
}

/// Distance of a caption from its link, and its largest width.
pub(super) const BESIDE: i32 = 9;
pub(super) const CAPTION: i32 = 96;

/// Returns the width of a text at this size, with room to spare: fonts differ.
pub(crate) fn text_width(text: &str, size: i32) -> i32 {
    let columns = i32::try_from(text.width()).unwrap_or(i32::MAX / 100).min(10_000);
    columns * size * 6 / 10
}

/// Cuts the text to fit this width at this size.
pub(crate) fn fit(text: &str, size: i32, width: i32) -> String {
    if text_width(text, size) <= width {
        return text.to_owned();
    }
    let mut cut = String::new();
    for c in text.chars() {
        cut.push(c);
        if text_width(&cut, size) + size > width {
            cut.pop();
            break;
        }
    }
    cut + "…"
}

/// Lays out the machine of a report.
pub(super) fn of(report: &Report) -> Layout {
    let parts = fold::fold(parts::of(report));
    let (joins, note) = joins::of(report);
    let levels = parts.iter().map(levels).max().unwrap_or(0);
    let mut layout = Layout::default();
    let bottom = MARGIN + levels * (BAR + LINK);
    let mut x = MARGIN;
    for part in parts {
        let width = width_of(&part);
        layout.place(part, x, width, 0, bottom);
        x += width + 2 * GAP;
    }
    let captions =
        layout.links.iter().filter(|drawn| !drawn.link.label.is_empty()).map(Drawn::right);
    layout.width = captions.chain([x - 2 * GAP + MARGIN, 2 * MARGIN + GPU]).max().unwrap_or(0);
    let sockets = layout.of_kind(NodeKind::NumaNode);
    let between = sockets.windows(2).map(|pair| {
        let [x, y, width, _] = pair[0].at;
        [x + width, pair[1].at[0], y + BAR / 2]
    });
    layout.sockets = between.collect();
    let leaves = layout.boxes.iter().map(|boxed| boxed.at[1] + boxed.at[3]).max().unwrap_or(bottom);
    layout.join(joins, leaves);
    let deepest = layout.arcs.iter().map(|arc| leaves + arc.depth + 12).max().unwrap_or(leaves);
    layout.height = layout.plane(report, deepest);
    if let Some(note) = note {
        layout.width = layout.width.max(text_width(&note, 12) + 2 * MARGIN);
        layout.note = Some((layout.height + 14, note));
        layout.height += 22;
    }
    layout.height += MARGIN;
    layout
}

/// Counts the levels of parts above the GPUs.
fn levels(part: &Unit) -> i32 {
    part.below.iter().map(|below| 1 + levels(below)).max().unwrap_or(0)
}

/// Returns a number of parts as a length.
pub(crate) fn int(count: usize) -> i32 {
    i32::try_from(count).unwrap_or(0)
}

/// Returns the room between parts side by side.
fn gaps(parts: &[Unit]) -> i32 {
    GAP * int(parts.len().saturating_sub(1))
}

fn width_of(part: &Unit) -> i32 {
    match part.kind {
        NodeKind::Gpu if part.times > 1 => {
            let columns = int(part.gpus.len().min(SMALL.2));
            (columns * SMALL.0 + 16).max(text_width(&part.name, 13) + 24).clamp(GPU, 432)
        }
        NodeKind::Gpu => GPU,
        NodeKind::Adapter => ADAPTER,
        _ => {
            let lines = part.lines.iter().map(|line| text_width(line, 10));
            let own = lines.chain([text_width(&part.name, 12)]).max().unwrap_or(0) + 20;
            own.min(324).max(part.below.iter().map(width_of).sum::<i32>() + gaps(&part.below))
        }
    }
}

fn height_of(part: &Unit) -> i32 {
    match part.times {
        0 | 1 => LEAF,
        _ => LEAF.max(46 + int(part.gpus.len().div_ceil(SMALL.2)) * SMALL.1),
    }
}

impl Layout {
    fn place(&mut self, mut part: Unit, x: i32, width: i32, level: i32, bottom: i32) {
        let below = std::mem::take(&mut part.below);
        let (y, height) = match below.is_empty() {
            true => (bottom, height_of(&part)),
            false => (MARGIN + level * (BAR + LINK), BAR),
        };
        let widths: Vec<i32> = below.iter().map(width_of).collect();
        let mut at = x + (width - widths.iter().sum::<i32>() - gaps(&below)) / 2;
        for (child, child_width) in below.into_iter().zip(widths) {
            let end = if child.below.is_empty() { bottom } else { y + BAR + LINK };
            self.links.push(Drawn {
                x: at + child_width / 2,
                y: [y + BAR, end],
                link: child.above.clone().unwrap_or_default(),
                gpus: child.gpus.clone(),
                nvlink: false,
            });
            self.place(child, at, child_width, level + 1, bottom);
            at += child_width + GAP;
        }
        self.boxes.push(Boxed { at: [x, y, width, height], part });
    }

    fn of_kind(&self, kind: NodeKind) -> Vec<&Boxed> {
        self.boxes.iter().filter(|boxed| boxed.part.kind == kind).collect()
    }

    /// Adds the direct connections of GPUs.
    fn join(&mut self, all: Vec<Join>, y: i32) {
        let gpus = self.of_kind(NodeKind::Gpu);
        let middle =
            |gpu| Some(gpus.iter().rfind(|boxed| boxed.part.gpus.contains(&gpu))?.middle());
        let mut joins: Vec<(i32, i32, Join)> = Vec::new();
        for join in all {
            if let [Some(one), Some(other)] = join.pair.gpus().map(middle)
                && one != other
                && !joins.iter().any(|(from, to, known)| {
                    (*from, *to, &known.label) == (one, other, &join.label)
                })
            {
                joins.push((one.min(other), one.max(other), join));
            }
        }
        joins.sort_by_key(|(from, to, join)| (to - from, *from, join.pair));
        let mut ends: BTreeMap<i32, Vec<usize>> = BTreeMap::new();
        for (number, (from, to, _)) in joins.iter().enumerate() {
            ends.entry(*from).or_default().push(number);
            ends.entry(*to).or_default().push(number);
        }
        // Ends at one GPU are side by side: arcs to the left start on its left.
        for (middle, numbers) in &mut ends {
            numbers.sort_by_key(|number| {
                let (from, to, _) = &joins[*number];
                if from == middle { (1, -(to - from)) } else { (0, to - from) }
            });
        }
        let shift = |middle: i32, number: usize| {
            let numbers = &ends[&middle];
            let place = numbers.iter().position(|other| *other == number).unwrap_or(0);
            let step = (84 / int(numbers.len())).min(16);
            middle + int(place) * step - int(numbers.len() - 1) * step / 2
        };
        let mut taken: Vec<(i32, i32, i32)> = Vec::new();
        for (number, (from, to, join)) in joins.iter().enumerate() {
            let is_free = |depth: &i32| {
                taken.iter().all(|(low, high, other)| other != depth || to <= low || high <= from)
            };
            let depth = (1..).find(is_free).unwrap_or(1);
            taken.push((*from, *to, depth));
            let (from, to) = (shift(*from, number), shift(*to, number));
            self.arcs.push(Arc { from, to, y, depth: 6 + depth * ARC, join: join.clone() });
        }
    }

    /// Adds the NVSwitches below everything, if there are any. Returns the lowest end of all.
    fn plane(&mut self, report: &Report, deepest: i32) -> i32 {
        let uplinks: BTreeMap<u32, Above> = joins::to_switches(report).collect();
        let y = deepest + 44;
        let link = |boxed: &Boxed| {
            let gpus = &boxed.part.gpus;
            let link = gpus.iter().find_map(|gpu| uplinks.get(gpu))?.clone();
            let y = [boxed.at[1] + boxed.at[3], y];
            Some((boxed.at, Drawn { x: boxed.middle(), y, link, gpus: gpus.clone(), nvlink: true }))
        };
        let links: Vec<_> = self.of_kind(NodeKind::Gpu).into_iter().filter_map(link).collect();
        let (Some((first, _)), Some((last, _))) = (links.first(), links.last()) else {
            return deepest;
        };
        let low = first[0];
        let width = (last[0] + last[2] - low).max(text_width(PLANE, 13) + 24);
        let gpus: BTreeSet<u32> = links.iter().flat_map(|(_, link)| link.gpus.clone()).collect();
        self.width = self.width.max(low + width + MARGIN);
        self.plane = Some(([low, y, width, 30], gpus.into_iter().collect()));
        self.links.extend(links.into_iter().map(|(_, link)| link));
        y + 30
    }
}

/// Label of all NVSwitches together.
pub(super) const PLANE: &str = "NVSwitch";
