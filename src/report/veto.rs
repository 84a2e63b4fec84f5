//! What a shell evaluates so that no program uses what failed between GPUs.

use super::digest::Digest;
use super::escape::clean;
use super::page::{Page, Paint};
use model::measurement::Status;
use model::report::Report;
use model::veto::{PairsFile, Veto};

/// The folders of the file of pairs, as vLLM and SGLang find them.
const FOLDERS: [&str; 2] =
    ["${VLLM_CACHE_ROOT:-${XDG_CACHE_HOME:-$HOME/.cache}/vllm}", "$HOME/.cache/sglang"];

/// Returns the lines of a shell: comments that say why, variables, files.
pub(super) fn shell(digest: &Digest<'_>) -> String {
    let report = digest.report;
    let mut text = String::new();
    let mut comment = |words: &str| {
        // A line break would end the comment.
        let words = clean(words).replace(['\n', '\r'], " ");
        text.push_str(&format!("# {words}\n"));
    };
    for sentence in digest.caveats.values() {
        comment(sentence);
    }
    let Some(veto) = &report.veto else {
        comment(match was_measured(report) {
            true => "peerscope: nothing failed between GPUs; nothing to set",
            false => "peerscope: no copy between GPUs was measured, so there is nothing to go by",
        });
        return text;
    };
    for failed in &veto.failed {
        let (one, other) = (failed.pair.source, failed.pair.destination);
        let codes = failed.codes.join(", ");
        comment(&format!("GPU {one} - GPU {other}: {codes}"));
    }
    veto.by_hand.iter().for_each(|words| comment(words));
    for setting in &veto.environment {
        let (name, value) = (word(&setting.name), word(&setting.value));
        text.push_str(&format!("export {name}={value}\n"));
    }
    if let Some(file) = &veto.pairs_file {
        text.push_str(&written(file));
    }
    text
}

fn was_measured(report: &Report) -> bool {
    let measured = report.measurements.as_ref();
    measured.is_some_and(|all| {
        let mut cells = all.peer.iter();
        cells.any(|cell| cell.ending.status == Status::Measured)
    })
}

/// Returns what is safe within a word of a shell. A report may come from elsewhere.
fn word(text: &str) -> String {
    let is_safe = |letter: &char| letter.is_ascii_alphanumeric() || "_:,.->".contains(*letter);
    text.chars().filter(is_safe).collect()
}

/// Returns the lines that write the file of pairs where vLLM and SGLang look for it.
fn written(file: &PairsFile) -> String {
    let pairs = file.works.iter();
    let pairs: Vec<_> = pairs.map(|(pair, works)| format!("\"{}\": {works}", word(pair))).collect();
    let devices = word(&file.devices);
    let mut text = format!("peerscope_pairs='{{{}}}'\n", pairs.join(", "));
    for folder in FOLDERS {
        let path =
            format!("{folder}/gpu_p2p_access_cache_for_${{CUDA_VISIBLE_DEVICES-{devices}}}.json");
        text.push_str(&format!(
            "mkdir -p \"{folder}\" && printf '%s\\n' \"$peerscope_pairs\" > \"{path}\"\n"
        ));
    }
    text.push_str("unset peerscope_pairs\n");
    text
}

/// Writes the veto for people, if there is one.
pub(super) fn write(page: &mut Page, report: &Report) {
    let Some(veto) = &report.veto else {
        return;
    };
    page.heading("So that no program uses what failed ('--veto' prints it for a shell)");
    for line in lines(veto) {
        page.item(2, 16, &line.0, Paint::Strong, &line.1);
    }
}

fn lines(veto: &Veto) -> Vec<(String, String)> {
    let settings = veto.environment.iter().map(|setting| {
        let text = format!("{}={} (takes {} away)", setting.name, setting.value, setting.effect);
        (setting.program.clone(), text)
    });
    let mut lines: Vec<_> = settings.collect();
    if let Some(file) = &veto.pairs_file {
        let false_ones = file.works.values().filter(|works| !**works).count();
        let text = format!(
            "gpu_p2p_access_cache_for_{}.json: false for {false_ones} of {} pairs",
            file.devices,
            file.works.len()
        );
        lines.push(("vLLM, SGLang".to_owned(), text));
    }
    lines.extend(veto.by_hand.iter().map(|words| ("by hand".to_owned(), words.clone())));
    lines
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::super::{Style, named, render};
    use super::*;
    use model::placement::Pair;
    use model::veto::{FailedPair, Setting};

    const VETO: Style = Style { veto: true, ..Style::PLAIN };

    fn shell_of(report: &Report) -> String {
        render(report, named("text").unwrap(), &VETO)
    }

    #[test]
    fn nothing_is_set_where_nothing_failed() {
        let text = shell_of(&sample::healthy(2));
        assert!(text.lines().all(|line| line.starts_with('#')), "{text}");
        assert!(text.contains("nothing failed"), "{text}");
        let text = shell_of(&sample::nothing_measured());
        assert!(text.contains("nothing to go by"), "{text}");
        assert!(text.lines().all(|line| line.starts_with('#')), "{text}");
    }

    #[test]
    fn a_shell_writes_what_the_programs_read() {
        let mut report = sample::healthy(2);
        let pairs = [("0->0", true), ("0->1", false), ("1->0", false), ("1->1", true)];
        report.veto = Some(Box::new(Veto {
            failed: vec![FailedPair {
                pair: Pair { source: 0, destination: 1 },
                codes: vec!["peer-data-wrong\n$(touch broken)".into()],
                access: true,
            }],
            environment: vec![Setting {
                name: "NCCL_P2P_DISABLE".into(),
                value: "1; touch broken".into(),
                program: "NCCL".into(),
                effect: "all".into(),
            }],
            pairs_file: Some(PairsFile {
                devices: "0,1".into(),
                works: pairs.map(|(pair, works)| (pair.to_owned(), works)).into(),
            }),
            by_hand: vec!["line\nbreak".into()],
        }));
        let text = shell_of(&report);
        let folder = tempfile::tempdir().unwrap();
        let script = format!("{text}\necho \"$NCCL_P2P_DISABLE\"");
        let ran = std::process::Command::new("sh")
            .arg("-c")
            .arg(&script)
            .env_clear()
            .env("HOME", folder.path())
            .env("PATH", "/usr/bin:/bin")
            .current_dir(folder.path())
            .output()
            .unwrap();
        assert!(ran.status.success(), "{text}\n{ran:?}");
        assert_eq!(ran.stdout, b"1touchbroken\n", "one word: {text}");
        assert!(!folder.path().join("broken").exists(), "{text}");
        for program in ["vllm", "sglang"] {
            let path = format!(".cache/{program}/gpu_p2p_access_cache_for_0,1.json");
            let file = std::fs::read_to_string(folder.path().join(path)).unwrap();
            let read: BTreeMap<String, bool> = serde_json::from_str(&file).unwrap();
            assert_eq!(read, pairs.map(|(pair, works)| (pair.to_owned(), works)).into());
        }
    }
}
