//! Decisions, for people, for scripts and for shells.

use serde::Serialize;

use super::digest::{Caveat, Digest};
use super::escape::clean;
use super::figures::count;
use super::format::Style;
use super::matrix::{Align, Cell, Table};
use super::page::{GLUE, Page, Paint};
use super::text::lay_out;
use decide::{Binding, Choice, Figure, Groups, Job, Order, Pick, Sequence, WhatIf};
use model::finding::Finding;
use model::placement::Pair;
use model::report::{Report, Tool};
use model::rounding::rate;

/// What a shell evaluates if there was nothing to pick: the script's own error handling applies.
pub const SHELL_FAILED: &str = "false\n";

/// Column of texts behind labels.
const HANG: usize = 16;
/// Most pairs of a change that are listed.
const MOST_PAIRS: usize = 12;

/// Returns a decision for scripts: that of the command of this name, with the report that it is made of.
pub fn json<T: Serialize>(command: &str, report: &Report, decision: &T) -> String {
    #[derive(Serialize)]
    struct Written<'a, T> {
        schema: String,
        tool: Tool,
        machine: &'a str,
        started_at: &'a str,
        #[serde(flatten)]
        decision: &'a T,
    }
    super::json::tidy(&Written {
        schema: format!("peerscope.{command}/1"),
        tool: Tool::this(),
        machine: &report.machine,
        started_at: &report.started_at,
        decision,
    })
}

fn page(report: &Report) -> Page {
    let mut page = Page::new(false);
    if let Some(simulated) = Digest::of(report).caveats.get(&Caveat::Simulated) {
        page.banner(simulated);
    }
    page
}

fn item(page: &mut Page, label: &str, text: &str) {
    page.item(2, HANG, label, Paint::Faint, text);
}

fn gbps(value: f64) -> String {
    format!("{}{GLUE}GB/s", rate(value))
}

fn list(gpus: &[u32]) -> String {
    let gpus: Vec<String> = gpus.iter().map(u32::to_string).collect();
    gpus.join(" ")
}

fn named(gpus: &[u32]) -> String {
    match gpus {
        [gpu] => format!("GPU {gpu}"),
        gpus => format!("GPUs {}", list(gpus)),
    }
}

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
            item(
                &mut page,
                "beside others",
                &format!("{} while all jobs have one", gbps(beside)),
            );
        }
        item(&mut page, "place", &place(job));
    }
    page.blank();
    if let (Some(worst), Some(best)) = (&pick.worst, pick.jobs.first()) {
        item(&mut page, "worst choice", &against(worst, &best.choice));
    }
    for out in &pick.left_out {
        item(
            &mut page,
            "left out",
            &format!("GPU {}: {}", out.gpu, out.why),
        );
    }
    if !pick.unused.is_empty() && pick.jobs.len() > 1 {
        item(&mut page, "in no job", &named(&pick.unused));
    }
    if !pick.exact {
        item(
            &mut page,
            "note",
            "not all choices were compared: a better one may exist",
        );
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
        item(
            page,
            "slowest pair",
            &format!("{} ({pair}), measured", gbps(rate)),
        );
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
        item(
            page,
            "host",
            &format!(
                "{} at least with the memory near each, measured",
                gbps(host)
            ),
        );
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

fn ranks(ranks: &[Binding]) -> Table {
    let mut table = Table::new(
        2,
        vec![
            Align::Right,
            Align::Right,
            Align::Left,
            Align::Left,
            Align::Left,
        ],
    );
    table.captions(["rank", "GPU", "PCI address", "bind to", "adapters"]);
    for (rank, binding) in ranks.iter().enumerate() {
        let plain = |text: String| Cell::new(clean(&text), Paint::Plain);
        table.row([
            plain(rank.to_string()),
            plain(binding.gpu.to_string()),
            plain(binding.pci.clone().unwrap_or_else(|| "?".into())),
            plain(bound(binding)),
            plain(adapters(binding)),
        ]);
    }
    table
}

fn bound(binding: &Binding) -> String {
    match (binding.numa_node, &binding.cpus) {
        (Some(node), _) => format!("numactl -N {node} -m {node}"),
        (None, Some(cpus)) => format!("taskset -c {cpus}"),
        (None, None) => "not known".into(),
    }
}

fn adapters(binding: &Binding) -> String {
    match (binding.adapters.as_slice(), binding.adapter_distance) {
        ([], _) | (_, None) => "none".into(),
        (names, Some(distance)) => format!("{} ({distance})", names.join(" ")),
    }
}

/// Returns the GPUs as CUDA_VISIBLE_DEVICES takes them: UUIDs, or indices by PCI address if one is not known.
fn devices(ranks: &[Binding], between: &str) -> String {
    let uuids: Option<Vec<String>> = ranks.iter().map(|binding| binding.uuid.clone()).collect();
    let is_plain = |name: &String| {
        name.bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || byte == b'-')
    };
    let uuids = uuids.filter(|uuids| uuids.iter().all(is_plain));
    let names = uuids.unwrap_or_else(|| {
        ranks
            .iter()
            .map(|binding| binding.gpu.to_string())
            .collect()
    });
    names.join(between)
}

