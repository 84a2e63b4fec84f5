//! The formats of a fleet. Their names and extensions are those of reports ([`report::FORMATS`]).

use maud::html;
use quick_junit::{NonSuccessKind, TestCase, TestCaseStatus, TestSuite};

use super::model::{Finding, Fleet, Node};
use super::page::page;
use super::picture;
use model::finding::Severity;
use model::report::Conclusion;
use report::escape::clean;
use report::gauges::{Labels, Metrics};
use report::prometheus::count;
use report::{Style, html, json, junit};

/// Every code of a fleet's findings; docs/fleet.md explains them.
pub(crate) const CODES: [&str; 8] = [
    "fleet-file-broken",
    "fleet-figure-low",
    "fleet-finding-shared",
    "fleet-inventory-odd",
    "fleet-name-shared",
    "fleet-node-missing",
    "fleet-position-bad",
    "fleet-position-low",
];

/// Renders the fleet in the format of this name.
pub fn render(fleet: &Fleet, format: &str, style: &Style) -> String {
    match format {
        "json" => json::tidy(fleet),
        "html" => html_file(fleet, style.level == report::Level::Every),
        "markdown" => report::markdown::lay_out("peerscope fleet", &page(fleet, false)),
        "junit" => junit_file(fleet),
        "prometheus" => prometheus(fleet),
        _ => report::text::lay_out(&page(fleet, style.level == report::Level::Every), style),
    }
}

fn html_file(fleet: &Fleet, verbose: bool) -> String {
    let footer = html! {
        p { (clean(&fleet.tool.name)) " " (clean(&fleet.tool.version)) ", made " (clean(&fleet.made_at)) }
    };
    let picture = picture::write(fleet);
    let page = page(fleet, verbose);
    html::document("peerscope: fleet", &page, &picture, &footer)
}

fn prometheus(fleet: &Fleet) -> String {
    let mut metrics = Metrics(String::new());
    let verdict = &fleet.verdict;
    let nodes = [
        ("healthy", verdict.healthy),
        ("faulty", verdict.faulty),
        ("inconclusive", verdict.inconclusive),
    ];
    let labelled = |key: &'static str, value: &str| -> Labels<'static> {
        vec![(key, value.to_owned().into())]
    };
    metrics.gauge(
        "fleet_nodes",
        "Nodes by the verdict of their newest report.",
        nodes.map(|(word, number)| (labelled("verdict", word), count(number))),
    );
    metrics.plain(
        "fleet_exit_code",
        "Exit code of the fleet, by the chosen exit contract.",
        verdict.exit_code,
    );
    metrics.plain(
        "fleet_simulated",
        "1 if a report is of a simulated machine.",
        u8::from(fleet.read.simulated),
    );
    metrics.plain("fleet_reports", "Reports that were read.", count(fleet.read.reports));
    metrics.plain(
        "fleet_reports_superseded",
        "Reports that a newer one of the node replaces.",
        count(fleet.read.superseded),
    );
    metrics.plain(
        "fleet_files_broken",
        "Files that cannot be read.",
        count(fleet.read.broken.len()),
    );
    metrics.plain(
        "fleet_nodes_missing",
        "Nodes of the list without a report.",
        count(verdict.missing),
    );
    let found = CODES.map(|code| {
        (
            labelled("code", code),
            count(fleet.findings.iter().filter(|finding| finding.code == code).count()),
        )
    });
    metrics.gauge(
        "fleet_findings",
        "Findings of the fleet by code; docs/fleet.md explains them.",
        found,
    );
    let codes = fleet.codes.iter().map(|code| {
        let mut labels = labelled("code", &code.code);
        labels.push(("severity", code.severity.to_string().into()));
        (labels, count(code.count))
    });
    metrics.gauge(
        "fleet_rule_nodes",
        "Nodes with a finding of this rule, with its worst severity.",
        codes,
    );
    let bad = fleet.nodes.iter().filter(|node| node.verdict != Conclusion::Healthy).map(|node| {
        let mut labels = labelled("node", &node.node);
        labels.push(("verdict", super::digest::word(node.verdict).into()));
        (labels, 1.0)
    });
    metrics.gauge(
        "fleet_node_not_healthy",
        "1 for each node that is not healthy, with its verdict.",
        bad,
    );
    cohorts(&mut metrics, fleet);
    metrics.0
}

