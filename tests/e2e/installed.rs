//! Tests of files that packages install beside the program: the shells load the completions, and groff the manual
//! pages.

use std::process::Command;

use crate::common::{finish, is_there, peerscope, place, run, skipped_for_want_of, write};

#[test]
fn bash_completes_commands_and_options() {
    let script = run(&["completions", "bash"]);
    assert_eq!(script.code, Some(0), "{script:?}");
    let (folder, _) = place("");
    let file = write(folder.path(), "peerscope.bash", &script.stdout);
    for (words, wanted) in [
        (&["peerscope", "ch"][..], "check"),
        (&["peerscope", "check", "--prof"], "--profile"),
        (&["peerscope", "check", "--profile", "st"], "standard"),
        (&["peerscope", "topo", "--format", "ju"], "junit"),
    ] {
        let line = format!(
            ". {file}; COMP_WORDS=({}); COMP_CWORD={}; _peerscope peerscope {} {}; printf '%s\\n' \"${{COMPREPLY[@]}}\"",
            words.join(" "),
            words.len() - 1,
            words[words.len() - 1],
            words[words.len() - 2],
        );
        let ran = finish(Command::new("bash").args(["-c", &line]));
        assert!(ran.stdout.lines().any(|line| line == wanted), "{words:?}: {ran:?}");
    }
    assert!(!script.stdout.contains("worker"), "the worker is nobody's command");
}

#[test]
fn zsh_and_fish_take_theirs() {
    for (shell, check) in [("zsh", "-n"), ("fish", "--no-execute")] {
        let script = run(&["completions", shell]);
        assert_eq!(script.code, Some(0), "{script:?}");
        assert!(
            script.stdout.contains("check") && !script.stdout.contains("worker"),
            "{}",
            script.stdout
        );
        if !is_there(shell) {
            skipped_for_want_of(shell);
            continue;
        }
        let (folder, _) = place("");
        let file = write(folder.path(), "completions", &script.stdout);
        let ran = finish(Command::new(shell).args([check, &file]));
        assert_eq!((ran.code, ran.stderr.as_str()), (Some(0), ""), "{ran:?}");
    }
}

#[test]
fn manual_pages_are_ones_that_groff_takes() {
    let (folder, _) = place("");
    let ran = finish(peerscope(&["manual"]).arg(folder.path()));
    assert_eq!(ran.code, Some(0), "{ran:?}");
    let mut pages: Vec<_> =
        std::fs::read_dir(folder.path()).unwrap().map(|entry| entry.unwrap().path()).collect();
    pages.sort();
    let names: Vec<_> =
        pages.iter().map(|page| page.file_name().unwrap().to_str().unwrap()).collect();
    for name in ["peerscope.1", "peerscope-check.1", "peerscope-fleet.1"] {
        assert!(names.contains(&name), "{names:?}");
    }
    assert!(!names.iter().any(|name| name.contains("worker")), "{names:?}");
    let nowhere = run(&["manual", "/nowhere/at/all"]);
    assert_eq!(nowhere.code, Some(2), "{nowhere:?}");
    if !is_there("groff") {
        return skipped_for_want_of("groff (Debian: groff-base)");
    }
    for page in pages {
        let ran = finish(Command::new("groff").args(["-man", "-ww", "-z", "-Kutf8"]).arg(&page));
        assert_eq!((ran.code, ran.stderr.as_str()), (Some(0), ""), "{}: {ran:?}", page.display());
    }
}