/// Returns the pick for a shell to evaluate.
pub fn pick_shell(pick: &Pick) -> String {
    let mut text = String::from("export CUDA_DEVICE_ORDER=PCI_BUS_ID\n");
    let word = |binding: &Binding| {
        binding
            .numa_node
            .map_or("-".to_owned(), |node| node.to_string())
    };
    let nodes = |job: &Job| job.ranks.iter().map(word).collect::<Vec<_>>().join(",");
    if let [job] = pick.jobs.as_slice() {
        text.push_str(&format!(
            "export CUDA_VISIBLE_DEVICES={}\n",
            devices(&job.ranks, ",")
        ));
        text.push_str(&format!("export PEERSCOPE_NUMA_NODES={}\n", nodes(job)));
        return text;
    }
    text.push_str(&format!("export PEERSCOPE_JOBS={}\n", pick.jobs.len()));
    for (number, job) in pick.jobs.iter().enumerate() {
        text.push_str(&format!(
            "export PEERSCOPE_JOB_{number}={}\n",
            devices(&job.ranks, ",")
        ));
        text.push_str(&format!(
            "export PEERSCOPE_JOB_{number}_NUMA_NODES={}\n",
            nodes(job)
        ));
    }
    text
}

/// Returns the order for people.
pub fn order(order: &Order, report: &Report, style: &Style) -> String {
    let mut page = page(report);
    let same = order.ring.gpus == order.natural.gpus;
    let head = match same {
        true => "The natural order is as good as any".to_owned(),
        false => format!("Ranks in the order {}", list(&order.ring.gpus)),
    };
    page.line(Paint::Strong, &head);
    let bus = |sequence: &Sequence| {
        format!(
            "ring at most {}, tree at most {} bus bandwidth",
            gbps(sequence.ring_bus_gbps),
            gbps(sequence.tree_bus_gbps)
        )
    };
    if !same {
        item(&mut page, "this order", &bus(&order.ring));
    }
    item(
        &mut page,
        "natural order",
        &format!("{}: {}", list(&order.natural.gpus), bus(&order.natural)),
    );
    if order.tree.gpus != order.ring.gpus {
        item(
            &mut page,
            "for a tree",
            &format!("{}: {}", list(&order.tree.gpus), bus(&order.tree)),
        );
    }
    if !order.left_out.is_empty() {
        item(
            &mut page,
            "left out",
            &format!("{}: not measured", named(&order.left_out)),
        );
    }
    if !(order.ring.exact && order.tree.exact) {
        item(
            &mut page,
            "note",
            "not all orders were looked at: a better one may exist",
        );
    }
    item(
        &mut page,
        "predicted",
        "from rates measured pair by pair and with several flows at once; NCCL reaches less",
    );
    if !order.groups.is_empty() {
        page.heading("Groups of neighbours: tensor parallelism within, a pipeline across");
        page.table(groups(&order.groups));
    }
    page.heading("Ranks");
    page.table(ranks(&order.ranks));
    lay_out(&page, style)
}

fn groups(groups: &[Groups]) -> Table {
    let mut table = Table::new(
        1,
        vec![Align::Right, Align::Right, Align::Right, Align::Left],
    );
    table.captions(["ranks", "within, GB/s", "across, GB/s", "groups"]);
    for group in groups {
        let plain = |text: String| Cell::new(text, Paint::Plain);
        let all: Vec<String> = group.groups.iter().map(|gpus| list(gpus)).collect();
        table.row([
            plain(group.size.to_string()),
            plain(rate(group.within_gbps)),
            plain(group.across_gbps.map_or("-".into(), rate)),
            plain(all.join(" | ")),
        ]);
    }
    table
}

