//! Tests of output: stdout that closes or is full, files, colour, progress.

use std::fs::File;
use std::io::{BufRead, BufReader, Read};
use std::process::{Command, Stdio};

use crate::common::{
    HARDWARE_REPORT, check, finish, fresh_state, peerscope, place, program_text, read_json, run,
    skipped, text_of, wait, with,
};

#[test]
fn a_reader_that_goes_away_changes_no_verdict() {
    // The output exceeds a pipe's buffer, so that the writer meets the closed end in the middle.
    for (machine, more, code) in [
        ("demo", &[][..], 1),
        ("h200x2", &[], 0),
        ("demo", &["--format", "json"], 1),
        ("none", &[], 3),
    ] {
        for lines in [0, 1] {
            let (_folder, report) = place("report.json");
            let args = with(with(check(machine, "quick"), more), &["-o", &text_of(&report)]);
            let mut child =
                peerscope(&args).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
            let mut reader = BufReader::with_capacity(64, child.stdout.take().unwrap());
            let mut first = String::new();
            for _ in 0..lines {
                reader.read_line(&mut first).unwrap();
            }
            assert_eq!(first.is_empty(), lines == 0, "{machine}");
            drop(reader);
            assert_eq!(wait(&mut child).code(), Some(code), "{machine} after {lines} lines");
            let mut complaint = String::new();
            child.stderr.take().unwrap().read_to_string(&mut complaint).unwrap();
            assert_eq!(complaint, "", "{machine} after {lines} lines");
            assert_eq!(read_json(report)["machine"], machine, "the file is written all the same");
        }
    }
}

/// A caller may pass a non-blocking pipe.
#[test]
fn a_reader_that_is_late_gets_everything() {
    let (mut reader, writer) = std::io::pipe().unwrap();
    rustix::fs::fcntl_setfl(&writer, rustix::fs::OFlags::NONBLOCK).unwrap();
    let args = with(check("demo", "standard"), &["--format", "json"]);
    let mut command = peerscope(&args);
    let mut child = command.stdout(writer).stderr(Stdio::piped()).spawn().unwrap();
    // Drop our copy of the pipe's write end.
    drop(command);
    // The report is larger than the pipe; nobody reads for a while.
    std::thread::sleep(std::time::Duration::from_secs(3));
    assert!(child.try_wait().unwrap().is_none(), "it did not wait");
    let mut text = String::new();
    reader.read_to_string(&mut text).unwrap();
    assert_eq!(wait(&mut child).code(), Some(1));
    let mut complaint = String::new();
    child.stderr.take().unwrap().read_to_string(&mut complaint).unwrap();
    assert_eq!(complaint, "");
    let report: serde_json::Value = serde_json::from_str(&text).unwrap();
    assert_eq!(report["machine"], "demo");
}

#[test]
fn a_full_stdout_is_an_error_and_the_files_are_written() {
    let (folder, report) = place("report.json");
    let text = folder.path().join("report.txt");
    let files = ["-o", &text_of(&report), "-o", &text_of(&text)];
    for args in [
        with(check("h200x2", "quick"), &files),
        with(vec!["topo".into(), "--machine".into(), "demo".into()], &files),
        with(vec!["diagnose".into(), HARDWARE_REPORT.into()], &files),
    ] {
        let full = File::options().write(true).open("/dev/full").unwrap();
        let mut child = peerscope(&args).stdout(full).stderr(Stdio::piped()).spawn().unwrap();
        assert_eq!(wait(&mut child).code(), Some(2), "{args:?}");
        let mut complaint = String::new();
        child.stderr.take().unwrap().read_to_string(&mut complaint).unwrap();
        assert!(complaint.starts_with("peerscope: cannot write to stdout: "), "{complaint}");
        assert_eq!(complaint.trim_end().lines().count(), 1, "{complaint}");
        read_json(&report);
        let written = std::fs::read_to_string(&text).unwrap();
        assert!(written.contains("\nRun ") && written.ends_with('\n'), "{written}");
        std::fs::remove_file(&report).unwrap();
        std::fs::remove_file(&text).unwrap();
    }
    for args in [&["machines"][..], &["explain"], &["explain", "pcie-narrow"]] {
        let full = File::options().write(true).open("/dev/full").unwrap();
        let mut child = peerscope(args).stdout(full).stderr(Stdio::null()).spawn().unwrap();
        assert_eq!(wait(&mut child).code(), Some(2), "{args:?}");
    }
}

