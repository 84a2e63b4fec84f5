//! The places of all elements, in units of the picture. The box of a part spans everything below it, so that no two
//! links cross. The layout depends on the report alone and uses whole numbers.

use std::collections::{BTreeMap, BTreeSet};

use unicode_width::UnicodeWidthStr;

use super::fold;
use super::joins::{self, Join};
use super::parts::{self, Above, Part, PartKind};
use model::report::Report;

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

pub(super) struct Layout {
    pub(super) width: i32,
    pub(super) height: i32,
    pub(super) boxes: Vec<Boxed>,
    pub(super) links: Vec<Drawn>,
    pub(super) sockets: Vec<[i32; 3]>,
    pub(super) arcs: Vec<Arc>,
    /// The NVSwitches, if there are any.
    pub(super) plane: Option<Plane>,
    /// Lines of text below everything, with their positions.
    pub(super) notes: Vec<(i32, String)>,
}

pub(super) struct Boxed {
    pub(super) at: [i32; 4],
    pub(super) part: Part,
}

/// A downward link.
pub(super) struct Drawn {
    pub(super) x: i32,
    pub(super) y: [i32; 2],
    pub(super) link: Above,
    pub(super) gpus: Vec<u32>,
    /// True if it is an NVLink.
    pub(super) nvlink: bool,
}

/// A direct connection of two GPUs, drawn below them.
pub(super) struct Arc {
    pub(super) from: i32,
    pub(super) to: i32,
    pub(super) y: i32,
    pub(super) depth: i32,
    pub(super) join: Join,
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

/// The NVSwitches.
pub(super) struct Plane {
    pub(super) at: [i32; 4],
    pub(super) gpus: Vec<u32>,
}

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
    let levels = parts.iter().map(levels).max().unwrap_or(0);
    let mut layout = Layout {
        width: 0,
        height: 0,
        boxes: Vec::new(),
        links: Vec::new(),
        sockets: Vec::new(),
        arcs: Vec::new(),
        plane: None,
        notes: Vec::new(),
    };
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
    layout.between_sockets();
    let leaves = layout.boxes.iter().map(|boxed| boxed.at[1] + boxed.at[3]).max().unwrap_or(bottom);
    let deepest = layout.join(report, leaves);
    layout.height = layout.plane(report, leaves, deepest);
    for note in joins::notes(report) {
        layout.height += 8;
        layout.width = layout.width.max(text_width(&note, 12) + 2 * MARGIN);
        layout.notes.push((layout.height + 6, note));
        layout.height += 14;
    }
    layout.height += MARGIN;
    layout
}

/// Counts the levels of parts above the GPUs.
fn levels(part: &Part) -> i32 {
    if part.below.is_empty() { 0 } else { 1 + part.below.iter().map(levels).max().unwrap_or(0) }
}

fn width_of(part: &Part) -> i32 {
    match part.kind {
        PartKind::Gpu if part.times > 1 => {
            let columns = i32::try_from(part.gpus.len().min(SMALL.2)).unwrap_or(0);
            (columns * SMALL.0 + 16).max(text_width(&part.name, 13) + 24).clamp(GPU, 432)
        }
        PartKind::Gpu => GPU,
        PartKind::Adapter => ADAPTER,
        _ => {
            let lines = part.lines.iter().map(|line| text_width(line, 10));
            let own = lines.chain([text_width(&part.name, 12)]).max().unwrap_or(0) + 20;
            let gaps = GAP * i32::try_from(part.below.len().saturating_sub(1)).unwrap_or(0);
            own.min(324).max(part.below.iter().map(width_of).sum::<i32>() + gaps)
        }
    }
}

fn height_of(part: &Part) -> i32 {
    if part.times < 2 {
        return LEAF;
    }
    let rows = i32::try_from(part.gpus.len().div_ceil(SMALL.2)).unwrap_or(0);
    LEAF.max(46 + rows * SMALL.1)
}

