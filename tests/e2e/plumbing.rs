//! Tests of input and output that are not plain files: pipes, links, standard input, names of any length.

use std::fs::Permissions;
use std::io::{Read, Write};
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::Path;
use std::process::{Command, Stdio};

use crate::common::{
    HARDWARE_REPORT, Ran, check, finish, peerscope, place, program_text, read_json, redact, run,
    text_of, with, write,
};

/// Runs a shell command in which `peerscope` is the program.
fn shell(script: &str) -> Ran {
    let mut command = Command::new("bash");
    let function = format!("peerscope() {{ {} \"$@\"; }}; {script}", program_text());
    finish(
        command
            .args(["-c", &function])
            .stdin(Stdio::null())
            .env("XDG_STATE_HOME", crate::common::fresh_state()),
    )
}

fn topo(file: &Path) -> Ran {
    run(&["topo", "--machine", "single", "-o", &text_of(file)])
}

#[test]
fn a_file_that_is_replaced_keeps_its_mode_and_owner() {
    for mode in [0o600, 0o640, 0o444, 0o666] {
        let (folder, file) = place("report.json");
        std::fs::write(&file, "old").unwrap();
        std::fs::set_permissions(&file, Permissions::from_mode(mode)).unwrap();
        let is_root = std::os::unix::fs::chown(&file, Some(65534), Some(65534)).is_ok();
        let before = std::fs::metadata(&file).unwrap();
        assert_eq!(topo(&file).code, Some(0));
        let after = std::fs::metadata(&file).unwrap();
        assert_eq!(after.mode(), before.mode(), "{mode:o}");
        assert_eq!((after.uid(), after.gid()), (before.uid(), before.gid()));
        assert!(!is_root || after.uid() == 65534);
        // The file is replaced as a whole: it has another inode, and nothing else is left.
        assert_ne!(after.ino(), before.ino());
        assert_eq!(read_json(&file)["machine"], "single");
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1);
    }
}

#[test]
fn a_link_stays_a_link_and_its_file_is_written() {
    for (target, exists) in
        [("kept/report.json", true), ("kept/other.json", true), ("kept/new.json", false)]
    {
        let (folder, link) = place("latest.json");
        std::fs::create_dir(folder.path().join("kept")).unwrap();
        let file = folder.path().join(target);
        if exists {
            std::fs::write(&file, "old").unwrap();
        }
        symlink(target, &link).unwrap();
        let second = folder.path().join("second.json");
        symlink("latest.json", &second).unwrap();
        assert_eq!(topo(&second).code, Some(0));
        for link in [&link, &second] {
            assert!(link.is_symlink(), "{link:?}");
            assert_eq!(read_json(link)["machine"], "single");
        }
        assert!(!file.is_symlink());
        // Two names of one file.
        let both = ["topo", "--machine", "single", "-o", &text_of(&link), "-o", &text_of(&file)];
        let ran = run(&both);
        assert_eq!(ran.code, Some(2), "{ran:?}");
        assert!(ran.stderr.contains("is the same file"), "{ran:?}");
    }
    let (folder, link) = place("round.json");
    symlink("round.json", &link).unwrap();
    let ran = topo(&link);
    assert_eq!(
        (ran.code, std::fs::read_dir(folder.path()).unwrap().count()),
        (Some(2), 1),
        "{ran:?}"
    );
}

#[test]
fn pipes_and_devices_are_written_to() {
    for name in ["report.json", "report.txt", "no-extension"] {
        let (_folder, pipe) = place(name);
        assert!(Command::new("mkfifo").arg(&pipe).status().unwrap().success());
        let mut child = peerscope(&["topo", "--machine", "single", "-o", &text_of(&pipe)]);
        let mut child = child.stdout(Stdio::null()).spawn().unwrap();
        let mut text = String::new();
        std::fs::File::open(&pipe).unwrap().read_to_string(&mut text).unwrap();
        assert_eq!(child.wait().unwrap().code(), Some(0));
        assert_eq!(text.starts_with('{'), !name.ends_with(".txt"), "{name}: {text}");
        assert!(
            text.contains("single") && !std::fs::symlink_metadata(&pipe).unwrap().is_file(),
            "{name}"
        );
    }
    let (folder, _) = place("");
    let here = text_of(folder.path());
    for (script, wanted) in [
        (
            "peerscope topo --machine single --format line -o /dev/stdout | sed 1d | jq -r .machine",
            "single\n",
        ),
        (
            "peerscope topo --machine single -o /dev/fd/3 3>&1 >/dev/null | jq -r .machine",
            "single\n",
        ),
        (
            "peerscope topo --machine single -o >(jq -r .machine >$HERE/o) >/dev/null; sleep 1; cat $HERE/o",
            "single\n",
        ),
        // Output already written to stdout stays, even if stdout is a file.
        (
            "peerscope topo --machine single --format line -o /dev/stdout >$HERE/f; grep -c '^PEER\\|^{' $HERE/f",
            "2\n",
        ),
        (
            "peerscope topo --machine single -o /dev/null -o /dev/null >/dev/null; echo $?; ls -l /dev/null | cut -c1",
            "0\nc\n",
        ),
        ("peerscope topo --machine demo -o /dev/full >/dev/null; echo $?", "2\n"),
        // A reader that closes early changes no verdict.
        ("peerscope topo --machine demo -o >(true) >/dev/null; echo $?", "1\n"),
    ] {
        let ran = shell(&script.replace("$HERE", &here));
        assert_eq!(ran.stdout, wanted, "{script}: {ran:?}");
    }
}

