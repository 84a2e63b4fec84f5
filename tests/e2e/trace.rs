//! Tests of `check -o FILE.trace`: the file is read back and compared with the report of the same run.

use std::collections::BTreeSet;
use std::process::Stdio;

use scraper::{ElementRef, Html, Selector};
use serde_json::Value;

use crate::common::{finish, peerscope, read_json, run, wait};
use crate::fake::Fake;
use crate::worker_faults::{PATIENCE, until};

fn events<'a>(file: &'a Value, phase: &str) -> Vec<&'a Value> {
    file["traceEvents"].as_array().unwrap().iter().filter(|event| event["ph"] == phase).collect()
}

/// Returns the beginning and the end of a slice, microseconds.
fn ends(slice: &Value) -> [f64; 2] {
    let start = slice["ts"].as_f64().unwrap();
    [start, start + slice["dur"].as_f64().unwrap()]
}

/// Computes from the slices alone the share of a kernel on this GPU that ran beside the copy of a part, per cent.
fn overlap(file: &Value, part: &str, gpu: u64) -> f64 {
    let of = |kind: &str, gpu: Option<u64>| {
        let is = |slice: &&&Value| {
            let args = &slice["args"];
            args["part"] == part && args["kind"] == kind && gpu.is_none_or(|gpu| args["gpu"] == gpu)
        };
        let found: Vec<[f64; 2]> =
            events(file, "X").iter().filter(is).map(|slice| ends(slice)).collect();
        assert_eq!(found.len(), 1, "{part}, {kind} on {gpu:?}");
        found[0]
    };
    let ([copy_start, copy_end], [start, end]) = (of("copy", None), of("kernel", Some(gpu)));
    100.0 * (end.min(copy_end) - start.max(copy_start)).max(0.0) / (end - start)
}

/// Compares the slices of every placement with the table of the report.
fn compare(file: &Value, report: &Value) {
    let mut compared = BTreeSet::new();
    for cell in report["measurements"]["overlap"].as_array().unwrap() {
        if (cell["source"].as_u64(), cell["destination"].as_u64()) != (Some(0), Some(1)) {
            continue;
        }
        let word = |key: &str| cell["placement"][key].as_str().unwrap();
        // One run of each placement of the experiment is drawn.
        let is_drawn =
            ["source", "destination"].iter().all(|side| ["default", "side"].contains(&word(side)));
        if !is_drawn || cell["kernel_stream"] != "default" {
            continue;
        }
        let part = format!("{}/{}/{}", word("source"), word("destination"), word("host"));
        let gpu = u64::from(cell["compute_on"] == "destination");
        let (drawn, said) = (overlap(file, &part, gpu), cell["overlap_percent"].as_f64().unwrap());
        assert!(
            (drawn - said).abs() < 2.0,
            "{part}, kernel on GPU {gpu}: {drawn}% drawn, {said}% in the report"
        );
        compared.insert((part, gpu));
    }
    assert_eq!(compared.len(), 16, "eight placements, a kernel on either GPU: {compared:?}");
}

/// Checks what holds for every file.
fn is_sound(file: &Value) {
    let (slices, leaves, arrives) = (events(file, "X"), events(file, "s"), events(file, "f"));
    for slice in &slices {
        assert!(
            slice["ts"].as_f64().unwrap() >= 0.0 && slice["dur"].as_f64().unwrap() >= 0.0,
            "{slice}"
        );
    }
    let uncertainty = |gpu: &Value| {
        file["otherData"]["clocks"]
            .as_array()
            .unwrap()
            .iter()
            .find(|clock| clock["gpu"] == *gpu)
            .unwrap()["uncertainty_us"]
            .as_f64()
            .unwrap()
    };
    assert_eq!(leaves.len(), arrives.len());
    for arrow in arrives {
        let (from, at) = (
            leaves.iter().find(|leaves| leaves["id"] == arrow["id"]).unwrap(),
            arrow["ts"].as_f64().unwrap(),
        );
        let has = |slice: &&&Value| {
            slice["tid"] == arrow["tid"] && (ends(slice)[0]..=ends(slice)[1]).contains(&at)
        };
        let to = slices.iter().find(has).unwrap();
        let (off, left) = (uncertainty(&to["args"]["gpu"]) + 0.01, from["ts"].as_f64().unwrap());
        assert!(at > left, "{arrow} from {from}");
        assert!(ends(to)[0] + off >= left, "{to} from {from}");
    }
}

