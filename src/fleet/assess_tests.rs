use super::super::sources::Broken;
use super::super::summary::Finding as Found;
use super::super::testing::{assessed, fleet_of, question, slow};
use super::*;
use diagnose::Contract;
use model::finding::Subject;
use report::Style;

fn gathered(digests: Vec<Digest>) -> Gathered {
    Gathered { digests, ..Gathered::default() }
}

fn found(code: &str, severity: Severity) -> Found {
    Found {
        code: code.into(),
        severity,
        subject: Subject::Gpu { index: 5 },
        message: "planted".into(),
        part: String::new(),
        step: "Look".into(),
    }
}

#[test]
fn healthy_nodes_alike_have_no_finding() {
    let fleet = assessed(&gathered(fleet_of(40)));
    assert_eq!(
        (fleet.findings.as_slice(), fleet.verdict.exit_code, fleet.verdict.healthy),
        (&[][..], 0, 40)
    );
    assert_eq!((fleet.cohorts.len(), fleet.cohorts[0].nodes.as_str()), (1, "node[000-039]"));
}

#[test]
fn every_ending_has_its_exit_code() {
    let of = |change: &dyn Fn(&mut Gathered, &mut Question)| {
        let codes = [Contract::Default, Contract::Nagios].map(|contract| {
            let (mut gathered, mut question) = (gathered(fleet_of(8)), question());
            question.terms.contract = contract;
            change(&mut gathered, &mut question);
            assess(&gathered, &question).verdict.exit_code
        });
        (codes[0], codes[1])
    };
    assert_eq!(of(&|_, _| {}), (0, 0));
    assert_eq!(of(&|all, _| all.digests.clear()), (3, 3));
    assert_eq!(of(&|all, _| all.digests[1].summary.verdict.untested = 1), (3, 3));
    assert_eq!(of(&|all, _| all.digests[1].summary.interrupted = true), (3, 3));
    assert_eq!(of(&|all, _| all.digests[1].summary.verdict.tested = 0), (3, 3), "facts alone");
    assert_eq!(
        of(&|all, _| all.digests[1].summary.findings.push(found("not-tested", Severity::Error))),
        (3, 3)
    );
    assert_eq!(
        of(&|all, _| all.digests[1].summary.findings.push(found("pcie-narrow", Severity::Error))),
        (1, 2)
    );
    assert_eq!(
        of(&|all, _| all.digests[1].summary.findings.push(found("pcie-narrow", Severity::Warning))),
        (0, 1)
    );
    assert_eq!(of(&|all, _| slow(&mut all.digests[1], 3, 0.5)), (0, 1));
    assert_eq!(
        of(&|all, question| {
            slow(&mut all.digests[1], 3, 0.5);
            question.terms.fail_on = Severity::Warning;
        }),
        (1, 2)
    );
    assert_eq!(
        of(&|_, question| question.list = Some(vec!["node001".into(), "gone".into()])),
        (3, 3)
    );
    assert_eq!(
        of(&|all, _| all.broken.push(Broken { file: "x".into(), why: "is empty".into() })),
        (3, 3)
    );
    assert_eq!(
        of(&|all, question| {
            all.digests[1].summary.findings.push(found("pcie-narrow", Severity::Error));
            question.list = Some(vec!["gone".into()]);
        }),
        (1, 2),
        "a fault outranks what is missing"
    );
}

#[test]
fn a_verdict_by_a_stricter_run_is_judged_again() {
    let mut digests = fleet_of(5);
    digests[2].summary.findings.push(found("pcie-narrow", Severity::Warning));
    digests[2].summary.verdict.verdict = Conclusion::Faulty;
    assert_eq!(assessed(&gathered(digests)).verdict.healthy, 5);
}

#[test]
fn names_with_a_domain_are_on_the_list_without_it() {
    let mut digests = fleet_of(3);
    digests[0].node = "node000.site.org".into();
    let list = Some(vec![
        "node000".into(),
        "node001.site.org".into(),
        "node001.site.org".into(),
        "node002".into(),
    ]);
    let fleet = assess(&gathered(digests), &Question { list, ..question() });
    let list = fleet.list.unwrap();
    assert_eq!((list.nodes, list.missing.as_str(), list.unexpected.as_str()), (3, "", ""));
}

