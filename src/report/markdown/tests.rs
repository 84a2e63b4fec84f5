//! Tests of the ticket's page as a renderer sees it.

use comrak::nodes::NodeValue;
use comrak::{Arena, Options, parse_document};

use super::*;
use model::advice::{Framework, Lines};
use model::report::Report;
use model::request::{Request, Silenced};

fn written(report: &Report) -> String {
    render(&Digest::of(report), &Style::PLAIN)
}

fn samples() -> Vec<Report> {
    vec![
        sample::healthy(2),
        sample::healthy(16),
        sample::pcie_box(),
        sample::unknown(0),
        sample::unknown(3),
        sample::nothing_measured(),
        sample::hostile(),
    ]
}

/// Counts the lines that are visible before anything is unfolded.
fn unfolded(page: &str) -> usize {
    let folds = page.split("<details>").skip(1).filter_map(|rest| rest.split("</details>").next());
    page.lines().count() - folds.map(|fold| fold.lines().count()).sum::<usize>()
}

/// Returns the options of GitHub's dialect.
fn dialect() -> Options<'static> {
    let mut options = Options::default();
    options.extension.table = true;
    options.extension.autolink = true;
    options.extension.strikethrough = true;
    options.extension.footnotes = true;
    options.extension.tasklist = true;
    options
}

/// Returns true if the HTML is the page's own: nothing in it comes from a report.
fn is_own(html: &str) -> bool {
    html.lines().all(|line| {
        let title = line.strip_prefix("<summary>").and_then(|rest| rest.strip_suffix("</summary>"));
        let is_title = |title: &str| title.starts_with(|c: char| c.is_ascii_uppercase());
        matches!(line, "<details>" | "</details>" | "") || title.is_some_and(is_title)
    })
}

/// Checks that a page contains nothing that acts in GitHub's dialect. Returns the texts of its table rows and of its items.
fn assert_inert(page: &str) -> [Vec<String>; 2] {
    let arena = Arena::new();
    let options = dialect();
    assert_rendered(page);
    let [mut rows, mut items] = [Vec::new(), Vec::new()];
    for node in parse_document(&arena, page, &options).descendants() {
        match &node.data().value {
            NodeValue::Link(_) | NodeValue::Image(_) => panic!("a link: {page}"),
            NodeValue::HtmlBlock(block) => {
                assert!(is_own(&block.literal), "HTML: {:?} in {page}", block.literal)
            }
            NodeValue::HtmlInline(_) => panic!("HTML: {page}"),
            NodeValue::FootnoteReference(_) | NodeValue::Strikethrough => panic!("{page}"),
            NodeValue::Text(text) => {
                assert!(!text.contains('@') && !text.contains('#'), "a mention: {text} in {page}");
            }
            NodeValue::TableRow(_) => rows.push(words(node)),
            NodeValue::Item(_) | NodeValue::TaskItem(_) => items.push(words(node)),
            _ => {}
        }
    }
    [rows, items]
}

/// Returns the text of a node.
fn words<'a>(node: &'a comrak::nodes::AstNode<'a>) -> String {
    let words = node.descendants().filter_map(|node| match &node.data().value {
        NodeValue::Text(text) => Some(text.to_string()),
        NodeValue::Code(code) => Some(code.literal.clone()),
        _ => None,
    });
    words.collect()
}

/// Checks the page as a forge shows it. Table rows must have as many cells as their heads, and every fold a title. Only
/// known elements may occur, and no markup may show as text.
fn assert_rendered(page: &str) {
    let mut options = dialect();
    options.render.r#unsafe = true;
    let html = comrak::markdown_to_html(page, &options);
    let document = scraper::Html::parse_document(&html);
    let select = |selector: &str| scraper::Selector::parse(selector).unwrap();
    let known = [
        "html", "head", "body", "h1", "h2", "p", "strong", "code", "ol", "ul", "li", "table",
        "thead", "tbody", "tr", "th", "td", "details", "summary", "input",
    ];
    for element in document.select(&select("*")) {
        let value = element.value();
        assert!(known.contains(&value.name()), "<{}> in {html}", value.name());
        let attributes: Vec<&str> = value.attrs().map(|(name, _)| name).collect();
        let allowed = ["start", "type", "disabled"];
        assert!(attributes.iter().all(|name| allowed.contains(name)), "{attributes:?} in {html}");
    }
    for table in document.select(&select("table")) {
        let heads = table.select(&select("th")).count();
        assert!(heads >= 2, "{html}");
        for row in table.select(&select("tbody tr")) {
            assert_eq!(row.select(&select("td")).count(), heads, "{html}");
        }
    }
    let tags =
        ["<details>", "</details>", "<summary>", "</summary>"].map(|tag| page.matches(tag).count());
    assert!(tags.iter().all(|number| *number == tags[0]) && tags[0] > 0, "{tags:?}: {page}");
    // Folds render. None is within another, and none is around the whole.
    assert_eq!(
        document.select(&select("body > details > summary:first-child")).count(),
        tags[0],
        "{html}"
    );
    assert_eq!(document.select(&select("details details")).count(), 0, "{html}");
    let inputs = document.select(&select("li > input[type=checkbox]")).count();
    assert_eq!(inputs, page.matches("- [ ] suspect: ").count(), "{html}");
}