#[test]
fn reports_come_from_standard_input_too() {
    let report = std::fs::read(HARDWARE_REPORT).unwrap();
    let fed = |args: &[&str]| {
        let mut command = peerscope(args);
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut stdin = child.stdin.take().unwrap();
        let report = report.clone();
        let feeder = std::thread::spawn(move || drop(stdin.write_all(&report)));
        let output = crate::common::wait_with_output(child);
        feeder.join().unwrap();
        let text = |bytes| String::from_utf8(bytes).unwrap();
        (output.status.code(), text(output.stdout), text(output.stderr))
    };
    let plain = |text: &str| text.split("\nTime ").next().unwrap().to_owned();
    let named = run(&["diagnose", HARDWARE_REPORT]);
    let (code, stdout, _) = fed(&["diagnose", "-"]);
    assert_eq!((code, plain(&stdout)), (named.code, plain(&named.stdout)));
    for args in [["compare", "-", HARDWARE_REPORT], ["compare", HARDWARE_REPORT, "-"]] {
        assert_eq!(fed(&args).0, Some(0), "{args:?}");
    }
    assert_eq!(fed(&["expect", "-"]).1, run(&["expect", HARDWARE_REPORT]).stdout);
    assert_eq!(fed(&["diagnose", HARDWARE_REPORT, "--baseline", "-"]).0, Some(0));
    for args in [&["compare", "-", "-"][..], &["diagnose", "-", "--baseline", "-"]] {
        let (code, _, stderr) = fed(args);
        assert_eq!(code, Some(2));
        assert!(stderr.contains("only one of the reports"), "{stderr}");
    }
    let empty = run(&["diagnose", "-"]);
    assert_eq!(empty.code, Some(2));
    assert!(empty.stderr.starts_with("peerscope: standard input is empty"), "{empty:?}");
}

#[test]
fn a_machine_is_described_through_a_pipe() {
    let (folder, _) = place("");
    let file = write(folder.path(), "demo.toml", &run(&["machines", "--show", "demo"]).stdout);
    // The first line names the machine.
    let plain = |text: &str| redact(text).lines().skip(1).map(str::to_owned).collect::<Vec<_>>();
    let wanted = run(&check("demo", "quick"));
    for script in [
        format!("peerscope check --profile quick --machine /dev/stdin <{file}"),
        format!("cat {file} | peerscope check --profile quick --machine /dev/stdin"),
        format!("peerscope check --profile quick --machine <(cat {file})"),
        format!("peerscope check --profile quick --machine {file}"),
    ] {
        let ran = shell(&script);
        assert_eq!(ran.code, wanted.code, "{script}: {ran:?}");
        assert_eq!(plain(&ran.stdout), plain(&wanted.stdout), "{script}");
    }
}

#[test]
fn a_toml_error_has_real_line_breaks() {
    let (folder, _) = place("");
    let file = write(folder.path(), "bad.toml", "[severity]\npcie-narrow = \"fa\u{1b}tal\"\n");
    for option in ["--config", "--expect"] {
        let ran = run(&with(check("h200x2", "quick"), &[option, &file]));
        assert_eq!((ran.code, ran.stdout.as_str()), (Some(2), ""), "{ran:?}");
        assert!(
            ran.stderr.starts_with("peerscope: the ")
                && ran.stderr.contains("TOML parse error at line"),
            "{ran:?}"
        );
        assert!(ran.stderr.lines().count() >= 4 && !ran.stderr.contains("\\n"), "{ran:?}");
        assert!(!ran.stderr.contains('\u{1b}'), "{ran:?}");
        assert!(ran.stderr.lines().skip(1).all(|line| line.starts_with("  ")), "{ran:?}");
    }
    // One line stays one line.
    let file = write(folder.path(), "code.toml", "[severity]\n\"no\\nsuch\" = \"off\"\n");
    let ran = run(&["diagnose", HARDWARE_REPORT, "--config", &file]);
    assert!(ran.stderr.contains("severity.no"), "{ran:?}");
}

#[test]
fn a_name_of_a_megabyte_takes_no_time() {
    let (folder, _) = place("");
    let template = run(&["machines", "--show", "demo"]).stdout;
    for unit in ["x", "ab ", "\\u0001"] {
        let name = unit.repeat(1_000_000 / unit.len());
        for (key, from) in
            [("name", "name = \"NVIDIA"), ("summary", "summary = \""), ("slot", "slot = \"")]
        {
            let (before, rest) = template.split_once(from).unwrap_or_else(|| panic!("no {key}"));
            let (_, after) = rest.split_once('"').unwrap();
            let file =
                write(folder.path(), "long.toml", &format!("{before}{key} = \"{name}\"{after}"));
            // What takes time by the square of a name's length does not end before `run` gives up.
            for format in ["text", "html", "markdown", "line", "junit", "prometheus"] {
                let ran = run(&["topo", "--machine", &file, "--format", format]);
                assert_eq!(ran.code, Some(1), "{unit:?}, {key}, {format}: {}", ran.stderr);
            }
        }
    }
    // clap compares an unknown option with every existing one.
    assert_eq!(run(&["check", &format!("--{}", "x".repeat(120_000))]).code, Some(2));
}
