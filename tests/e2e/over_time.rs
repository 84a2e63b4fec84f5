//! Tests of a buyer's expectations, and of comparisons of two reports.

use serde_json::{Value, json};

use crate::common::{
    HARDWARE_REPORT, changed_report, check, codes, list, pair, place, read_json, run, text_of,
    with, without_gpu, write, write_json,
};

/// Returns a quick report of a machine.
fn report(machine: &str) -> Value {
    run(&with(check(machine, "quick"), &["--format", "json"])).json()
}

fn compare(old: &str, new: &str, more: &[&str]) -> crate::common::Ran {
    run(&with(vec!["compare".into(), old.into(), new.into()], more))
}

#[test]
fn a_good_machine_meets_what_was_written_from_it() {
    let (folder, _) = place("x");
    let good = write_json(folder.path(), "good.json", &report("h200x8"));
    let expected = run(&["expect", &good]);
    assert_eq!(expected.code, Some(0), "{expected:?}");
    for line in [
        "gpus = 8",
        "model = \"NVIDIA H200\"",
        "pcie_width = 16",
        "nvlinks = 18",
        "peer_access = true",
        "\"direct of NV18\" = ",
    ] {
        assert!(expected.stdout.contains(line), "{line}: {}", expected.stdout);
    }
    let file = write(folder.path(), "expect.toml", &expected.stdout);
    let met = run(&with(check("h200x8", "quick"), &["--expect", &file]));
    assert_eq!(met.code, Some(0), "{met:?}");

    let other = run(&with(check("demo", "quick"), &["--expect", &file, "--format", "json"]));
    assert_eq!(other.code, Some(1));
    let report = other.json();
    let unmet = codes(&report).into_iter().filter(|code| *code == "expectation-unmet").count();
    // Model, generation, links, lanes of one GPU, access of one pair, copies within the GPUs.
    assert_eq!(unmet, 6, "{report}");
    assert!(codes(&report).contains(&"expectation-unchecked"), "NV18 has no pair there");
}

#[test]
fn each_expectation_is_looked_at_by_itself() {
    let (folder, _) = place("x");
    for (text, code, says) in [
        ("[machine]\ngpus = 9\n", 1, "9 GPUs expected, 8 found"),
        ("[machine]\nmodel = \"NVIDIA L40S\"\n", 1, "NVIDIA H200, expected NVIDIA L40S"),
        ("[machine]\npcie_generation = 6\n", 1, "PCIe generation 5, expected 6"),
        ("[machine]\npcie_width = 32\n", 1, "PCIe lanes 16, expected 32"),
        ("[machine]\nnvlinks = 19\n", 1, "active NVLinks 18, expected 19"),
        ("[figures.bandwidth]\ndirect = 500\n", 1, "expected 500"),
        ("[figures.bandwidth]\n\"direct of GPU 0 → GPU 5\" = 399\n", 1, "from GPU 0"),
        (
            "[figures.bandwidth]\n\"direct of GPU 0 -> GPU 9\" = 399\n",
            3,
            "this machine has no such place: bandwidth (direct of GPU 0 → GPU 9)",
        ),
        ("[figures.bandwidth]\nstaged = 3\n", 3, "not measured"),
        (
            "[machine]\ngpus = 8\npcie_width = 8\nnvlinks = 12\n[figures.bandwidth]\ndirect = 380\n",
            0,
            "healthy",
        ),
    ] {
        let file = write(folder.path(), "expect.toml", text);
        let ran = run(&with(check("h200x8", "quick"), &["--expect", &file]));
        assert_eq!(ran.code, Some(code), "{text}: {ran:?}");
        assert!(ran.flowing().contains(says), "{text}: {}", ran.stdout);
    }
}

#[test]
fn what_cannot_be_read_is_named_and_nothing_is_measured() {
    let (folder, _) = place("x");
    let broken = write(folder.path(), "broken.toml", "[machine]\ngpsu = 8\n");
    for (args, says) in [
        (["--expect", broken.as_str()], "gpsu"),
        (["--expect", "/nowhere/x.toml"], "/nowhere/x.toml"),
        (["--baseline", broken.as_str()], "is not JSON"),
        (["--config", broken.as_str()], "machine"),
    ] {
        let ran = run(&with(check("h200x8", "quick"), &args));
        assert_eq!(ran.code, Some(2), "{args:?}: {ran:?}");
        assert!(ran.stderr.contains(says) && ran.stdout.is_empty(), "{args:?}: {ran:?}");
    }
    let ran = run(&["expect", &write_json(folder.path(), "demo.json", &report("demo"))]);
    assert_eq!(ran.code, Some(2));
    assert!(ran.stderr.contains("faulty") && ran.stderr.contains("--anyway"), "{ran:?}");
}

