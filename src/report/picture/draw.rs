//! Draws the layout as SVG. Every element has a tooltip, and `data-g` lists the GPUs it belongs to.

use maud::{Markup, html};

use super::joins::Stroke;
use super::layout::{
    Arc, BESIDE, Boxed, CAPTION, Drawn, LEAF, Layout, PLANE, SMALL, fit, int, text_width,
};
use super::parts::{Unit, words};
use crate::escape::clean;
use crate::paint::Paint;
use model::topology::NodeKind;

/// Draws the layout, without the element around it.
pub(super) fn drawing(layout: &Layout) -> Markup {
    html! {
        @for [from, to, y] in &layout.sockets {
            g .between {
                title { "between processors; rate not known" }
                line x1=(from) x2=(to) y1=(y) y2=(y) {}
            }
        }
        @for drawn in &layout.links { (link(drawn)) }
        @for drawn in &layout.arcs { (arc(drawn)) }
        @if let Some((at, gpus)) = &layout.plane { (plane(*at, gpus)) }
        @for boxed in &layout.boxes { (part(boxed)) }
        @for drawn in &layout.links { (caption(drawn)) }
        @for drawn in &layout.arcs { (arc_label(drawn)) }
        @if let Some((y, note)) = &layout.note { text .note x="12" y=(y) { "⊘ " (clean(note)) } }
    }
}

/// Returns GPUs in the form of `data-g`.
fn list(gpus: &[u32]) -> String {
    gpus.iter().map(ToString::to_string).collect::<Vec<_>>().join(" ")
}

/// Returns the width of a line by the rate of the link: four times the rate, twice the width.
fn stroke(rate: Option<f64>) -> String {
    let width =
        rate.filter(|rate| rate.is_finite()).map_or(1.5, |rate| 1.0 + rate.max(0.0).sqrt() / 2.4);
    format!("stroke-width:{:.1}", width.clamp(1.5, 9.0))
}

fn link(drawn: &Drawn) -> Markup {
    let Drawn { x, y: [top, bottom], link, .. } = drawn;
    html! {
        g .part.link.nv[drawn.nvlink].bad[link.is_narrow()].within[link.label.is_empty()] data-g=(list(&drawn.gpus)) {
            title { (clean(&link.tip)) }
            line .wide x1=(x) x2=(x) y1=(top) y2=(bottom) {}
            line x1=(x) x2=(x) y1=(top) y2=(bottom) style=(stroke(link.rate)) {}
        }
    }
}

/// Writes the caption beside a link.
fn caption(drawn: &Drawn) -> Markup {
    let Drawn { x, y: [top, bottom], link, .. } = drawn;
    // A long link crosses its neighbours: the caption goes to the end without neighbours.
    let middle = if drawn.nvlink { bottom - 16 } else { bottom.min(&(top + 46)) - 23 };
    let (x, y) = (x + BESIDE, if link.of.is_some() { middle - 2 } else { middle + 4 });
    html! {
        @if !link.label.is_empty() {
            text .label.bad[link.is_narrow()] x=(x) y=(y) {
                (fit(&clean(&link.label), 10, CAPTION))
                @if let Some(of) = &link.of { tspan x=(x) dy="12" { (fit(&format!("of {} ✖", clean(of)), 10, CAPTION)) } }
            }
        }
    }
}

fn class(what: Stroke) -> &'static str {
    match what {
        Stroke::NvLink => "part link nv",
        Stroke::Slow => "part link nv bad",
        Stroke::Refused => "part link refused",
        Stroke::Bad => "part link bad",
    }
}

fn arc(drawn: &Arc) -> Markup {
    let Arc { from, to, y, depth, join } = drawn;
    // A cubic curve hangs three quarters as deep as its handles.
    let handle = y + depth * 4 / 3;
    let path = format!("M{from} {y}C{from} {handle} {to} {handle} {to} {y}");
    html! {
        g class=(class(join.what)) data-g=(list(&join.pair.gpus())) {
            title { (clean(&join.tip)) }
            path .wide d=(path) {}
            path d=(path) style=(stroke(join.rate)) {}
        }
    }
}

