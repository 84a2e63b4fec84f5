//! The pick of GPUs for a job, for people and for shells.

use super::ranks::{devices, ranks};
use super::{gbps, item, list, named, page};
use crate::figures::count;
use crate::format::Style;
use crate::page::{Page, Paint};
use crate::text::lay_out;
use decide::{Binding, Choice, Job, Pick};
use model::report::Report;
use model::shell;

/// Returns the pick for people.
pub fn pick(pick: &Pick, report: &Report, style: &Style) -> String {
    let mut page = page(report);
    for (number, job) in pick.jobs.iter().enumerate() {
        if number > 0 {
            page.blank();
        }
        let who = match pick.jobs.len() {
            1 => named(&job.choice.gpus),
            _ => format!("Job {number}: {}", named(&job.choice.gpus)),
        };
        page.line(Paint::Strong, &who);
        reached(&mut page, &job.choice);
        if let Some(beside) = job.all_reduce_beside_others_gbps {
            item(&mut page, "beside others", &format!("{} while all jobs have one", gbps(beside)));
        }
        item(&mut page, "place", &place(job));
    }
    page.blank();
    if let (Some(worst), Some(best)) = (&pick.worst, pick.jobs.first()) {
        item(&mut page, "worst choice", &against(worst, &best.choice));
    }
    for out in &pick.left_out {
        item(&mut page, "left out", &format!("GPU {}: {}", out.gpu, out.why));
    }
    if !pick.unused.is_empty() && pick.jobs.len() > 1 {
        item(&mut page, "in no job", &named(&pick.unused));
    }
    if !pick.exact {
        item(&mut page, "note", "not all choices were compared: a better one may exist");
    }
    for (number, job) in pick.jobs.iter().enumerate() {
        page.heading(&match (pick.jobs.len(), job.ranks.len()) {
            (1, 1) => "Rank".to_owned(),
            (1, _) => "Ranks, in the order of the fastest ring".to_owned(),
            _ => format!("Ranks of job {number}"),
        });
        page.table(ranks(&job.ranks));
    }
    let mut text = lay_out(&page, style);
    text.push('\n');
    // Lines to copy are not wrapped as text is: a backslash ends a line of an assignment.
    for (number, job) in pick.jobs.iter().enumerate() {
        if pick.jobs.len() > 1 {
            text.push_str(&format!("# job {number}\n"));
        }
        text.push_str("export CUDA_DEVICE_ORDER=PCI_BUS_ID\nexport CUDA_VISIBLE_DEVICES=");
        text.push_str(&devices(&job.ranks, ",\\\n"));
        text.push('\n');
    }
    text
}

fn reached(page: &mut Page, choice: &Choice) {
    if let Some((pair, rate)) = choice.slowest_pair.zip(choice.slowest_pair_gbps) {
        item(page, "slowest pair", &format!("{} ({pair}), measured", gbps(rate)));
    }
    if let Some(bus) = choice.all_reduce_bus_gbps {
        let text = format!(
            "at most {} bus bandwidth by ring {}, predicted",
            gbps(bus),
            list(&choice.gpus)
        );
        item(page, "all-reduce", &text);
    }
    if let Some(host) = choice.host_gbps {
        item(page, "host", &format!("{} at least with the memory near each, measured", gbps(host)));
    }
}

fn place(job: &Job) -> String {
    let nodes = count(job.numa_nodes, "NUMA node");
    match job.shared_uplinks {
        0 => format!("{nodes}; no PCIe link above is shared"),
        1 => format!("{nodes}; 1 shares a PCIe link above with another"),
        more => format!("{nodes}; {more} share a PCIe link above with another"),
    }
}

fn against(worst: &Choice, best: &Choice) -> String {
    let loss = |worst: Option<f64>, best: Option<f64>| {
        let (worst, best) = worst.zip(best)?;
        let percent = 100.0 * (1.0 - worst / best);
        Some(match percent {
            loss if loss >= 0.5 => format!("{} ({loss:.0}% less)", gbps(worst)),
            _ => format!("{} (no less)", gbps(worst)),
        })
    };
    let pair = loss(worst.slowest_pair_gbps, best.slowest_pair_gbps);
    let pair = pair.map(|text| format!("slowest pair {text}"));
    let bus = loss(worst.all_reduce_bus_gbps, best.all_reduce_bus_gbps);
    let bus = bus.map(|text| format!("all-reduce {text}"));
    let host = loss(worst.host_gbps, best.host_gbps).filter(|_| pair.is_none());
    let host = host.map(|text| format!("with the host {text}"));
    let parts: Vec<String> = [pair, bus, host].into_iter().flatten().collect();
    format!("{}: {}", named(&worst.gpus), parts.join(", "))
}

/// Returns the pick for a shell to evaluate. If all jobs were wanted, they are counted, also if there is one.
pub fn pick_shell(pick: &Pick, all: bool) -> String {
    let mut text = String::new();
    let mut export = |name: &str, value: &str| {
        text.push_str(&format!("export {name}={}\n", shell::word(value)));
    };
    export("CUDA_DEVICE_ORDER", "PCI_BUS_ID");
    let word =
        |binding: &Binding| binding.numa_node.map_or("-".to_owned(), |node| node.to_string());
    let nodes = |job: &Job| job.ranks.iter().map(word).collect::<Vec<_>>().join(",");
    if let ([job], false) = (pick.jobs.as_slice(), all) {
        export("CUDA_VISIBLE_DEVICES", &devices(&job.ranks, ","));
        export("PEERSCOPE_NUMA_NODES", &nodes(job));
        return text;
    }
    export("PEERSCOPE_JOBS", &pick.jobs.len().to_string());
    for (number, job) in pick.jobs.iter().enumerate() {
        let name = format!("PEERSCOPE_JOB_{number}");
        export(&name, &devices(&job.ranks, ","));
        export(&format!("{name}_NUMA_NODES"), &nodes(job));
    }
    text
}