#[test]
fn a_report_compared_with_itself_is_no_worse() {
    let ran = compare(HARDWARE_REPORT, HARDWARE_REPORT, &[]);
    assert_eq!(ran.code, Some(0), "{ran:?}");
    assert!(ran.stdout.contains("no worse"), "{}", ran.stdout);
    let comparison = compare(HARDWARE_REPORT, HARDWARE_REPORT, &["--format", "json"]).json();
    assert_eq!(comparison["schema"], "peerscope.comparison/1");
    assert!(comparison["compared"].as_u64().unwrap() > 56);
    assert_eq!(comparison["findings"], json!([]));
}

fn scale(report: &mut Value, share: f64, which: impl Fn(&Value) -> bool) {
    for cell in report["measurements"]["peer"].as_array_mut().unwrap() {
        if let (true, Some(rate)) = (which(cell), cell["achieved_gbps"].as_f64()) {
            cell["achieved_gbps"] = json!(rate * share);
        }
    }
}

#[test]
fn what_fell_is_reported_once_with_its_place() {
    // A fall of 12% stays well above the floor for healthy machines: only the earlier report shows it.
    let (_folder, new) = changed_report(|report| {
        scale(report, 0.88, |cell| cell["source"] == 3 || cell["destination"] == 3)
    });
    let ran = compare(HARDWARE_REPORT, &new, &["--format", "json"]);
    assert_eq!(ran.code, Some(1), "{ran:?}");
    let comparison = ran.json();
    let fell: Vec<_> = list(&comparison["findings"])
        .iter()
        .filter(|finding| finding["code"] == "fell-since-baseline")
        .collect();
    assert_eq!(fell.len(), 1, "{fell:#?}");
    assert_eq!(fell[0]["subject"], json!({"kind": "gpu", "index": 3}));
    assert!(fell[0]["evidence"]["fall_percent"].as_f64().unwrap() > 11.9);
    // The option `--baseline` gives the same result.
    let ran = run(&["diagnose", &new, "--baseline", HARDWARE_REPORT, "--format", "json"]);
    assert_eq!(ran.code, Some(1));
    assert!(codes(&ran.json()).contains(&"fell-since-baseline"));
    // Compared the other way, a rise is information.
    let ran = compare(&new, HARDWARE_REPORT, &[]);
    assert_eq!(ran.code, Some(0), "{ran:?}");
    assert!(ran.flowing().contains("figures rose"), "{}", ran.stdout);
}

#[test]
fn noise_is_not_reported() {
    let (_folder, new) = changed_report(|report| scale(report, 0.98, |_| true));
    let ran = compare(HARDWARE_REPORT, &new, &[]);
    assert_eq!(ran.code, Some(0), "{ran:?}");
}

#[test]
fn what_vanished_is_reported() {
    let (_folder, new) = changed_report(|report| {
        // Copies that are faster than eight lanes, or more lanes under load, would refute the link's readings.
        report["measurements"]["links"][2]["width"] = json!([8, 8]);
        scale(report, 0.6, |cell| {
            cell["path"] == "staged" && [pair(cell).0, pair(cell).1].contains(&2)
        });
        without_gpu(report, 5);
        for gpu in report["snapshot"]["gpus"].as_array_mut().unwrap() {
            if gpu["index"] == 2 {
                gpu["pcie_width"] = json!(8);
            }
        }
        for pair in report["topology"]["pairs"].as_array_mut().unwrap() {
            if pair["source"] == 0 && pair["destination"] == 1 {
                pair["peer_access"]["cuda"] = json!(false);
            }
        }
    });
    let ran = compare(HARDWARE_REPORT, &new, &[]);
    assert_eq!(ran.code, Some(1), "{ran:?}");
    for says in [
        "GPU 5 (0000:00:0b.0) of the earlier report is gone",
        "PCIe lanes 16 → 8",
        "peer access on → off since the earlier report",
    ] {
        assert!(ran.flowing().contains(says), "{says}: {}", ran.stdout);
    }
}

