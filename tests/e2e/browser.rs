//! Tests of the HTML report in a browser. Nothing is fetched, no script fails, no text overlaps another, and all text
//! is readable. They run only if Debian's chromium-headless-shell or chromium is installed.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use serde_json::Value;

use crate::common::{check, place, redact, run, skipped_for_want_of, text_of, with};

/// A script that checks a page and writes its results into it.
const CHECK: &str = include_str!("../data/page-check.js");

/// Machines of one and of many GPUs, with PCIe alone and with NVLink, healthy and faulty.
const MACHINES: [&str; 5] = ["demo", "h200x8", "two-sockets", "rtx3090x4", "single"];

/// Returns the browser, or `None` if it is not installed.
fn browser() -> Option<PathBuf> {
    let known = ["/usr/bin/chromium-headless-shell", "/usr/bin/chromium"];
    let found = known.iter().map(PathBuf::from).find(|path| path.exists());
    if found.is_none() {
        skipped_for_want_of("chromium-headless-shell");
    }
    found
}

/// Opens the page and returns its final state in the browser.
fn open(browser: &Path, page: &Path, options: &[&str]) -> Output {
    let folder = tempfile::tempdir().unwrap();
    let data = format!("--user-data-dir={}", folder.path().display());
    let fixed = [
        "--headless",
        "--no-sandbox",
        "--disable-gpu",
        "--dump-dom",
        "--virtual-time-budget=3000",
        &data,
    ];
    let url = format!("file://{}", page.display());
    Command::new("timeout")
        .arg("100")
        .arg(browser)
        .args(fixed)
        .args(options)
        .arg(url)
        .output()
        .unwrap()
}

/// Makes a report of this machine from a standard check, with its timeline.
fn report(machine: &str) -> (tempfile::TempDir, PathBuf) {
    let (folder, file) = place("report.html");
    let trace = text_of(&folder.path().join("run.trace"));
    run(&with(
        check(machine, "standard"),
        &["-o", &text_of(&file), "-o", &trace, "--journal=none"],
    ));
    (folder, file)
}

/// Returns the script's results for a page of this width.
fn look(browser: &Path, page: &Path, width: u32, dark: bool) -> Value {
    let size = format!("--window-size={width},2000");
    let scheme = format!("--blink-settings=preferredColorScheme={}", u8::from(!dark));
    let output = open(browser, page, &[&size, &scheme]);
    let page = String::from_utf8_lossy(&output.stdout).into_owned();
    let result =
        page.split("<pre id=\"result\">").nth(1).and_then(|rest| rest.split("</pre>").next());
    let result =
        result.unwrap_or_else(|| panic!("no result: {}", String::from_utf8_lossy(&output.stderr)));
    let result = result.replace("&lt;", "<").replace("&gt;", ">").replace("&amp;", "&");
    serde_json::from_str(&result).unwrap()
}

/// Removes the page's policy, opens all of it, and adds the script that checks it.
fn with_check(page: &Path) {
    let text = fs::read_to_string(page).unwrap();
    let (before, after) = text.split_once("<meta http-equiv").unwrap();
    let (_, after) = after.split_once('>').unwrap();
    let text = format!("{before}{after}").replace("<details", "<details open");
    fs::write(page, text.replace("</body>", &format!("<script>{CHECK}</script></body>"))).unwrap();
}

#[test]
fn a_page_fetches_nothing_and_its_script_runs_under_its_policy() {
    let Some(browser) = browser() else { return };
    let (folder, file) = report("h200x2");
    let log = folder.path().join("net.json");
    let options = [format!("--log-net-log={}", log.display()), "--enable-logging=stderr".into()];
    let output = open(&browser, &file, &options.each_ref().map(String::as_str));
    let (page, said) =
        (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(page.contains("<body class=\"live\">"), "the script did not run: {said}");
    assert!(!said.contains("CONSOLE"), "{said}");
    let log = fs::read_to_string(&log).unwrap();
    let fetched: Vec<&str> =
        log.split("\"url\":\"").skip(1).filter_map(|rest| rest.split('"').next()).collect();
    // The browser contacts its maker by itself; a page cannot cause that.
    let own = ["google", "gvt1", "gstatic", "chrome"];
    let of_page =
        |url: &&&str| !own.iter().any(|name| url.contains(name)) && !url.starts_with("file:");
    assert_eq!(fetched.iter().find(of_page), None);
}

#[test]
fn no_text_lies_over_another_and_all_can_be_read() {
    let Some(browser) = browser() else { return };
    for machine in MACHINES {
        let (_folder, file) = report(machine);
        with_check(&file);
        for (width, dark) in [(1280, false), (1280, true), (400, false), (400, true)] {
            let result = look(&browser, &file, width, dark);
            assert!(result["texts"].as_u64() > Some(50), "{result}");
            // One GPU has no placements.
            let most = if machine == "single" { 0 } else { 8 };
            assert!(result["charts"].as_u64() >= Some(most), "{machine}: {result}");
            assert_eq!(
                result["faults"],
                Value::Array(Vec::new()),
                "{machine} at {width}, dark: {dark}"
            );
        }
    }
}

#[test]
fn a_page_that_compares_can_be_read_too() {
    let Some(browser) = browser() else { return };
    let (folder, page) = place("compared.html");
    let at = |name: &str| text_of(&folder.path().join(name));
    let (old, new) = (at("old.json"), at("new.json"));
    run(&with(check("demo", "quick"), &["-o", &old]));
    run(&with(check("two-sockets", "quick"), &["-o", &new]));
    let compared = run(&["compare", &old, &new, "--format", "html"]);
    fs::write(&page, compared.stdout).unwrap();
    with_check(&page);
    for (width, dark) in [(1280, false), (400, true)] {
        let result = look(&browser, &page, width, dark);
        assert!(result["texts"].as_u64() > Some(20), "{result}");
        assert_eq!(result["faults"], Value::Array(Vec::new()), "at {width}, dark: {dark}");
    }
}

#[test]
fn a_page_is_diagnosed_to_the_same_findings() {
    let (folder, file) = report("demo");
    let json = text_of(&folder.path().join("again.json"));
    let again = run(&["diagnose", &text_of(&file), "-o", &json]);
    assert_eq!(again.code, Some(1), "{again:?}");
    let from_json = run(&["diagnose", &json]);
    assert_eq!(redact(&from_json.stdout), redact(&again.stdout));
    assert!(again.stdout.contains("[pcie-narrow]"), "{again:?}");
}