/// Returns what a change would bring, for people.
pub fn what_if(found: &WhatIf, report: &Report, style: &Style) -> String {
    let mut page = page(report);
    let effects = &found.effects;
    let [before, after] = effects.gpus;
    let head = match before == after {
        true => "The machine as it would be (predicted)".to_owned(),
        false => format!(
            "The machine as it would be, with {} instead of {before} (predicted)",
            count(after, "GPU")
        ),
    };
    page.line(Paint::Strong, &head);
    let mut table = Table::of_figures(4);
    table.captions(["GB/s", "now", "then", "change"]);
    // One GPU has neither.
    for (label, figure) in [
        ("slowest pair", &effects.slowest_pair),
        ("all-reduce by the best ring", &effects.all_reduce),
    ] {
        if figure.before_gbps.or(figure.after_gbps).is_some() {
            row(&mut table, label, figure);
        }
    }
    // A GPU that is gone takes its pairs with it: that needs no list.
    let stays = |pair: &Pair| {
        before == after
            || ![pair.source, pair.destination]
                .iter()
                .any(|gpu| gone(report, found, *gpu))
    };
    let pairs: Vec<_> = effects
        .pairs
        .iter()
        .filter(|moved| stays(&moved.of))
        .collect();
    for moved in pairs.iter().take(MOST_PAIRS) {
        row(&mut table, &moved.of.to_string(), &moved.figure);
    }
    for moved in &effects.host {
        if moved.figure.after_gbps.is_some() {
            let (gpu, way) = (
                moved.of.gpu,
                if moved.of.to_device {
                    "host to"
                } else {
                    "to host from"
                },
            );
            row(&mut table, &format!("{way} GPU {gpu}"), &moved.figure);
        }
    }
    for moved in &effects.load {
        row(&mut table, &moved.of.pattern, &moved.figure);
    }
    page.table(table);
    if pairs.len() > MOST_PAIRS {
        let more = pairs.len() - MOST_PAIRS;
        page.note(
            Paint::Faint,
            &format!("and {} more; --format json has all", count(more, "pair")),
        );
    }
    if pairs.is_empty() && effects.host.is_empty() && effects.load.is_empty() && before == after {
        page.note(Paint::Plain, "no figure changes by more than noise");
    }
    for sentence in &found.assumed {
        page.note(Paint::Faint, &format!("Assumed: {sentence}."));
    }
    findings(&mut page, "Findings that this answers", &found.answers);
    findings(&mut page, "Findings that this brings", &found.raises);
    lay_out(&page, style)
}

/// Returns true if the changed machine lacks a GPU: all of its pairs are gone.
fn gone(report: &Report, found: &WhatIf, gpu: u32) -> bool {
    let of_gpu = found
        .effects
        .pairs
        .iter()
        .filter(|moved| moved.of.touches(gpu));
    let others = report.snapshot.gpus.len().saturating_sub(1);
    let lost = of_gpu
        .filter(|moved| moved.figure.after_gbps.is_none())
        .count();
    lost > 0
        && lost >= 2 * others.saturating_sub(report.snapshot.gpus.len() - found.effects.gpus[1])
}

fn findings(page: &mut Page, heading: &str, findings: &[Finding]) {
    if findings.is_empty() {
        return;
    }
    page.heading(heading);
    for finding in findings {
        let text = format!(
            "{}: {} [{}]",
            finding.severity, finding.message, finding.code
        );
        page.note(Paint::Plain, &text);
    }
}

fn row(table: &mut Table, label: &str, figure: &Figure) {
    let text = |value: Option<f64>| value.map_or("-".to_owned(), rate);
    let change = figure
        .before_gbps
        .zip(figure.after_gbps)
        .map(|(before, after)| {
            let percent = 100.0 * (after / before - 1.0);
            if percent.abs() < 0.5 {
                "none".to_owned()
            } else {
                format!("{percent:+.0}%")
            }
        });
    let plain = |text: String| Cell::new(text, Paint::Plain);
    table.row([
        Cell::new(clean(label), Paint::Plain),
        plain(text(figure.before_gbps)),
        plain(text(figure.after_gbps)),
        plain(change.unwrap_or_else(|| "-".into())),
    ]);
}