#[test]
fn the_slices_of_all_placements_overlap_as_the_table_says() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let (trace, report) = (at("run.trace"), at("report.json"));
    for profile in ["standard", "full"] {
        let arguments = ["check", "--machine", "h200x2", "--profile", profile, "--only", "overlap"];
        let ran = run(&[&arguments[..], &["-o", &trace, "-o", &report]].concat());
        assert_eq!((ran.code, ran.stderr.as_str()), (Some(0), ""), "{ran:?}");
        let (file, report) = (read_json(&trace), read_json(&report));
        is_sound(&file);
        assert!(events(&file, "s").len() >= 24, "{}", events(&file, "s").len());
        compare(&file, &report);
        assert_eq!(file["otherData"]["simulated"], true);
        let clocks = file["otherData"]["clocks"].as_array().unwrap();
        assert_eq!(clocks.len(), 2, "{clocks:?}");
        for clock in clocks {
            assert!(
                clock["drift_ppm"].as_f64().unwrap().abs()
                    <= clock["drift_uncertainty_ppm"].as_f64().unwrap()
            );
            assert!(clock["readings"].as_u64().unwrap() >= 6, "{clock}");
        }
    }
}

#[test]
fn the_live_driver_draws_the_same() {
    let fake = Fake::new("h200x2");
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let (trace, report) = (at("run.trace"), at("report.json"));
    let ran =
        finish(&mut fake.command(&["check", "--only", "overlap", "-o", &trace, "-o", &report]));
    assert_eq!(ran.code, Some(0), "{ran:?}");
    let (file, report) = (read_json(&trace), read_json(&report));
    // Its events have a clock of their own, which is unrelated to this machine's: the gates hold them together.
    assert_eq!(events(&file, "s").len(), 24);
    compare(&file, &report);
    assert_eq!(file["otherData"]["simulated"], false);
}

#[test]
fn pipelines_and_calls_are_drawn_too() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let (trace, report) = (at("run.trace"), at("report.json"));
    let only =
        ["check", "--machine", "h200x2", "--only", "pipeline,async", "-o", &trace, "-o", &report];
    let ran = run(&only);
    assert!(std::path::Path::new(&trace).exists(), "{ran:?}");
    let (file, report) = (read_json(&trace), read_json(&report));
    let parts: Vec<&str> =
        events(&file, "X").iter().filter_map(|slice| slice["args"]["part"].as_str()).collect();
    for part in
        ["streams: 1", "streams: 3", "wait for GPU 0", "wait for GPU 1", "pageable", "synchronise"]
    {
        assert!(
            parts.iter().any(|name| name.contains(part)),
            "{part}: {:?}",
            parts.iter().collect::<BTreeSet<_>>()
        );
    }
    // The report times each pipeline from the first copy in to the last copy out; the events between stages take some
    // time.
    let pipeline = &report["measurements"]["pipeline"][0];
    for (streams, key) in [("1", "one_stream_us"), ("3", "several_streams_us")] {
        let of = |slice: &&&Value| {
            let args = &slice["args"];
            args["probe"] == "pipeline"
                && args["kind"].is_string()
                && args["part"].as_str().unwrap().ends_with(streams)
        };
        let ends: Vec<[f64; 2]> =
            events(&file, "X").iter().filter(of).map(|slice| ends(slice)).collect();
        assert_eq!(ends.len(), 24, "three stages of eight batches");
        let (first, last) =
            ends.iter().fold((f64::MAX, 0.0_f64), |(a, b), ends| (a.min(ends[0]), b.max(ends[1])));
        let said = pipeline[key].as_f64().unwrap();
        assert!(
            (last - first - said).abs() < 0.05 * said,
            "{streams}: {} us drawn, {said} us said",
            last - first
        );
    }
    let tracks = events(&file, "M")
        .iter()
        .filter(|event| {
            event["args"]["name"].as_str().is_some_and(|name| name.starts_with("side stream"))
        })
        .count();
    assert!(tracks >= 3, "a track for each stream");
}