/// Writes a quick report of these GPUs of a machine to a file.
fn report_of(machine: &str, gpus: &str, folder: &std::path::Path) -> String {
    let file = text_of(&folder.join(format!("{machine}-{gpus}.json")));
    let ran = run(&with(check(machine, "quick"), &["--gpus", gpus, "-o", &file, "--journal=none"]));
    assert!(matches!(ran.code, Some(0 | 1)), "{ran:?}");
    file
}

/// Returns the findings of a comparison, or of a report, about what is gone, new, or worse.
fn over_time(report: &Value) -> Vec<&str> {
    let found = list(&report["findings"]).iter().filter(|finding| {
        ["fell-since-baseline", "changed-since-baseline"]
            .contains(&finding["code"].as_str().unwrap())
    });
    found.map(|finding| finding["message"].as_str().unwrap()).collect()
}

#[test]
fn gpus_that_the_options_left_out_are_neither_gone_nor_new() {
    let (folder, _) = place("x");
    let reports = ["0-7", "0-3", "2-5", "7,3,1", "6,7"]
        .map(|gpus| report_of("two-sockets", gpus, folder.path()));
    for old in &reports {
        for new in &reports {
            let ran = compare(old, new, &["--format", "json"]);
            let comparison = ran.json();
            assert_eq!(over_time(&comparison), [""; 0], "{old}, {new}");
            assert_eq!(comparison["appeared"], json!([]), "{old}, {new}");
            // Without a common pair nothing was compared.
            let wanted = if comparison["compared"] == 0 { 3 } else { 0 };
            assert_eq!(ran.code, Some(wanted), "{old}, {new}: {ran:?}");
            let judged = run(&["diagnose", new, "--baseline", old, "--format", "json"]);
            assert_eq!(
                (judged.code, over_time(&judged.json())),
                (Some(wanted), vec![]),
                "{old}, {new}"
            );
        }
    }
    let [whole, some, ..] = &reports;
    let ran = run(&with(check("two-sockets", "quick"), &["--gpus", "0-3", "--baseline", whole]));
    assert_eq!(ran.code, Some(0), "{ran:?}");
    for (pair, says) in
        [([whole, some], "PARTIAL now: 4 of 8 GPUs"), ([some, whole], "PARTIAL then: 4 of 8 GPUs")]
    {
        let ran = compare(pair[0], pair[1], &[]);
        assert!(
            ran.flowing().contains(says) && !ran.flowing().contains("and nothing is missing"),
            "{}",
            ran.stdout
        );
    }
    assert!(!compare(whole, whole, &[]).stdout.contains("PARTIAL"));
}

#[test]
fn a_gpu_that_was_not_left_out_and_is_missing_is_gone_whatever_was_chosen() {
    let (folder, _) = place("x");
    let [whole, some] = ["0-7", "0-3"].map(|gpus| report_of("two-sockets", gpus, folder.path()));
    let changed = |report: &str, change: &dyn Fn(&mut Value)| {
        let mut report = read_json(report);
        change(&mut report);
        write_json(folder.path(), "changed.json", &report)
    };
    // NVML no longer lists GPU 5, regardless of its place in the list.
    let lost = changed(&some, &|report| {
        report["request"]["gpus_left_out"] = json!(3);
        report["request"]["left_out_gpus"].as_array_mut().unwrap().remove(1);
    });
    let ran = compare(&whole, &lost, &[]);
    assert_eq!(ran.code, Some(1), "{ran:?}");
    assert!(
        ran.flowing().contains("GPU 5 (0000:")
            && ran.flowing().contains("of the earlier report is gone")
    );
    assert_eq!(ran.stdout.matches("of the earlier report is gone").count(), 1, "{}", ran.stdout);
    // GPU 5 did not exist yet when only some GPUs were checked, so it is new.
    let ran = compare(&lost, &whole, &[]);
    assert_eq!((ran.code, ran.flowing().matches("is new").count()), (Some(0), 1), "{}", ran.stdout);
    // A chosen GPU is missing; the list of left-out GPUs does not explain that.
    let missing = changed(&some, &|report| without_gpu(report, 2));
    let ran = compare(&whole, &missing, &[]);
    assert_eq!(ran.code, Some(1), "{ran:?}");
    assert_eq!(ran.flowing().matches("is gone").count(), 1, "{}", ran.stdout);
    assert!(ran.flowing().contains("GPU 2 (0000:"), "{}", ran.stdout);
    // Without addresses the UUID identifies a GPU, without both the index does.
    for unknown in [&["pci"][..], &["pci", "uuid"]] {
        let blank = changed(&some, &|report| {
            for gpu in report["request"]["left_out_gpus"].as_array_mut().unwrap() {
                unknown.iter().for_each(|key| gpu[*key] = Value::Null);
            }
        });
        let ran = compare(&whole, &blank, &["--format", "json"]);
        assert_eq!((ran.code, over_time(&ran.json())), (Some(0), vec![]), "{unknown:?}");
    }
}

