//! Checks of the page and the picture of every report: both are well-formed, what a finding is about is marked, texts
//! of the picture do not overlap, many GPUs fold, and the page gets the verdict of its report.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use quick_xml::Reader;
use quick_xml::events::{BytesStart, Event};
use scraper::{ElementRef, Html, Selector};
use serde_json::Value;
use unicode_width::UnicodeWidthStr;

use crate::common::{list, run, text_of, write_json};

/// Most bytes of a server's page, which may be mailed.
const MOST_BYTES: usize = 500_000;
/// Most GPUs of a server.
const SERVER: usize = 8;
/// Most width of a picture with more GPUs than a server: it folds until it is not much wider than a screen.
const WIDEST: f64 = 1600.0;

/// Returns the paths of page and picture in a folder.
pub(crate) fn files(folder: &Path) -> [PathBuf; 2] {
    ["report.html", "report.svg"].map(|name| folder.join(name))
}

/// Checks both files.
pub(crate) fn assert_pages(folder: &Path, report: &Value) {
    let [page, picture] = files(folder);
    let gpus = list(&report["snapshot"]["gpus"]).len();
    assert_picture(&std::fs::read_to_string(picture).unwrap(), gpus);
    let text = std::fs::read_to_string(&page).unwrap();
    assert!(gpus > SERVER || text.len() <= MOST_BYTES, "{} bytes for {gpus} GPUs", text.len());
    let parsed = Html::parse_document(&text);
    assert!(parsed.errors.is_empty(), "{:?}", parsed.errors);
    assert_marks(&parsed, report);
    // The page gives the same result as the JSON, to the last figure. Both match the run, except for the place that a
    // message names if several are alike, because the figures of a report are rounded.
    let saved = write_json(folder, "saved.json", report);
    let [of_page, of_json] =
        [text_of(&page), saved].map(|file| run(&["diagnose", &file, "--format", "json"]).json());
    assert_eq!(of_page["verdict"], of_json["verdict"]);
    assert_eq!(of_page["findings"], of_json["findings"]);
    assert_eq!(of_page["verdict"], report["verdict"]);
    let about = |report: &Value| -> Vec<String> {
        let of = |finding: &Value| {
            format!("{} {} {}", finding["code"], finding["severity"], finding["subject"])
        };
        list(&report["findings"]).iter().map(of).collect()
    };
    assert_eq!(about(&of_page), about(report));
}

fn select<'a>(of: ElementRef<'a>, query: &str) -> Vec<ElementRef<'a>> {
    of.select(&Selector::parse(query).unwrap()).collect()
}

fn number(element: ElementRef<'_>) -> u64 {
    element.attr("data-g").unwrap().parse().unwrap()
}

/// A map of pairs: the GPUs of its head, and its cells.
struct Map<'a> {
    heads: Vec<ElementRef<'a>>,
    cells: BTreeMap<(u64, u64), ElementRef<'a>>,
}

