//! Tests of formats for other programs, against those programs if they are installed.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use model::measurement::{Measurements, Probe};
use model::report::Report;
use peerscope::{Of, formats};
use serde_json::Value;

use crate::common::{
    HARDWARE_REPORT, check, is_there, list, peerscope, place, read_json, run, signal,
    skipped_for_want_of, text_of, wait_with_output, with,
};
use crate::worker_faults::PATIENCE;

#[test]
fn every_command_with_a_report_writes_every_format() {
    let (folder, _) = place("");
    for (command, code) in [
        (vec!["topo", "--machine", "demo"], 1),
        (vec!["check", "--machine", "demo", "--profile", "quick"], 1),
        (vec!["diagnose", HARDWARE_REPORT], 0),
    ] {
        let mut args: Vec<String> = command.iter().copied().map(String::from).collect();
        // These have no timeline.
        let all = |of| formats(of).filter(|format| format.of != Of::Traced);
        let formats = || all(if command[0] == "topo" { Of::Topology } else { Of::All });
        for extension in formats().flat_map(|format| format.extensions) {
            args.extend([
                "-o".into(),
                text_of(&folder.path().join("report").with_extension(extension)),
            ]);
        }
        assert_eq!(run(&args).code, Some(code), "{args:?}");
        for format in formats() {
            let (format, extension) = (format.name, format.extensions.first());
            let ran = run(&with(
                command.iter().copied().map(String::from).collect(),
                &["--format", format],
            ));
            assert_eq!((ran.code, ran.stderr.as_str()), (Some(code), ""), "{command:?} {format}");
            let first = |text: &str| text.lines().next().unwrap().to_owned();
            if let Some(extension) = extension {
                let written =
                    std::fs::read_to_string(folder.path().join("report").with_extension(extension))
                        .unwrap();
                assert_eq!(first(&ran.stdout), first(&written), "{command:?} {format}");
            }
            assert!(
                ran.stdout.ends_with('\n'),
                "{command:?} {format}: the text is empty or its last line has no end"
            );
        }
    }
}

/// Returns names, labels and values of all samples.
fn samples(text: &str) -> BTreeMap<String, f64> {
    let lines =
        text.lines().filter(|line| !line.starts_with('#') && line.starts_with("peerscope_"));
    lines
        .map(|line| line.rsplit_once(' ').unwrap())
        .map(|(name, value)| (name.to_owned(), value.parse().unwrap()))
        .collect()
}

/// A node_exporter with its textfile collector alone; it ends with its guard.
struct NodeExporter {
    child: Child,
    address: String,
}

impl NodeExporter {
    /// Starts on a port of the kernel's choice, which the log reports.
    fn start(folder: &Path) -> Self {
        let mut child = Command::new("prometheus-node-exporter")
            .args([
                "--collector.disable-defaults",
                "--collector.textfile",
                "--web.listen-address=127.0.0.1:0",
            ])
            .arg(format!("--collector.textfile.directory={}", folder.display()))
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut log = BufReader::new(child.stderr.take().unwrap());
        let mut said = String::new();
        let address = loop {
            let mut line = String::new();
            assert_ne!(log.read_line(&mut line).unwrap(), 0, "node_exporter ended: {said}");
            said += &line;
            let told = line.split_whitespace().find_map(|word| word.strip_prefix("address="));
            match told.map(|address| address.trim_matches('"')) {
                Some(address) if !address.ends_with(":0") => break address.to_owned(),
                _ => {}
            }
        };
        // An unread log would block it.
        std::thread::spawn(move || std::io::copy(&mut log, &mut std::io::sink()));
        Self { child, address }
    }

    fn metrics(&self) -> String {
        let until = Instant::now() + PATIENCE;
        let mut stream = loop {
            match TcpStream::connect(&self.address) {
                Ok(stream) => break stream,
                Err(error) => assert!(Instant::now() < until, "{}: {error}", self.address),
            }
            std::thread::sleep(Duration::from_millis(20));
        };
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        write!(stream, "GET /metrics HTTP/1.0\r\nHost: localhost\r\n\r\n").unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        assert!(answer.starts_with("HTTP/1.0 200"), "{answer}");
        answer
    }
}

impl Drop for NodeExporter {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn node_exporter_serves_the_file_as_it_was_written() {
    if !is_there("prometheus-node-exporter") {
        return skipped_for_want_of("prometheus-node-exporter");
    }
    let (folder, file) = place("peerscope.prom");
    run(&with(check("demo", "standard"), &["-o", &text_of(&file)]));
    let exporter = NodeExporter::start(folder.path());
    let served = exporter.metrics();
    assert!(served.contains("\nnode_textfile_scrape_error 0\n"), "{served}");
    // The exporter sorts labels by name and adds empty ones that other series of the metric have, which mean the same to
    // Prometheus as none: compare without them, sorted.
    let sorted = |samples: BTreeMap<String, f64>| -> BTreeMap<String, f64> {
        let sort = |name: String| match name.split_once('{') {
            Some((name, labels)) => {
                let mut labels: Vec<_> = labels.trim_end_matches('}').split(',').collect();
                labels.retain(|label| !label.ends_with("=\"\""));
                labels.sort_unstable();
                format!("{name}{{{}}}", labels.join(","))
            }
            None => name,
        };
        samples.into_iter().map(|(name, value)| (sort(name), value)).collect()
    };
    let written = sorted(samples(&std::fs::read_to_string(&file).unwrap()));
    assert!(written.len() > 60, "{written:#?}");
    assert_eq!(sorted(samples(&served)), written);
    assert_eq!(written["peerscope_exit_code"], 1.0);

