//! The parts that a report leaves out by choice, in words: GPUs, probes, rules.

use super::figures::count;
use model::report::Report;
use model::request::Request;

/// Returns what was left out, a sentence each without its full stop: first by the command line, then by the plan.
pub(super) fn left_out(report: &Report) -> Vec<String> {
    let planned = report.measurements.iter().flat_map(|measurements| &measurements.left_out);
    chosen(report).into_iter().chain(planned.cloned()).collect()
}

/// Returns what the command line left out.
pub(super) fn chosen(report: &Report) -> Vec<String> {
    let request = &report.request;
    let mut parts = Vec::new();
    if request.gpus_left_out > 0 {
        let (some, option) = (request.gpus_left_out, gpus(request));
        let all = count(report.snapshot.gpus.len() + some as usize, "GPU");
        parts.push(format!("{some} of {all} were left out ({option})"));
    }
    if !request.probes_left_out.is_empty() {
        let (groups, option) = (request.probes_left_out.join(", "), probes(request).join(" "));
        parts.push(format!("of the profile's probes, {groups} were left out ({option})"));
    }
    parts
}

/// Returns the silenced rules: `pcie-narrow is off, not-tested is info at most`.
pub(super) fn silenced(request: &Request) -> Option<String> {
    let rules = request.silenced.iter().map(|rule| match rule.severity {
        None => format!("{} is off", rule.code),
        Some(severity) => format!("{} is {severity} at most", rule.code),
    });
    let rules: Vec<_> = rules.collect();
    (!rules.is_empty()).then(|| rules.join(", "))
}

/// Returns the options that make a report partial, in short: `--gpus 0,1 --skip latency`.
pub(super) fn options(request: &Request) -> String {
    let mut options = Vec::new();
    if request.gpus_left_out > 0 {
        options.push(gpus(request));
    }
    if !request.probes_left_out.is_empty() {
        options.extend(probes(request));
    }
    options.join(" ")
}

/// Returns every option that chose something, even if it left nothing out.
pub(super) fn every_option(request: &Request) -> Vec<[String; 2]> {
    let option = |name: &str, value| [name.to_owned(), value];
    let lists = [("--gpus", &request.gpus), ("--only", &request.only), ("--skip", &request.skip)];
    let lists = lists.into_iter().filter(|(_, names)| !names.is_empty());
    let lists = lists.map(|(name, names)| option(name, names.join(",")));
    lists.chain(request.config.iter().map(|file| option("--config", file.clone()))).collect()
}

fn gpus(request: &Request) -> String {
    format!("--gpus {}", request.gpus.join(","))
}

fn probes(request: &Request) -> Vec<String> {
    let lists = [("--only", &request.only), ("--skip", &request.skip)];
    let lists = lists.into_iter().filter(|(_, names)| !names.is_empty());
    lists.map(|(option, names)| format!("{option} {}", names.join(","))).collect()
}