#[test]
fn a_full_stderr_changes_no_exit_code() {
    for (args, code) in [
        (&["topo", "--machine", "nosuch"][..], 2),
        (&["topo", "--bogus"], 2),
        (&["check", "--machine", "demo", "--profile", "quick"], 1),
        (&["check", "--machine", "h200x2", "--profile", "quick"], 0),
    ] {
        let full = File::options().write(true).open("/dev/full").unwrap();
        let mut child = peerscope(args).stdout(Stdio::null()).stderr(full).spawn().unwrap();
        assert_eq!(wait(&mut child).code(), Some(code), "{args:?}");
    }
}

#[test]
fn files_hold_what_stdout_has() {
    let (folder, json) = place("report.json");
    let file = |name: &str| text_of(&folder.path().join(name));
    let (text, html) = (file("topo.txt"), file("topo.html"));
    let ran = run(&["topo", "--machine", "demo", "-o", &text_of(&json), "-o", &text, "-o", &html]);
    assert_eq!(ran.code, Some(1));
    // The time of the run is in two lines.
    let page = |page: &str| {
        let page = page.split("<footer>").next().unwrap();
        let is_timed = |line: &&str| line.contains(">Run</dt>") || line.contains("id=\"ticket\"");
        let (timed, others): (Vec<_>, Vec<_>) = page.lines().partition(is_timed);
        assert_eq!(timed.len(), 2, "{timed:?}");
        others.into_iter().map(str::to_owned).collect::<Vec<_>>()
    };
    let shown = run(&["topo", "--machine", "demo", "--format", "html"]).stdout;
    assert_eq!(page(&shown), page(&std::fs::read_to_string(&html).unwrap()));
    assert!(read_json(&json)["measurements"].is_null());
    assert!(std::fs::read_to_string(&text).unwrap().starts_with("SIMULATED machine demo"));

    // Neither the width of the terminal nor its colours reach a file.
    let args = ["diagnose", HARDWARE_REPORT, "--color", "always", "-o", &text];
    finish(peerscope(&args).env("COLUMNS", "70"));
    assert_eq!(
        without_time(&std::fs::read_to_string(&text).unwrap()),
        without_time(&run(&args[..2]).stdout)
    );

    // The whole of an existing file is replaced.
    std::fs::write(&json, "x".repeat(10_000_000)).unwrap();
    run(&with(check("single", "quick"), &["-o", &text_of(&json)]));
    assert_eq!(read_json(&json)["machine"], "single");
}

/// Removes the time: `diagnose` measures its own.
fn without_time(text: &str) -> String {
    text.split("\nTime ").next().unwrap().to_owned()
}

#[test]
fn colour_is_asked_for_or_absent() {
    let escapes = |command: &mut Command| finish(command).stdout.contains('\u{1b}');
    for command in
        [vec!["topo".to_owned(), "--machine".into(), "demo".into()], check("demo", "quick")]
    {
        let always = with(command.clone(), &["--color", "always"]);
        assert!(escapes(&mut peerscope(&always)), "{always:?}");
        assert!(
            escapes(peerscope(&always).env("NO_COLOR", "1")),
            "what the user types outranks the environment"
        );
        assert!(!escapes(&mut peerscope(&with(command.clone(), &["--color", "never"]))));
        assert!(!escapes(&mut peerscope(&command)), "a pipe is no terminal");
    }
    let json = with(check("demo", "quick"), &["--color", "always", "--format", "json"]);
    assert!(!escapes(&mut peerscope(&json)), "JSON has no colours");
}

/// Runs a shell command on a terminal of its own and returns what the terminal showed.
fn on_a_terminal(command: &str, environment: &[(&str, &str)]) -> Option<String> {
    let mut script = Command::new("script");
    script
        .args(["-qec", command, "/dev/null"])
        .stdin(Stdio::null())
        .env_remove("NO_COLOR")
        .env("TERM", "xterm");
    script.env("XDG_STATE_HOME", fresh_state()).envs(environment.iter().copied());
    // Do not use finish(): the terminal echoes unpredictably, and script may be missing.
    script.output().ok().map(|output| String::from_utf8_lossy(&output.stdout).into_owned())
}