/// Returns a page of the same run.
fn page(path: &str) -> Html {
    Html::parse_document(&std::fs::read_to_string(path).unwrap())
}

fn select<'a>(page: &'a Html, query: &str) -> Vec<ElementRef<'a>> {
    page.select(&Selector::parse(query).unwrap()).collect()
}

#[test]
fn the_page_of_the_run_draws_the_same_slices() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let (trace, report, again) = (at("run.trace"), at("report.html"), at("again.html"));
    let ran = run(&["check", "--machine", "h200x8", "-o", &trace, "-o", &report]);
    assert_eq!((ran.code, ran.stderr.as_str()), (Some(0), ""), "{ran:?}");
    assert!(std::fs::metadata(&report).unwrap().len() < 500_000);
    let (file, shown) = (read_json(&trace), page(&report));
    assert_eq!(shown.errors, [""; 0]);
    let charts: Vec<String> =
        select(&shown, "figcaption strong").iter().map(|name| name.text().collect()).collect();
    let parts: Vec<&Value> =
        events(&file, "X").into_iter().filter(|slice| slice["cat"] == "part").collect();
    let named = |part: &&Value| {
        charts.iter().any(|name| part["name"].as_str().unwrap().ends_with(name.as_str()))
    };
    assert!(parts.len() == charts.len() && parts.iter().all(named), "{charts:?}");
    for category in ["copy", "kernel", "host"] {
        let class = if category == "host" { "call" } else { category };
        let drawn = select(&shown, &format!("svg.lane g.{class}")).len();
        let slices = events(&file, "X").iter().filter(|slice| slice["cat"] == category).count();
        assert!(drawn == slices && slices > 8, "{category}: {drawn} drawn, {slices} in the file");
    }
    // Eight placements on one scale.
    let of_overlap =
        |slice: &&&Value| slice["args"]["probe"] == "overlap" && slice["cat"] == "copy";
    let took: Vec<f64> = events(&file, "X")
        .iter()
        .filter(of_overlap)
        .map(|slice| slice["dur"].as_f64().unwrap())
        .collect();
    let copies = select(&shown, ".lanes:first-of-type g.copy rect");
    let widths: Vec<f64> =
        copies.iter().map(|rect| rect.attr("width").unwrap().parse().unwrap()).collect();
    assert_eq!((took.len(), widths.len()), (8, 8));
    // All eight copies take equally long, within a hundredth.
    let scale = widths[0] / took[0];
    for width in &widths {
        assert!((width - took[0] * scale).abs() < 0.01 * widths[0] + 0.1, "{took:?} {widths:?}");
    }
    // Only the run itself has a timeline: a saved report has none.
    run(&["diagnose", &report, "-o", &again]);
    assert_eq!(select(&page(&again), "svg.lane").len(), 0);
    assert!(!select(&page(&again), ".maps table.heat").is_empty());
}

#[test]
fn a_timeline_changes_no_figure_and_is_asked_for_by_its_name() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let (trace, with, without) = (at("run.trace"), at("with.json"), at("without.json"));
    let arguments = ["check", "--machine", "h200x2", "--only", "overlap", "-o"];
    run(&[&arguments[..], &[&with, "-o", &trace]].concat());
    run(&[&arguments[..], &[&without]].concat());
    let overlaps = |path: &str| read_json(path)["measurements"]["overlap"].clone();
    assert_eq!(
        overlaps(&with).as_array().unwrap().len(),
        overlaps(&without).as_array().unwrap().len()
    );
    for (one, other) in
        overlaps(&with).as_array().unwrap().iter().zip(overlaps(&without).as_array().unwrap())
    {
        let of = |cell: &Value| cell["overlap_percent"].as_f64().unwrap();
        assert!((of(one) - of(other)).abs() < 1.0, "{one} {other}");
    }
    let ran = run(&["check", "--machine", "h200x2", "--profile", "quick", "-o", &trace]);
    assert_eq!(ran.code, Some(2), "{ran:?}");
    assert!(ran.stderr.contains("run.trace: profile quick"), "{ran:?}");
    let ran = run(&["check", "--machine", "h200x2", "-o", &trace, "-o", &trace]);
    assert_eq!(ran.code, Some(2), "one file for both: {ran:?}");
    let ran = run(&["check", "--machine", "h200x2", "-o", "/nowhere/at/all.trace"]);
    assert_eq!(ran.code, Some(2), "{ran:?}");
    // A machine without peer access has nothing to draw, and nothing else changes.
    let nothing = at("nothing.trace");
    let ran = run(&["check", "--machine", "none", "-o", &nothing]);
    assert_eq!(ran.code, Some(3), "{ran:?}");
    assert!(
        ran.stderr.contains("nothing that a timeline shows was recorded")
            && !std::path::Path::new(&nothing).exists(),
        "{ran:?}"
    );
}