#[test]
fn machines_that_share_a_name_are_noticed_and_the_same_machine_twice_is_not() {
    let mut digests = fleet_of(6);
    digests[5].node = "node004".into();
    let fleet = assessed(&gathered(digests.clone()));
    assert_eq!(
        (fleet.findings[0].code, fleet.findings[0].nodes.as_str()),
        ("fleet-name-shared", "node004")
    );
    assert_eq!((fleet.verdict.exit_code, fleet.read.superseded), (3, 1));
    digests[5].summary.gpus = digests[4].summary.gpus.clone();
    digests[5].summary.gpus[0].uuid = Some("replaced".into());
    assert_eq!(assessed(&gathered(digests)).findings, []);
}

#[test]
fn every_code_is_documented() {
    let page = include_str!("../../docs/fleet.md");
    for code in super::super::formats::CODES {
        assert!(page.contains(&format!("| `{code}` | ")), "docs/fleet.md has no {code}");
    }
    assert!(GAPS.iter().all(|code| super::super::formats::CODES.contains(code)));
}

#[test]
fn planted_faults_are_found_and_no_others() {
    let mut digests = fleet_of(64);
    slow(&mut digests[7], 2, 0.9);
    digests[9].summary.driver_version = Some("550".into());
    for at in [11, 20, 33, 47, 58, 60] {
        digests[at].summary.findings.push(found("pcie-narrow", Severity::Error));
    }
    for (at, digest) in digests.iter_mut().enumerate() {
        digest.node = format!("r{}n{:02}", at / 8, at % 8);
    }
    for digest in digests.iter_mut().filter(|digest| digest.node.starts_with("r3")) {
        digest.summary.findings.push(Found {
            subject: Subject::Machine,
            ..found("fabric-not-ready", Severity::Error)
        });
    }
    let fleet = assessed(&gathered(digests));
    let found: Vec<_> =
        fleet.findings.iter().map(|finding| (finding.code, finding.nodes.as_str())).collect();
    assert_eq!(
        found,
        [
            ("fleet-position-bad", "r1n03,r2n04,r4n01,r5n07,r7n[02,04]"),
            ("fleet-finding-shared", "r3n[00-07]"),
            ("fleet-inventory-odd", "r1n01"),
            ("fleet-figure-low", "r0n07"),
        ]
    );
    assert_eq!(fleet.nodes[7].percent_of_cohort.keys().copied().collect::<Vec<_>>(), [2]);
}

#[test]
fn nothing_that_a_report_says_steers_a_terminal_or_a_browser() {
    let hostile = "a\u{1b}[31m\u{202e}<script>\"|`\n";
    let mut digests = fleet_of(7);
    let digest = &mut digests[2];
    (digest.node, digest.file) = (hostile.into(), hostile.into());
    digest.summary.findings.push(Found {
        message: hostile.into(),
        code: hostile.into(),
        ..found("x", Severity::Error)
    });
    digest.summary.driver_version = Some(hostile.into());
    digest.summary.gpus[0].name = Some(hostile.into());
    slow(digest, 1, 0.5);
    let mut all = gathered(digests);
    all.broken.push(Broken { file: hostile.into(), why: hostile.into() });
    let fleet =
        assess(&all, &Question { list: Some(vec![hostile.into()]), history: true, ..question() });
    for format in ["text", "json", "html", "markdown", "junit", "prometheus"] {
        let text = super::super::formats::render(
            &fleet,
            format,
            &Style { level: report::Level::Every, ..Style::PLAIN },
        );
        assert!(!text.contains(['\u{1b}', '\u{202e}']), "{format}: {text}");
        if format == "html" {
            let parsed = scraper::Html::parse_document(&text);
            assert!(
                parsed.errors.is_empty() && !text.contains("<script>"),
                "{:?}: {text}",
                parsed.errors
            );
        }
        assert!(format != "markdown" || !text.contains("<script>"), "{text}");
    }
}
