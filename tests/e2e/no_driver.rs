//! Tests on this machine if it has no NVIDIA driver, like most build machines.

use crate::common::{finish, flowing, list, peerscope, run, skipped};

const SENTENCE: &str = "no NVIDIA driver: libnvidia-ml.so.1 was not found; install the driver, or in a container start \
                        it with the NVIDIA runtime";

/// Returns true if the dynamic loader finds the driver, as the binary would.
fn has_driver() -> bool {
    // SAFETY: NVIDIA's library does nothing of note in its initialisers.
    #[allow(unsafe_code, reason = "loading a library runs its code")]
    let found = unsafe { libloading::Library::new("libnvidia-ml.so.1") }.is_ok();
    if found {
        skipped("this machine has an NVIDIA driver; what is said without one was not looked at");
    }
    found
}

#[test]
fn without_a_driver_it_says_so_and_what_to_do() {
    if has_driver() {
        return;
    }
    for command in ["topo", "check"] {
        let text = run(&[command]);
        assert_eq!(text.code, Some(3), "{text:?}");
        assert_eq!(text.stderr, "", "{command}");
        assert!(text.flowing().contains(SENTENCE), "{command}: {text:?}");
        assert!(!text.stdout.contains("SIMULATED"), "{command}");

        let json = run(&[command, "--format", "json"]);
        assert_eq!(json.code, Some(3), "{command}");
        let report = json.json();
        assert_eq!(report["machine"], "live");
        assert_eq!(report["verdict"]["verdict"], "inconclusive");
        assert_eq!(report["snapshot"]["problems"][0], SENTENCE);
        let findings = list(&report["findings"]);
        assert_eq!(findings.len(), 1, "{findings:?}");
        assert_eq!(findings[0]["code"], "nothing-measured");
        let message = findings[0]["message"].as_str().unwrap();
        assert_eq!(message.matches(SENTENCE).count(), 1, "{message}");
        if command == "check" {
            assert_eq!(report["measurements"]["driver"]["failure"], SENTENCE);
        }
    }
}

#[test]
fn gpus_that_cannot_be_there_do_not_hide_why() {
    if has_driver() {
        return;
    }
    let ran = run(&["check", "--gpus", "3"]);
    assert_eq!(ran.code, Some(3), "{ran:?}");
    assert!(ran.flowing().contains(SENTENCE), "{ran:?}");
}

#[test]
fn a_library_that_is_none_is_named() {
    if has_driver() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    for library in ["libnvidia-ml.so.1", "libcuda.so.1"] {
        std::fs::write(folder.path().join(library), "this is no library").unwrap();
    }
    for command in ["topo", "check"] {
        let ran = finish(peerscope(&[command]).env("LD_LIBRARY_PATH", folder.path()));
        assert_eq!(ran.code, Some(3), "{ran:?}");
        assert!(flowing(&ran.stdout).contains("libnvidia-ml.so.1"), "{ran:?}");
    }
}