fn cohorts(metrics: &mut Metrics, fleet: &Fleet) {
    let all = || {
        fleet
            .cohorts
            .iter()
            .flat_map(|cohort| cohort.figures.iter().map(move |figures| (cohort, figures)))
    };
    let labels =
        |(cohort, figures): (&super::model::Cohort, &super::model::Stats)| -> Labels<'static> {
            let text = |text: &str| text.to_owned().into();
            vec![
                ("model", text(&cohort.model)),
                ("topology", text(&cohort.topology)),
                ("signature", text(&cohort.signature)),
                ("probe", text(figures.probe)),
                ("class", text(figures.class.as_deref().unwrap_or_default())),
                ("setup", text(&figures.setup)),
                ("bytes", figures.bytes.to_string().into()),
            ]
        };
    let rates = all()
        .filter(|(_, figures)| figures.unit == "GB/s")
        .map(|one| (labels(one), (one.1.median * 1e9).round()));
    metrics.gauge(
        "fleet_cohort_bandwidth_median_bytes_per_second",
        "Median over a cohort of alike nodes.",
        rates,
    );
    let times = all()
        .filter(|(_, figures)| figures.unit == "us")
        .map(|one| (labels(one), one.1.median / 1e6));
    metrics.gauge(
        "fleet_cohort_latency_median_seconds",
        "Median over a cohort of alike nodes.",
        times,
    );
    let shares = all()
        .filter(|(_, figures)| figures.unit == "%")
        .map(|one| (labels(one), one.1.median / 100.0));
    metrics.gauge(
        "fleet_cohort_counted_median_ratio",
        "Median over a cohort of what NVLinks counted.",
        shares,
    );
    let odd = all().map(|one| (labels(one), count(one.1.odd)));
    metrics.gauge("fleet_cohort_figures_odd", "Figures of a cohort that stand out.", odd);
}

fn junit_file(fleet: &Fleet) -> String {
    let mut file = quick_junit::Report::new("peerscope");
    let mut nodes = TestSuite::new("peerscope.fleet.nodes");
    nodes.add_test_cases(fleet.nodes.iter().map(node_case));
    let missing =
        fleet.list.iter().flat_map(|list| super::names::expand(&list.missing).unwrap_or_default());
    nodes.add_test_cases(missing.map(|node| {
        case("nodes", &node, not_passed(NonSuccessKind::Error, "missing", "no report"))
    }));
    let mut found = TestSuite::new("peerscope.fleet.findings");
    found.add_test_cases(CODES.map(|code| finding_case(fleet, code)));
    file.add_test_suite(nodes);
    file.add_test_suite(found);
    junit::file(&file)
}

fn node_case(node: &Node) -> TestCase {
    let sentences: Vec<_> = node
        .findings
        .iter()
        .filter(|found| found.severity > Severity::Info)
        .map(|found| found.message.as_str())
        .collect();
    let said = match sentences.split_first() {
        Some((first, [])) => (*first).to_owned(),
        Some((first, rest)) => format!("{first} (and {} more)", rest.len()),
        None => format!("{} measurements made, {} missing", node.tested, node.untested),
    };
    let status = match node.verdict {
        Conclusion::Faulty => not_passed(NonSuccessKind::Failure, "faulty", &said),
        Conclusion::Inconclusive => not_passed(NonSuccessKind::Error, "inconclusive", &said),
        Conclusion::Healthy => TestCaseStatus::success(),
    };
    case("nodes", &node.node, status)
}

/// Returns the case of a finding. Warnings fail no case, as in the report of one machine; gaps are errors.
fn finding_case(fleet: &Fleet, code: &str) -> TestCase {
    let found: Vec<&Finding> =
        fleet.findings.iter().filter(|finding| finding.code == code).collect();
    let lines: Vec<_> = found
        .iter()
        .map(|finding| clean(&format!("{}: {}", finding.nodes, finding.message)).into_owned())
        .collect();
    let status = match found.first() {
        Some(first) if super::assess::GAPS.contains(&code) => {
            not_passed(NonSuccessKind::Error, code, &first.message)
        }
        Some(first) if first.severity == Severity::Error => {
            not_passed(NonSuccessKind::Failure, code, &first.message)
        }
        _ => TestCaseStatus::success(),
    };
    let mut case = case("findings", code, status);
    if !lines.is_empty() {
        case.set_system_out(lines.join("\n"));
    }
    case
}

fn case(class: &str, name: &str, status: TestCaseStatus) -> TestCase {
    let mut case = TestCase::new(clean(name).into_owned(), status);
    case.set_classname(format!("peerscope.fleet.{class}"));
    case
}

fn not_passed(kind: NonSuccessKind, name: &str, message: &str) -> TestCaseStatus {
    let mut status = TestCaseStatus::non_success(kind);
    status.set_type(clean(name).into_owned()).set_message(clean(message).into_owned());
    status
}