fn map(table: ElementRef<'_>) -> Map<'_> {
    let heads = select(table, "thead th[data-g]");
    let columns: Vec<u64> = heads.iter().copied().map(number).collect();
    let mut cells = BTreeMap::new();
    for row in select(table, "tbody tr") {
        let source = number(select(row, "th")[0]);
        let found = select(row, "td");
        assert_eq!(found.len(), columns.len(), "a cell for each column");
        cells.extend(
            columns.iter().zip(found).map(|(&destination, cell)| ((source, destination), cell)),
        );
    }
    Map { heads, cells }
}

fn is_marked(element: ElementRef<'_>, classes: &[&str], signs: &[char]) -> bool {
    let has = element.value().classes().any(|class| classes.contains(&class));
    has && (signs.is_empty() || element.text().any(|text| text.contains(signs)))
}

/// Checks that colour and a sign mark everything that an error or a warning is about. The other direction of a pair is
/// marked too.
fn assert_marks(page: &Html, report: &Value) {
    let tables = select(page.root_element(), ".maps table.heat");
    let maps: Vec<Map<'_>> = tables
        .into_iter()
        .filter(|table| !select(*table, "thead th[data-g]").is_empty())
        .map(map)
        .collect();
    for finding in list(&report["findings"]).iter().filter(|finding| finding["severity"] != "info")
    {
        let subject = &finding["subject"];
        let gpu = |key: &str| subject[key].as_u64().unwrap();
        for map in &maps {
            match subject["kind"].as_str().unwrap() {
                "pair" => {
                    let (source, destination) = (gpu("source"), gpu("destination"));
                    let Some(cell) = map.cells.get(&(source, destination)) else {
                        continue;
                    };
                    assert!(
                        is_marked(*cell, &["error", "warning"], &['✖', '▲']),
                        "{}: {}",
                        finding["code"],
                        cell.html()
                    );
                    let back = map.cells[&(destination, source)];
                    let signs = ['✖', '▲', '⇄'];
                    assert!(
                        is_marked(back, &["error", "warning", "reverse"], &signs),
                        "{}: {}",
                        finding["code"],
                        back.html()
                    );
                }
                "gpu" | "link" => {
                    let Some(head) = map.heads.iter().find(|head| number(**head) == gpu("index"))
                    else {
                        continue;
                    };
                    assert!(
                        is_marked(*head, &["error", "warning"], &[]),
                        "{}: {}",
                        finding["code"],
                        head.html()
                    );
                }
                _ => {}
            }
        }
    }
}

/// A text of a picture, and the least rectangle that it takes.
struct Text {
    said: String,
    at: [f64; 4],
}

fn attribute(element: &BytesStart<'_>, name: &str) -> Option<String> {
    let found =
        element.attributes().map(Result::unwrap).find(|one| one.key.as_ref() == name.as_bytes())?;
    Some(String::from_utf8(found.value.to_vec()).unwrap())
}

/// Parses a picture as strict XML. Returns its width, its number of parts, and its texts.
fn read(picture: &str) -> (f64, usize, Vec<Text>) {
    let mut reader = Reader::from_str(picture);
    let (mut width, mut parts, mut texts): (f64, usize, Vec<Text>) = Default::default();
    let mut open: Vec<(String, Vec<String>)> = Vec::new();
    let mut place = None;
    loop {
        match reader.read_event().unwrap_or_else(|error| panic!("{error}: {picture}")) {
            Event::Start(element) => {
                let name = String::from_utf8(element.name().as_ref().to_vec()).unwrap();
                let of = |key| attribute(&element, key);
                let classes: Vec<String> =
                    of("class").unwrap_or_default().split(' ').map(str::to_owned).collect();
                parts += usize::from(classes.iter().any(|class| class == "gpu"));
                if name == "svg" {
                    width = of("width").unwrap().parse().unwrap();
                }
                if name == "text" || name == "tspan" {
                    let number = |key| of(key).map(|value| value.parse::<f64>().unwrap());
                    let (_, y) = place.unwrap_or((0.0, 0.0));
                    place = Some((
                        number("x").unwrap(),
                        number("y").unwrap_or(y + number("dy").unwrap_or(0.0)),
                    ));
                }
                open.push((name, classes));
            }
            Event::End(_) => {
                let closed = open.pop().unwrap();
                place = place.filter(|_| closed.0 != "text");
            }
            Event::Text(text) => {
                let said = text.decode().unwrap().into_owned();
                // A text within the drawing, which has its own origin.
                let within = open.iter().any(|(name, _)| name == "g");
                let is_text =
                    open.last().is_some_and(|(name, _)| ["text", "tspan"].contains(&name.as_str()));
                if let Some((x, y)) = place.filter(|_| within && is_text && !said.trim().is_empty())
                {
                    texts.push(rectangle(said, x, y, &open));
                }
            }
            Event::Eof => return (width, parts, texts),
            _ => {}
        }
    }
}

/// Estimates the rectangle of a text: letters of these fonts are on average half as wide as high.
fn rectangle(said: String, x: f64, y: f64, open: &[(String, Vec<String>)]) -> Text {
    let has = |class: &str| open.iter().any(|(_, classes)| classes.iter().any(|one| one == class));
    let size = if has("mark") {
        14.0
    } else if has("name") || has("note") {
        12.0
    } else {
        10.0
    };
    #[allow(clippy::cast_precision_loss, reason = "a few letters")]
    let width = said.width() as f64 * size * 0.5;
    let left = if has("middle") { x - width / 2.0 } else { x };
    Text { said, at: [left, y - size * 0.7, left + width, y] }
}

/// Checks that a picture is XML, not too wide, and readable.
fn assert_picture(picture: &str, gpus: usize) {
    let (width, parts, texts) = read(picture);
    assert!(gpus == 0 || parts > 0, "no GPU in {picture}");
    if gpus > 2 * SERVER {
        assert!(parts < gpus && width <= WIDEST, "{gpus} GPUs are {parts} parts, {width} wide");
    }
    for (number, one) in texts.iter().enumerate() {
        for other in &texts[number + 1..] {
            let across = one.at[2].min(other.at[2]) - one.at[0].max(other.at[0]);
            let down = one.at[3].min(other.at[3]) - one.at[1].max(other.at[1]);
            assert!(
                across <= 1.0 || down <= 1.0,
                "{:?} {:?} over {:?} {:?}",
                one.said,
                one.at,
                other.said,
                other.at
            );
        }
    }
}