/// Returns the names of the parts in a file.
fn parts(file: &Value) -> BTreeSet<String> {
    let slices = events(file, "X").into_iter().filter(|slice| slice["cat"] == "part");
    slices.map(|slice| slice["name"].as_str().unwrap().to_owned()).collect()
}

#[test]
fn recover_draws_what_check_drew_as_far_as_the_journal_goes() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let (journal, kept, trace) = (at("journal"), at("kept"), at("run.trace"));
    let only = ["check", "--machine", "h200x2", "--only", "overlap,pipeline,async"];
    let mut checking = peerscope(&[&only[..], &["-o", &trace, "--journal", &journal]].concat());
    let mut checking = checking.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    // The run removes its journal at its end: another name keeps it.
    until("a journal", PATIENCE, || std::fs::hard_link(&journal, &kept).ok());
    assert_eq!(wait(&mut checking).code(), Some(0));
    assert!(!std::path::Path::new(&journal).exists());
    let again = at("again.trace");
    let recover = |journal: &str, trace: &str| run(&["recover", journal, "-o", trace]);
    let ran = recover(&kept, &again);
    assert_eq!(ran.stderr, "", "{ran:?}");
    let whole = read_json(&trace);
    assert_eq!(std::fs::read_to_string(&again).unwrap(), std::fs::read_to_string(&trace).unwrap());

    // Cut within a line, after an increasing number of lines.
    let text = std::fs::read(&kept).unwrap();
    let ends: Vec<usize> =
        text.iter().enumerate().filter(|(_, byte)| **byte == b'\n').map(|(at, _)| at).collect();
    let lines: Vec<&[u8]> = text.split(|byte| *byte == b'\n').collect();
    let is_drawn = |line: &usize| {
        let entry: Value = serde_json::from_slice(lines[*line]).unwrap_or_default();
        // Some entries contain only clocks.
        entry["event"]["timeline"]["timeline"]["parts"]
            .as_array()
            .is_some_and(|parts| !parts.is_empty())
    };
    let drawn: Vec<usize> = (0..ends.len()).filter(is_drawn).collect();
    assert!(drawn.len() >= 8, "{}", drawn.len());
    let mut seen = 0;
    for line in [drawn[0], drawn[1], drawn[drawn.len() / 2], drawn[drawn.len() - 1], ends.len() - 1]
    {
        let (cut, partly) = (at("cut"), at("partly.trace"));
        std::fs::write(&cut, &text[..ends[line] - 3]).unwrap();
        let ran = recover(&cut, &partly);
        assert_eq!(ran.code, Some(3), "{ran:?}");
        if line == drawn[0] {
            assert!(ran.stderr.contains("nothing that a timeline shows was recorded"), "{ran:?}");
            assert!(!std::path::Path::new(&partly).exists());
            continue;
        }
        let file = read_json(&partly);
        is_sound(&file);
        let there = parts(&file);
        assert!(there.is_subset(&parts(&whole)) && there.len() >= seen, "{there:?}");
        (seen, _) = (there.len(), std::fs::remove_file(&partly).unwrap());
    }
    assert_eq!(seen, parts(&whole).len(), "what was lost last is no slice");
    // One file for both outputs.
    let ran = run(&["recover", &kept, "-o", &again, "-o", &again]);
    assert!(ran.code == Some(2) && ran.stderr.contains("same file"), "{ran:?}");
}
