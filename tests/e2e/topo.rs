//! Tests that `topo`, which omits slow facts in output for people, reaches the same conclusions from the rest as from
//! everything.

use std::collections::BTreeSet;
use std::path::Path;

use sim::builtin;

use crate::common::{codes, flowing, run, text_of};

/// Returns the codes that a text names, in brackets behind the sentence of each finding.
fn named(text: &str) -> BTreeSet<String> {
    let words = text.split('[').skip(1).filter_map(|rest| rest.split_once(']'));
    let is_code =
        |word: &str| word.contains('-') && word.chars().all(|c| c.is_ascii_lowercase() || c == '-');
    words.map(|(word, _)| word.to_owned()).filter(|word| is_code(word)).collect()
}

#[test]
#[ignore = ".ci/run sweep runs it: more than a thousand runs"]
fn every_form_of_topo_finds_the_same_and_ends_with_the_same_code() {
    let cases =
        std::fs::read_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/cases")).unwrap();
    let cases = cases.map(|entry| text_of(&entry.unwrap().path()));
    let cases = cases.filter(|file| file.ends_with(".toml") && !file.ends_with("labels.toml"));
    for machine in builtin::names().map(ToString::to_string).chain(cases) {
        let kept = run(&["topo", "--machine", &machine, "--format", "json"]);
        let report = kept.json();
        let expected: BTreeSet<_> = codes(&report).into_iter().map(str::to_owned).collect();
        for args in
            [&["topo", "--machine", &machine][..], &["topo", "--machine", &machine, "--verbose"]]
        {
            let shown = run(args);
            assert_eq!(shown.code, kept.code, "{args:?}: {}", shown.stdout);
            assert_eq!(named(&flowing(&shown.stdout)), expected, "{args:?}: {}", shown.stdout);
        }
    }
}
