//! Text that people pasted, labelled before any output was seen (tests/pasted): the exit code of each.

use std::fs;
use std::path::PathBuf;

use libtest_mimic::Trial;

use crate::common::{run, text_of};
use crate::trial;

pub(crate) fn trials() -> Vec<Trial> {
    let root = PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/pasted"));
    let folders = fs::read_dir(root).unwrap().map(|entry| entry.unwrap().path());
    let mut folders: Vec<PathBuf> = folders.filter(|path| path.is_dir()).collect();
    folders.sort();
    let named = |path: PathBuf| {
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        trial(format!("pasted::{name}"), move || ends_as_its_label_says(path))
    };
    folders.into_iter().map(named).collect()
}

fn ends_as_its_label_says(folder: PathBuf) {
    let label = fs::read_to_string(folder.join("label.toml")).unwrap();
    let label: toml::Table = label.parse().unwrap();
    let code = |key: &str| label.get(key).map(|code| code.as_integer().unwrap());
    let files = fs::read_dir(&folder).unwrap().map(|entry| text_of(&entry.unwrap().path()));
    let mut files: Vec<String> = files.filter(|file| file.contains("/input-")).collect();
    files.sort();
    let ran = run(&[vec!["diagnose".to_owned()], files].concat());
    // A paste alone never proves that a machine is healthy.
    let right = match code("exit").unwrap() {
        0 => 3,
        code => code,
    };
    let now = code("now");
    assert_ne!(now, Some(right), "the label names a defect that is gone: remove `now`");
    assert_eq!(ran.code.map(i64::from), Some(now.unwrap_or(right)), "{ran:#?}");
}
