//! Fleets for tests.

use super::assess::{Question, assess};
use super::digest::{Digest, read};
use super::model::Fleet;
use super::sources::Gathered;
use super::summary::Point;
use model::finding::Severity;
use model::reading::Reading;
use model::report::Report;

/// Returns a fleet of nodes with eight GPUs, alike except for names and a little noise of their figures.
pub(crate) fn fleet_of(nodes: usize) -> Vec<Digest> {
    alike(sample::healthy(8), nodes)
}

/// Like [`fleet_of`], with measurements of several flows at once.
pub(crate) fn loaded_fleet_of(nodes: usize) -> Vec<Digest> {
    alike(sample::loaded(), nodes)
}

fn alike(mut report: Report, nodes: usize) -> Vec<Digest> {
    report.machine = "live".into();
    report.snapshot.host.hostname = Reading::Known("node".to_owned());
    let text = serde_json::to_vec(&report).unwrap();
    let digest = read("node.json", text.as_slice()).unwrap().unwrap();
    let mut random = fastrand::Rng::with_seed(7);
    let one = |number| {
        let mut digest = Digest {
            node: format!("node{number:03}"),
            file: format!("node{number:03}.json"),
            ..digest.clone()
        };
        for (at, gpu) in digest.summary.gpus.iter_mut().enumerate() {
            gpu.uuid = Some(format!("GPU-{number}-{at}"));
        }
        for figure in &mut digest.summary.figures {
            let noise = 1.0 + 0.004 * (random.f32() + random.f32() + random.f32() - 1.5);
            figure.value = figure.value.map(|value| value * noise);
            figure.percent = figure.percent.map(|percent| percent * noise);
        }
        digest
    };
    (0..nodes).map(one).collect()
}

/// Lowers every figure of a GPU's copies.
pub(crate) fn slow(digest: &mut Digest, gpu: u16, factor: f32) {
    let of_gpu = |figure: &&mut Point| figure.ends.gpus().is_some_and(|ends| ends.contains(&gpu));
    for figure in digest.summary.figures.iter_mut().filter(of_gpu) {
        if !digest.summary.kinds[usize::from(figure.kind)].what.is_time() {
            figure.value = figure.value.map(|value| value * factor);
            figure.percent = figure.percent.map(|percent| percent * factor);
        }
    }
}

/// Assesses these reports on the usual terms.
pub(crate) fn assessed(gathered: &Gathered) -> Fleet {
    assess(gathered, &question())
}

/// Returns a question without a list, an earlier file or special terms.
pub(crate) fn question() -> Question {
    Question {
        list: None,
        earlier: None,
        history: false,
        terms: Severity::Error.into(),
        now: "2026-11-22T00:00:00Z".into(),
    }
}