#[test]
fn on_a_terminal_there_is_colour_and_progress_that_stays_off_stdout() {
    let binary = program_text();
    let topo = format!("{binary} topo --machine demo");
    let Some(shown) = on_a_terminal(&topo, &[]) else {
        return skipped("there is no script(1), so nothing was looked at on a terminal");
    };
    assert!(shown.contains("\u{1b}["), "{shown}");
    let plain = on_a_terminal(&topo, &[("NO_COLOR", "1")]).unwrap();
    assert!(plain.contains("GPU 5") && !plain.contains('\u{1b}'), "{plain}");
    let empty = on_a_terminal(&topo, &[("NO_COLOR", "")]).unwrap();
    assert!(empty.contains('\u{1b}'), "an empty NO_COLOR is none: {empty}");

    let (_folder, json) = place("stdout.json");
    let check = format!(
        "{binary} check --machine demo --profile standard --format json >{}",
        json.display()
    );
    let progress = on_a_terminal(&check, &[]).unwrap();
    assert!(
        progress.contains("left") && progress.contains("GPU "),
        "no progress on stderr: {progress:?}"
    );
    assert_eq!(read_json(json)["machine"], "demo");
}

#[test]
fn hostile_names_on_the_command_line_are_shown_and_not_obeyed() {
    use std::ffi::OsStr;
    use std::os::unix::ffi::OsStrExt;

    let evil = b"/nosuch/a\x1b[2J\x07\n\xff\xc2\x9b31m\xe2\x80\xae.json";
    let folder = tempfile::tempdir().unwrap();
    let garbage = folder.path().join(OsStr::from_bytes(b"x\x1b[31m\ny.json"));
    std::fs::write(&garbage, "{").unwrap();
    let os = OsStr::from_bytes;
    let cases: Vec<Vec<&OsStr>> = vec![
        vec![os(b"diagnose"), os(evil)],
        vec![os(b"diagnose"), garbage.as_os_str()],
        vec![os(b"topo"), os(b"--machine"), os(b"demo"), os(b"-o"), os(evil)],
        vec![os(b"topo"), os(b"--machine"), os(b"demo"), os(b"-o"), os(b"a.\x1b[2J")],
        vec![os(b"topo"), os(b"--machine"), os(b"a\x1b[2J\n")],
        vec![os(b"topo"), os(b"--machine"), os(b"./a\x1b[2J\n.toml")],
        vec![os(b"topo"), os(b"--machine"), os(evil)],
        vec![os(b"topo"), os(b"--machine"), os(b"demo"), os(b"--gpus"), os(b"\x1b[2J\n")],
        vec![os(b"explain"), os(b"\x1b[2J\n")],
        vec![os(b"machines"), os(b"--show"), os(b"\x1b[2J\n")],
        vec![os(b"check"), os(b"--profile"), os(b"\x1b[2J\xe2\x80\xae")],
        vec![os(b"check"), os(b"--memory"), os(b"\x1b[2J")],
        vec![os(b"\x1b[2J")],
        vec![os(b"--\x1b[2J")],
    ];
    for arguments in cases {
        let mut command = peerscope::<&str>(&[]);
        let ran = finish(command.args(&arguments));
        assert_eq!(ran.code, Some(2), "{arguments:?}: {ran:?}");
        assert!(ran.stdout.is_empty(), "{ran:?}");
        let acts = |c: char| c != '\n' && (c.is_control() || c == '\u{202e}');
        assert!(
            !ran.stderr.contains(acts) && ran.stderr.ends_with('\n'),
            "{arguments:?}: {:?}",
            ran.stderr
        );
        if ran.stderr.starts_with("peerscope: ") {
            assert_eq!(ran.stderr.lines().count(), 1, "{arguments:?}: {}", ran.stderr);
        }
    }
    // A report with such a name is read like any other.
    let (_folder, report) = place("a\u{1b}[2J\nb.json");
    assert_eq!(
        run(&with(check("single", "quick"), &["-o", &text_of(&report)])).code,
        run(&check("single", "quick")).code
    );
    assert_eq!(read_json(report)["machine"], "single");
}