#[test]
fn no_markup_is_shown_as_text() {
    for report in [sample::healthy(8), sample::pcie_box(), sample::unknown(3)] {
        let page = written(&report);
        let html = comrak::markdown_to_html(&page, &dialect());
        let document = scraper::Html::parse_document(&html);
        let text: String = document.root_element().text().collect();
        for markup in ["**", "|---", "](", "\n|", "- [ ]", "&lt;", "##", "\\"] {
            assert!(!text.contains(markup), "{markup} in {text}");
        }
    }
}

#[test]
fn the_ticket_has_findings_suspects_and_part_before_all_else() {
    let page = written(&sample::pcie_box());
    for part in ["\n- **ERROR** ", "  - part: GPU ", "  - seen: ", "  - [ ] suspect: "] {
        let at = page.find(part).unwrap_or_else(|| panic!("{part}: {page}"));
        assert!(at < page.find("<summary>Machine").unwrap(), "{page}");
    }
}

#[test]
fn it_is_markdown_and_short() {
    for report in samples() {
        let page = written(&report);
        let [rows, _] = assert_inert(&page);
        assert!(rows.len() >= 3 || report.verdict.tested == 0, "{page}");
        assert!(page.starts_with("# peerscope: ") && page.ends_with('\n'), "{page}");
        assert!(
            unfolded(&page) <= 90 && page.len() < 20_000,
            "{} lines, {}: {page}",
            unfolded(&page),
            page.len()
        );
        assert!(!page.contains("\n\n\n"), "{page}");
    }
}

#[test]
fn a_machine_cannot_write_into_the_ticket() {
    for evil in [
        "<img src=x onerror=alert(1)>",
        "[click](https://evil.example)",
        "![x](https://evil.example/x.png)",
        "https://evil.example www.evil.example mail@evil.example",
        "WWW.evil.example HTTPS://evil.example ftp://evil.example",
        "@team #12 ~~gone~~ **bold** `code` $x$ &lt;b&gt;",
        "a | b | c \\| d",
        "a |\n|---|---|\n| b |",
        "x\n\n# heading\n\n| a |\n|---|",
        "trailing \\",
        "[^1] [a]: b",
    ] {
        let mut report = sample::pcie_box();
        report.machine = evil.into();
        report.started_at = evil.into();
        report.request = Request {
            gpus: vec![evil.into()],
            gpus_left_out: 1,
            only: vec![evil.into()],
            skip: vec![evil.into()],
            probes_left_out: vec![evil.into()],
            config: Some(evil.into()),
            silenced: vec![Silenced { code: evil.to_owned().into(), severity: None }],
            ..Request::default()
        };
        report.snapshot.host.hostname = model::reading::Reading::Known(evil.into());
        report.snapshot.problems.push(evil.into());
        for gpu in &mut report.snapshot.gpus {
            gpu.name = model::reading::Reading::Known(evil.into());
        }
        for route in &mut report.topology.pairs {
            route.bottleneck = Some(evil.into());
        }
        for finding in &mut report.findings {
            finding.message = evil.into();
            finding.code = evil.to_owned().into();
            finding.next_step = evil.into();
            finding.evidence.add(evil, vec![evil.to_owned()]);
        }
        for advice in &mut report.advice {
            advice.sentence = evil.into();
            advice.programs = vec![Lines::new(Framework::Cupy, &[evil])];
        }
        let page = written(&report);
        let [_, items] = assert_inert(&page);
        let shown = clean(evil).into_owned();
        let whole = items.iter().filter(|item| item.contains(&shown)).count();
        // Each finding with its step, the host, GPUs and advice.
        assert!(whole > 8, "{whole} times {shown:?}: {items:#?}");
        assert_eq!(page.lines().filter(|line| line.starts_with('#')).count(), 2, "{page}");
    }
}

#[test]
fn it_says_what_is_wrong_where_and_how_to_see_it_again() {
    let page = written(&sample::pcie_box());
    for part in [
        "# peerscope: FAULTY\n\n**SIMULATED machine demo: ",
        "4 errors, 1 warning; ",
        "  - seen: ",
        "  - do: ",
        "GPU 3 (slot 7)",
        "- host: simulated, ",
        "- GPU ",
        "| GPU0 | ",
        "--machine demo`",
        "- Run: peerscope 0.0.0, ",
    ] {
        assert!(page.contains(part), "no {part}: {page}");
    }
    let mut some = sample::healthy(8);
    some.request.gpus = vec!["1".into(), "3".into()];
    assert!(written(&some).contains(" --gpus 1,3`"), "{}", written(&some));
    // A person pastes it into a shell.
    some.measurements.as_mut().unwrap().profile = "quick; touch x".into();
    assert!(written(&some).contains("--profile 'quick; touch x' "), "{}", written(&some));
}

#[test]
fn a_bar_in_a_cell_ends_no_row() {
    let mut table = Table::of_figures(2);
    table.captions(["a | b", "c"]);
    table.row(["x \\| y |", "1"].map(super::super::matrix::Cell::from));
    let mut page = Page::new(false);
    page.table(table);
    let out = lay_out("t", &page);
    let html = comrak::markdown_to_html(&out, &dialect());
    let document = scraper::Html::parse_document(&html);
    let cells = scraper::Selector::parse("th, td").unwrap();
    let texts: Vec<String> = document.select(&cells).map(|cell| cell.text().collect()).collect();
    assert_eq!(texts, ["a | b", "c", "x \\| y |", "1"], "{out}");
}

#[test]
fn many_findings_are_counted_and_none_is_lost() {
    let mut report = sample::pcie_box();
    let one = report.findings[0].clone();
    report.findings = vec![one; 40];
    let page = written(&report);
    assert!(page.contains("37 more like this"), "{page}");
}