impl Layout {
    fn place(&mut self, mut part: Part, x: i32, width: i32, level: i32, bottom: i32) {
        let is_leaf = part.below.is_empty();
        let y = if is_leaf { bottom } else { MARGIN + level * (BAR + LINK) };
        let height = if is_leaf { height_of(&part) } else { BAR };
        let below = std::mem::take(&mut part.below);
        let widths: Vec<i32> = below.iter().map(width_of).collect();
        let gaps = GAP * i32::try_from(below.len().saturating_sub(1)).unwrap_or(0);
        let mut at = x + (width - widths.iter().sum::<i32>() - gaps) / 2;
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

    /// Adds lines between adjacent sockets.
    fn between_sockets(&mut self) {
        let sockets: Vec<_> = self
            .boxes
            .iter()
            .filter(|boxed| boxed.part.kind == PartKind::Socket)
            .map(|boxed| boxed.at)
            .collect();
        for pair in sockets.windows(2) {
            self.sockets.push([pair[0][0] + pair[0][2], pair[1][0], pair[0][1] + BAR / 2]);
        }
    }

    /// Returns the middle of each GPU's box.
    fn middles(&self) -> BTreeMap<u32, i32> {
        let leaves = self.boxes.iter().filter(|boxed| boxed.part.kind == PartKind::Gpu);
        leaves
            .flat_map(|boxed| {
                boxed.part.gpus.iter().map(|gpu| (*gpu, boxed.at[0] + boxed.at[2] / 2))
            })
            .collect()
    }

    /// Adds the direct connections of GPUs. Returns their lowest end.
    fn join(&mut self, report: &Report, y: i32) -> i32 {
        let middles = self.middles();
        let mut joins: Vec<(i32, i32, Join)> = Vec::new();
        for join in joins::of(report) {
            let ends =
                [join.pair.source, join.pair.destination].map(|gpu| middles.get(&gpu).copied());
            if let [Some(one), Some(other)] = ends
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
            let count = i32::try_from(numbers.len()).unwrap_or(1);
            let place = numbers
                .iter()
                .position(|other| *other == number)
                .and_then(|place| i32::try_from(place).ok());
            let step = (84 / count).min(16);
            middle + place.unwrap_or(0) * step - (count - 1) * step / 2
        };
        let mut taken: Vec<(i32, i32, i32)> = Vec::new();
        for (number, (from, to, join)) in joins.iter().enumerate() {
            let depth = (1..).find(|depth| {
                taken.iter().all(|(low, high, other)| other != depth || to <= low || high <= from)
            });
            let depth = depth.unwrap_or(1);
            taken.push((*from, *to, depth));
            let (from, to) = (shift(*from, number), shift(*to, number));
            self.arcs.push(Arc { from, to, y, depth: 6 + depth * ARC, join: join.clone() });
        }
        self.arcs.iter().map(|arc| y + arc.depth + 12).max().unwrap_or(y)
    }

    /// Adds the NVSwitches, if there are any. Returns the lowest end of all.
    fn plane(&mut self, report: &Report, leaves: i32, deepest: i32) -> i32 {
        let uplinks: BTreeMap<u32, Above> = joins::to_switches(report).into_iter().collect();
        let all: Vec<&Boxed> =
            self.boxes.iter().filter(|boxed| boxed.part.kind == PartKind::Gpu).collect();
        let joined: Vec<&&Boxed> = all
            .iter()
            .filter(|boxed| boxed.part.gpus.iter().any(|gpu| uplinks.contains_key(gpu)))
            .collect();
        let (Some(first), Some(last)) = (joined.first(), joined.last()) else {
            return deepest;
        };
        let y = deepest.max(leaves) + 44;
        let (low, high) = (first.at[0], last.at[0] + last.at[2]);
        let width = (high - low).max(text_width(PLANE, 13) + 24);
        let mut gpus = BTreeSet::new();
        let mut links = Vec::new();
        for boxed in joined {
            let link = boxed
                .part
                .gpus
                .iter()
                .find_map(|gpu| uplinks.get(gpu))
                .cloned()
                .unwrap_or_default();
            gpus.extend(boxed.part.gpus.iter().copied());
            let top = boxed.at[1] + boxed.at[3];
            let x = boxed.at[0] + boxed.at[2] / 2;
            links.push(Drawn { x, y: [top, y], link, gpus: boxed.part.gpus.clone(), nvlink: true });
        }
        self.links.append(&mut links);
        self.width = self.width.max(low + width + MARGIN);
        self.plane = Some(Plane { at: [low, y, width, 30], gpus: gpus.into_iter().collect() });
        y + 30
    }
}

/// Label of all NVSwitches together.
pub(super) const PLANE: &str = "NVSwitch";