#[test]
fn a_fault_of_a_gpu_that_was_left_out_is_not_gone() {
    let (folder, _) = place("x");
    let [whole, without, with_it] =
        ["0-7", "0-3", "4-7"].map(|gpus| report_of("demo", gpus, folder.path()));
    let gone = |new: &str| {
        let comparison = compare(&whole, new, &["--format", "json"]).json();
        list(&comparison["gone"]).iter().filter(|finding| finding["code"] == "pcie-narrow").count()
    };
    // GPU 5 is in a slot of four lanes.
    assert_eq!([gone(&without), gone(&with_it)], [0, 0]);
    // The finding is gone once a check of GPU 5 finds the slot mended.
    let shown = run(&["machines", "--show", "demo"]).stdout;
    let machine = shown.replace("trained = \"Gen4 x4\"", "trained = \"Gen4 x16\"");
    assert_ne!(machine, shown);
    let (machine, file) = (
        write(folder.path(), "mended.toml", &machine),
        text_of(&folder.path().join("mended.json")),
    );
    let ran =
        run(&with(check(&machine, "quick"), &["--gpus", "4-7", "-o", &file, "--journal=none"]));
    assert_eq!(ran.code, Some(0), "{ran:?}");
    assert_eq!(gone(&file), 1);
}

#[test]
fn expectations_of_a_partial_report_say_so() {
    let (folder, file) = place("report.json");
    let file = text_of(&file);
    let config = write(folder.path(), "site.toml", "[severity]\npersistence-off = \"off\"\n");
    let caveats = |text: &str| -> Vec<String> {
        text.lines().filter(|line| line.starts_with("# ")).skip(2).map(String::from).collect()
    };
    for (options, said) in [
        (&[][..], None),
        (&["--gpus", "0-7"], None),
        (
            &["--skip", "latency"],
            Some("PARTIAL: of the profile's probes, latency were left out (--skip latency)"),
        ),
        (&["--config", &config], Some(&*format!("SILENCED by {config}: persistence-off is off"))),
    ] {
        let ran = run(&with(
            check("h200x8", "standard"),
            &[options, &["-o", &file, "--journal=none"]].concat(),
        ));
        assert_eq!(ran.code, Some(0), "{ran:?}");
        let ran = run(&["expect", &file]);
        assert_eq!(ran.code, Some(0), "{ran:?}");
        let wanted: Vec<String> = said.iter().map(|said| format!("# {said}")).collect();
        assert_eq!(caveats(&ran.stdout), wanted, "{}", ran.stdout);
        let wanted = said.map(|said| format!("peerscope: {file}: {said}\n")).unwrap_or_default();
        assert_eq!(ran.stderr, wanted);
        let expected = write(folder.path(), "expect.toml", &ran.stdout);
        assert_eq!(run(&with(check("h200x8", "quick"), &["--expect", &expected])).code, Some(0));
    }
    // A machine without the other GPUs would meet these expectations.
    let ran =
        run(&with(check("h200x8", "quick"), &["--gpus", "0-5", "-o", &file, "--journal=none"]));
    assert_eq!(ran.code, Some(0), "{ran:?}");
    let refused = run(&["expect", &file]);
    assert_eq!((refused.code, refused.stdout.as_str()), (Some(2), ""));
    assert!(
        refused.stderr.contains("2 of 8 GPUs") && refused.stderr.contains("--anyway"),
        "{refused:?}"
    );
    let taken = run(&["expect", &file, "--anyway"]);
    assert_eq!(taken.code, Some(0), "{taken:?}");
    let said = "PARTIAL: 2 of 8 GPUs were left out (--gpus 0-5)";
    assert_eq!(caveats(&taken.stdout), [format!("# {said}")]);
    assert_eq!(taken.stderr, format!("peerscope: {file}: {said}\n"));
    // The expectations hold for the same choice.
    let expected = write(folder.path(), "expect.toml", &taken.stdout);
    let ran = run(&with(check("h200x8", "quick"), &["--gpus", "0-5", "--expect", &expected]));
    assert_eq!(ran.code, Some(0), "{ran:?}");
    // A name makes no line of its own, and no key.
    let mut report = read_json(&file);
    report["request"]["gpus"] = json!(["0-5\n[machine]\ngpus = 1\n#"]);
    let ran = run(&["expect", &write_json(folder.path(), "hostile.json", &report), "--anyway"]);
    assert_eq!(ran.stdout.matches("\n[machine]").count(), 1, "{}", ran.stdout);
    assert_eq!(
        run(&["diagnose", &file, "--expect", &write(folder.path(), "hostile.toml", &ran.stdout)])
            .code,
        Some(0)
    );
}