    // The next run replaces the file.
    run(&with(check("h200x2", "quick"), &["-o", &text_of(&file)]));
    let served = samples(&exporter.metrics());
    assert_eq!((served["peerscope_exit_code"], served["peerscope_gpus"]), (0.0, 2.0));
}

#[test]
fn metrics_are_those_of_the_report() {
    let (_folder, json) = place("report.json");
    let ran =
        run(&with(check("demo", "standard"), &["-o", &text_of(&json), "--format", "prometheus"]));
    let (report, samples) = (read_json(json), samples(&ran.stdout));
    let number = |value: &Value| value.as_f64().unwrap();
    assert_eq!(
        samples["peerscope_measurements{state=\"tested\"}"],
        number(&report["verdict"]["tested"])
    );
    for severity in ["error", "warning", "info"] {
        let found = list(&report["findings"])
            .iter()
            .filter(|finding| finding["severity"] == severity)
            .count();
        assert_eq!(
            samples[&format!("peerscope_findings{{severity=\"{severity}\"}}")],
            found as f64,
            "{severity}"
        );
    }
    let narrow = "peerscope_rule_findings{code=\"pcie-narrow\",severity=\"error\"}";
    assert_eq!(samples[narrow], 1.0);
    let started = report["started_at"].as_str().unwrap();
    let rfc3339 = &time::format_description::well_known::Rfc3339;
    let started = time::OffsetDateTime::parse(started, rfc3339).unwrap().unix_timestamp();
    assert_eq!(samples["peerscope_run_timestamp_seconds"], started as f64);
}

#[test]
fn every_probe_is_in_every_format_for_programs_as_its_cell_declares_it() {
    let (folder, json) = place("report.json");
    let file = |name: &str| text_of(&folder.path().join(name));
    let [csv, prom, xml] = ["report.csv", "report.prom", "report.xml"].map(file);
    let json = text_of(&json);
    run(&with(check("h200x2", "full"), &["-o", &json, "-o", &csv, "-o", &prom, "-o", &xml]));
    let report: Report = serde_json::from_value(read_json(json)).unwrap();
    let [csv, prom, xml] = [csv, prom, xml].map(|file| std::fs::read_to_string(file).unwrap());
    let schema = read_json(concat!(env!("CARGO_MANIFEST_DIR"), "/docs/report.schema.json"));
    let tables = &schema["$defs"]["Measurements"]["properties"];
    assert!(Measurements::TABLES.iter().all(|table| tables[table].is_object()), "{tables}");
    for &probe in Probe::ALL {
        let of_probe = || report.measurements.iter().flat_map(Measurements::each);
        let cell = of_probe().find(|one| one.probe() == probe && one.is_sound());
        let cell = cell.unwrap_or_else(|| panic!("{probe}: not measured by the profile full"));
        let main = cell.figures()[0].key;
        assert!(
            csv.contains(&format!(",{probe},")) && csv.contains(&format!(",{main},")),
            "{main}"
        );
        let name = probe.to_string().replace(' ', "_");
        assert!(prom.contains(&format!("\npeerscope_{name}_")), "{probe}: {prom}");
        let suite = format!("<testsuite name=\"peerscope.{probe}\"");
        assert!(
            xml.contains(&suite) && xml.contains(&format!("\"{}\"", cell.flow_of(0))),
            "{suite}"
        );
    }
}

#[test]
fn an_interrupted_run_is_unknown_to_nagios_in_every_format() {
    let (folder, json) = place("report.json");
    let file = |name: &str| text_of(&folder.path().join(name));
    let (metrics, junit) = (file("report.prom"), file("report.xml"));
    let args = ["check", "--machine", "pair-hangs", "--deadline", "3600", "--format", "line"];
    let more = ["--exit-contract", "nagios", "-o", &text_of(&json), "-o", &metrics, "-o", &junit];
    let run = peerscope(&[&args[..], &more].concat())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    // It listens before it starts its worker.
    let children = format!("/proc/{0}/task/{0}/children", run.id());
    let until = Instant::now() + PATIENCE;
    while std::fs::read_to_string(&children).unwrap_or_default().trim().is_empty() {
        assert!(Instant::now() < until, "no worker");
        std::thread::sleep(Duration::from_millis(10));
    }
    signal("INT", run.id());
    let output = wait_with_output(run);
    let line = String::from_utf8(output.stdout).unwrap();
    assert_eq!(output.status.code(), Some(3), "{line}");
    assert!(line.starts_with("PEERSCOPE UNKNOWN - SIMULATED pair-hangs: interrupted; "), "{line}");
    assert_eq!(read_json(json)["verdict"]["exit_code"], 3);
    let samples = samples(&std::fs::read_to_string(metrics).unwrap());
    assert_eq!((samples["peerscope_interrupted"], samples["peerscope_exit_code"]), (1.0, 3.0));
    let junit = quick_junit::Report::deserialize_from_str(&std::fs::read_to_string(junit).unwrap())
        .unwrap();
    assert!(junit.errors > 0, "{junit:?}");
}
