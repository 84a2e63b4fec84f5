//! Tests of `expect` on a report, and of `check --expect` with its file, on every built-in machine. A file from one
//! profile must fit its machine, whatever the profile of the check.

use libtest_mimic::Trial;
use sim::builtin;

use crate::common::{check, codes, read_json, run, text_of, with, write};
use crate::trial;

const PROFILES: [&str; 3] = ["quick", "standard", "full"];

/// Most GPUs for which all pairs of profiles are tried. With more, each profile is used once for the file and once for
/// the check. All nine pairs with 72 GPUs take minutes.
const FEW_GPUS: usize = 16;

pub(crate) fn trials() -> Vec<Trial> {
    builtin::names()
        .map(|machine| trial(format!("expect::{machine}"), move || agrees(machine)))
        .collect()
}

/// The results of a machine by profile: the report, its exit code, and the file of expectations, if any.
struct Own {
    report: String,
    code: Option<i32>,
    file: Option<String>,
}

fn agrees(machine: &str) {
    let folder = tempfile::tempdir().unwrap();
    let own = PROFILES.map(|profile| {
        let report = text_of(&folder.path().join(format!("{profile}.json")));
        let ran = run(&with(check(machine, profile), &["-o", &report]));
        let expected = run(&["expect", &report, "--anyway"]);
        assert_eq!(expected.code, Some(0), "{expected:?}");
        let anything = expected.stdout.contains(" = ");
        let file =
            anything.then(|| write(folder.path(), &format!("{profile}.toml"), &expected.stdout));
        Own { report, code: ran.code, file }
    });
    let few = builtin::get(machine).unwrap().gpus.len() <= FEW_GPUS;
    for (from, Own { file, .. }) in own.iter().enumerate() {
        for (to, Own { report, code, .. }) in own.iter().enumerate() {
            if let Some(file) = file.as_ref().filter(|_| few || to == (from + 1) % PROFILES.len()) {
                let what = format!(
                    "{machine}: expectations of {}, check {}",
                    PROFILES[from], PROFILES[to]
                );
                let again = text_of(&folder.path().join("again.json"));
                let judged = run(&["diagnose", report, "--expect", file, "-o", &again]);
                assert_fits(&what, &again);
                assert_eq!(judged.code, *code, "{what}");
            }
        }
    }
    // `check` itself applies the same rules as `diagnose`.
    if let (Some(file), true) = (&own[1].file, few) {
        let again = text_of(&folder.path().join("again.json"));
        let ran = run(&with(check(machine, "quick"), &["--expect", file, "-o", &again]));
        assert_fits(&format!("{machine}: check --expect"), &again);
        assert_eq!(ran.code, own[0].code, "{ran:?}");
    }
}

fn assert_fits(what: &str, report: &str) {
    let report = read_json(std::path::Path::new(report));
    let found: Vec<_> =
        codes(&report).into_iter().filter(|code| code.starts_with("expectation-un")).collect();
    assert!(found.is_empty(), "{what}: {:#}", report["findings"]);
}
