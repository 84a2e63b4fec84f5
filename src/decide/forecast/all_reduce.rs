//! The all-reduce that inference engines bring along (docs/forecast.md has the sources).

use std::collections::HashSet;

use model::forecast::{AllReduceForecast, Engine, Runs};
use model::units::{Bytes, MIB};

use super::between::{Machine, all};

/// Numbers of GPUs that the three support.
const SIZES: [u32; 4] = [2, 4, 6, 8];

/// Steps after which the search for a set of GPUs gives up. Chosen: 8 of 72 GPUs in groups of 8 take some hundred.
const MOST_STEPS: u32 = 100_000;

pub(super) fn forecast(machine: &Machine<'_>) -> Vec<AllReduceForecast> {
    let gpus = u32::try_from(machine.gpus.len()).unwrap_or(u32::MAX);
    let sizes = SIZES.iter().filter(|size| **size <= gpus);
    let each = |size: &u32| Engine::ALL.map(|engine| one(machine, engine, *size));
    let mut all: Vec<_> = sizes.flat_map(each).collect();
    all.sort_by_key(|forecast| (forecast.engine, forecast.gpus));
    all
}

/// Bytes up to which an engine uses its own all-reduce.
const fn limit(engine: Engine, size: u32) -> Bytes {
    match (engine, size) {
        (Engine::Vllm | Engine::Sglang, _) => Bytes(8 * MIB),
        (Engine::TensorrtLlm, 2) => Bytes(16_000_000),
        (Engine::TensorrtLlm, _) => Bytes(8_000_000),
    }
}

/// Why a pair is fit or not.
struct Fit {
    fits: Option<bool>,
    /// The fact, if it is not fit.
    why: String,
    /// What is missing, if that is not known.
    needs: &'static str,
}

fn fit(machine: &Machine<'_>, engine: Engine, size: u32, pair: (u32, u32)) -> Fit {
    let needs_nvlink = size > 2 || engine == Engine::TensorrtLlm;
    let nvlink = machine.nvml_has_nvlink(pair);
    let access = machine.cuda_grants(pair);
    let (one, other) = pair;
    let not = |why: &str| Fit {
        fits: Some(false),
        why: format!("{why} between GPU {one} and GPU {other}"),
        needs: "",
    };
    if needs_nvlink && nvlink == Some(false) {
        return not("NVML reports no NVLink");
    }
    if access == Some(false) {
        return not("CUDA refuses access");
    }
    let arrive = machine.bytes_arrive(pair);
    // TensorRT-LLM tries no copy.
    if engine != Engine::TensorrtLlm && arrive == Some(false) {
        return not("bytes written by peer access do not arrive");
    }
    let wanted = [
        (!needs_nvlink || nvlink.is_some(), "NVML's status of NVLink"),
        (access.is_some(), "CUDA's answer on peer access ('peerscope check')"),
        (
            engine == Engine::TensorrtLlm || arrive.is_some(),
            "copies by peer access ('peerscope check')",
        ),
    ];
    match wanted.iter().find(|(is_known, _)| !is_known) {
        Some((_, needs)) => Fit { fits: None, why: String::new(), needs },
        None => Fit { fits: Some(true), why: String::new(), needs: "" },
    }
}

fn one(machine: &Machine<'_>, engine: Engine, size: u32) -> AllReduceForecast {
    let fits: Vec<_> =
        machine.pairs().map(|pair| (pair, fit(machine, engine, size, pair))).collect();
    let forecast = |runs, because: String| AllReduceForecast {
        engine,
        gpus: size,
        runs,
        example: Vec::new(),
        up_to_bytes: (runs != Some(Runs::None)).then(|| limit(engine, size)),
        because,
        needs: Vec::new(),
    };
    let wsl = machine.host.is_wsl();
    if wsl && engine != Engine::TensorrtLlm {
        let because = "CUDA has no IPC handles under Windows (WSL 2)".to_owned();
        return forecast(Some(Runs::None), because);
    }
    let nvlink = match (size > 2 || engine == Engine::TensorrtLlm, engine) {
        (true, Engine::TensorrtLlm) => "all pairs have NVLink, and CUDA grants access",
        (true, _) => "all pairs have NVLink, and what peer access writes arrives",
        (false, _) => "what peer access writes arrives",
    };
    let handles = |engine| match engine {
        Engine::TensorrtLlm => Vec::new(),
        _ => vec!["handles of CUDA IPC between processes, which it tries itself".to_owned()],
    };
    match all(fits.iter().map(|(_, fit)| fit.fits)) {
        Some(true) => {
            return AllReduceForecast {
                needs: handles(engine),
                ..forecast(Some(Runs::Every), nvlink.to_owned())
            };
        }
        None => {
            let mut missing: Vec<_> = fits
                .iter()
                .map(|(_, fit)| fit.needs.to_owned())
                .filter(|needs| !needs.is_empty())
                .collect();
            missing.dedup();
            missing.truncate(1);
            return AllReduceForecast {
                needs: missing,
                up_to_bytes: None,
                ..forecast(None, "it depends on facts that the report lacks".to_owned())
            };
        }
        Some(false) => {}
    }
    let why = fits.iter().find(|(_, fit)| fit.fits == Some(false));
    let why = why.map(|(_, fit)| fit.why.clone()).unwrap_or_default();
    let good = fits.iter().filter(|(_, fit)| fit.fits == Some(true));
    let good: HashSet<(u32, u32)> = good.map(|(pair, _)| *pair).collect();
    let is_good = |pair: (u32, u32)| good.contains(&pair);
    let gpus: Vec<u32> = machine.gpus.iter().map(|gpu| gpu.index).collect();
    let mut steps = MOST_STEPS;
    match set(&gpus, size as usize, &is_good, &mut Vec::new(), &mut steps) {
        Some(example) => {
            AllReduceForecast { example, needs: handles(engine), ..forecast(Some(Runs::Some), why) }
        }
        None if steps == 0 => AllReduceForecast {
            needs: vec!["a search for the largest set of GPUs".to_owned()],
            up_to_bytes: None,
            ..forecast(None, why)
        },
        None if fits.iter().any(|(_, fit)| fit.fits.is_none()) => AllReduceForecast {
            needs: fits
                .iter()
                .find(|(_, fit)| fit.fits.is_none())
                .map(|(_, fit)| fit.needs.to_owned())
                .into_iter()
                .collect(),
            up_to_bytes: None,
            ..forecast(None, why)
        },
        None => forecast(Some(Runs::None), why),
    }
}

/// Finds a set of so many GPUs whose pairs are all good.
fn set(
    left: &[u32],
    size: usize,
    is_good: &impl Fn((u32, u32)) -> bool,
    chosen: &mut Vec<u32>,
    steps: &mut u32,
) -> Option<Vec<u32>> {
    if chosen.len() == size {
        return Some(chosen.clone());
    }
    for (at, &gpu) in left.iter().enumerate() {
        if *steps == 0 || left.len() - at + chosen.len() < size {
            return None;
        }
        *steps -= 1;
        let fits = |other: &u32| is_good((gpu.min(*other), gpu.max(*other)));
        if chosen.iter().all(fits) {
            chosen.push(gpu);
            if let Some(found) = set(&left[at + 1..], size, is_good, chosen, steps) {
                return Some(found);
            }
            chosen.pop();
        }
    }
    None
}