fn arc_label(drawn: &Arc) -> Markup {
    let text = fit(&clean(&drawn.join.label), 10, 80);
    let (x, y) = (i32::midpoint(drawn.from, drawn.to), drawn.y + drawn.depth);
    let width = text_width(&text, 10) + 6;
    html! {
        rect .behind x=(x - width / 2) y=(y - 7) width=(width) height="14" rx="3" {}
        text .label.middle.bad[matches!(drawn.join.what, Stroke::Slow | Stroke::Bad)] x=(x) y=(y + 4) { (text) }
    }
}

fn plane([x, y, width, height]: [i32; 4], gpus: &[u32]) -> Markup {
    html! {
        g .part.plane data-g=(list(gpus)) {
            title { "All NVSwitches together" }
            rect x=(x) y=(y) width=(width) height=(height) rx="5" {}
            text .name.middle x=(x + width / 2) y=(y + 20) { (PLANE) }
        }
    }
}

fn part(boxed: &Boxed) -> Markup {
    let Boxed { at: [x, y, width, height], part } = boxed;
    let mark = part.mark.sign();
    let (error, warning) = (part.mark == Paint::Error, part.mark == Paint::Warning);
    html! {
        g .part.(words(part.kind).0).error[error].warning[warning].lost[part.lost] data-g=(list(&part.gpus)) {
            title { (clean(&part.tip)) }
            rect x=(x) y=(y) width=(width) height=(height) rx="6" {}
            @if part.kind == NodeKind::Gpu && part.times > 1 {
                (group(part, *x, *y, *width))
            } @else {
                (text(part, [*x, *y, *width, *height]))
            }
            @if !mark.is_empty() { text .mark x=(x + width - 14) y=(y + 14) { (mark) } }
        }
    }
}

fn text(part: &Unit, [x, y, width, height]: [i32; 4]) -> Markup {
    let middle = x + width / 2;
    let is_leaf = height == LEAF;
    let name = if is_leaf { 13 } else { 12 };
    let lines = part.lines.iter().take(if is_leaf { 3 } else { 1 });
    let first = match (is_leaf, part.lines.len()) {
        (true, 3..) => 18,
        (true, 2) => 25,
        (true, _) => 32,
        (false, 0) => 24,
        (false, _) => 17,
    };
    let room = width - if part.mark >= Paint::Warning { 22 } else { 8 };
    html! {
        text .name.middle x=(middle) y=(y + first) { (fit(&clean(&part.name), name, room)) }
        @for (number, line) in (1..).zip(lines) {
            text .detail.middle x=(middle) y=(y + first + number * 14) { (fit(&clean(line), 10, width - 8)) }
        }
    }
}

/// Draws GPUs that are folded into one part, a small box for each.
fn group(part: &Unit, x: i32, y: i32, width: i32) -> Markup {
    let (wide, high, columns) = SMALL;
    let left = x + (width - int(part.gpus.len().min(columns)) * wide) / 2;
    let place = |number: usize| {
        (left + int(number % columns) * wide, y + 38 + int(number / columns) * high)
    };
    let model =
        part.lines.first().map(|model| format!("{} x {model}", part.times)).unwrap_or_default();
    html! {
        text .name.middle x=(x + width / 2) y=(y + 16) { (fit(&part.name, 13, width - 8)) }
        text .detail.middle x=(x + width / 2) y=(y + 30) { (fit(&clean(&model), 10, width - 8)) }
        @for (number, gpu) in part.gpus.iter().enumerate() {
            @let (x, y) = place(number);
            g .part.small data-g=(gpu) {
                rect x=(x + 1) y=(y + 1) width=(wide - 2) height=(high - 2) rx="3" {}
                text .detail.middle x=(x + wide / 2) y=(y + 14) { (gpu) }
            }
        }
    }
}