#[test]
fn two_machines_that_have_nothing_in_common_are_inconclusive_or_worse() {
    let (_folder, new) = changed_report(|report| report["measurements"]["peer"] = json!([]));
    let ran = compare(HARDWARE_REPORT, &new, &[]);
    assert_eq!(ran.code, Some(3), "{ran:?}");
    assert!(ran.flowing().contains("could be compared"), "{}", ran.stdout);
}

#[test]
fn a_comparison_with_a_shorter_profile_says_what_is_missing() {
    let (folder, _) = place("x");
    let of = |profile: &str| {
        let file = text_of(&folder.path().join(format!("{profile}.json")));
        let ran = run(&with(check("h200x2", profile), &["-o", &file, "--journal=none"]));
        assert_eq!(ran.code, Some(0), "{ran:?}");
        file
    };
    let [quick, full] = ["quick", "full"].map(of);
    let ran = compare(&full, &quick, &[]);
    assert_eq!(ran.code, Some(3), "{ran:?}");
    let text = ran.flowing();
    assert!(
        text.contains("not part of this run (profile quick, earlier full)")
            && !text.contains("nothing is missing"),
        "{text}"
    );
    // The other way round, and for a check that was asked for less, nothing is missing.
    let ran = compare(&quick, &full, &[]);
    assert_eq!(ran.code, Some(0), "{ran:?}");
    assert!(ran.flowing().contains("nothing is missing"), "{}", ran.stdout);
    let ran = run(&with(check("h200x2", "quick"), &["--baseline", &full]));
    assert_eq!(ran.code, Some(0), "{ran:?}");
}

#[test]
fn a_page_shows_how_each_pair_changed_and_which_lost_its_direct_copies() {
    let (folder, _) = place("x");
    let demo = run(&["machines", "--show", "demo"]).stdout;
    let healthy =
        demo.replace(", trained = \"Gen4 x4\"", "").replace("exceptions = [{ pairs", "# [{ pairs");
    assert_ne!(healthy, demo);
    let healthy = write(folder.path(), "healthy.toml", &healthy);
    let old = write_json(folder.path(), "old.json", &report(&healthy));
    let new = write_json(folder.path(), "new.json", &report("demo"));
    let compared = compare(&old, &new, &["--format", "html"]);
    assert_eq!(compared.code, Some(1), "{compared:?}");
    let page = scraper::Html::parse_document(&compared.stdout);
    assert!(page.errors.is_empty(), "{:?}", page.errors);
    let select = |query: &str| -> Vec<scraper::ElementRef<'_>> {
        page.select(&scraper::Selector::parse(query).unwrap()).collect()
    };
    let cells = select("table.heat tbody td");
    assert_eq!(cells.len(), 64);
    let text = |source: usize, destination: usize| {
        cells[8 * source + destination].text().collect::<String>()
    };
    for (source, destination, said) in
        [(0, 5, "▾-75.0"), (5, 7, "▾-75.0"), (0, 1, "0.0"), (3, 2, "0.0")]
    {
        assert_eq!(text(source, destination), said, "{source} to {destination}");
    }
    for (source, destination) in [(1, 6), (6, 1)] {
        let cell = cells[8 * source + destination];
        assert!(text(source, destination).starts_with("✖-"), "{}", cell.html());
        assert!(cell.attr("title").unwrap().contains("through host memory"), "{}", cell.html());
    }
    let headings: Vec<String> =
        select("h2").iter().map(|heading| heading.text().collect()).collect();
    assert_eq!(
        headings[..3],
        ["What is worse or different", "What changed, pair by pair", "New findings"]
    );
    let findings = select("section.findings article, section.findings details.finding").len();
    assert!(
        findings >= list(&compare(&old, &new, &["--format", "json"]).json()["appeared"]).len(),
        "{findings}"
    );
}
