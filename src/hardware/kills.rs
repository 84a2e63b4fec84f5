//! Detects if the kernel ended a process for want of memory, from its counters, and from its log if that may be read.

use std::path::{Path, PathBuf};

use super::{kernel_log, root};

/// Processes that the kernel had ended for want of memory at some time.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Kills {
    /// In the control group of this process.
    group: Option<u64>,
    /// On the whole machine.
    machine: Option<u64>,
}

impl Kills {
    pub fn now() -> Self {
        Self::at(&root())
    }

    /// Returns the reason why the kernel ended this process since then; `None` if it did not, or does not report it.
    pub fn why(self, process: u32) -> Option<String> {
        self.why_at(&root(), process)
    }

    fn at(root: &Path) -> Self {
        Self {
            group: group_file(root).and_then(|file| counter(&file)),
            machine: counter(&root.join("proc/vmstat")),
        }
    }

    fn why_at(self, root: &Path, process: u32) -> Option<String> {
        let now = Self::at(root);
        let rose = |before: Option<u64>, now: Option<u64>| {
            before.zip(now).is_some_and(|(before, now)| now > before)
        };
        let what = if rose(self.group, now.group) {
            "the kernel ended a process of its control group, which ran out of memory"
        } else if rose(self.machine, now.machine) {
            "the kernel ended a process, since the machine ran out of memory"
        } else {
            return None;
        };
        let logged = logged(&root.join("dev/kmsg"), process)
            .map(|line| format!(" ({line})"))
            .unwrap_or_default();
        Some(format!("{what}{logged}"))
    }
}

/// Returns the number after `oom_kill` in a file of counters.
fn counter(file: &Path) -> Option<u64> {
    let text = std::fs::read_to_string(file).ok()?;
    text.lines().find_map(|line| line.strip_prefix("oom_kill ")?.trim().parse().ok())
}

/// Returns the file with the counters of this process's memory control group, of either cgroup version. In a container
/// the group's own path may not exist; then the root is the group's.
fn group_file(root: &Path) -> Option<PathBuf> {
    let groups = std::fs::read_to_string(root.join("proc/self/cgroup")).ok()?;
    let files = groups.lines().filter_map(|line| {
        let (controllers, path) = line.split_once(':')?.1.split_once(':')?;
        let (folder, file) = match controllers {
            "" => ("sys/fs/cgroup", "memory.events"),
            _ if controllers.split(',').any(|one| one == "memory") => {
                ("sys/fs/cgroup/memory", "memory.oom_control")
            }
            _ => return None,
        };
        let folder = root.join(folder);
        Some([folder.join(path.trim_start_matches('/')).join(file), folder.join(file)])
    });
    files.flatten().find(|file| file.is_file())
}

/// Returns the line of the kernel's log about the end of a process. Only root may read it on most machines.
fn logged(log: &Path, process: u32) -> Option<String> {
    let text = kernel_log::read(log).ok()?;
    let wanted = format!("Killed process {process} ");
    let line = text.lines().rev().find(|line| line.contains(&wanted))?;
    // Priority, number and time precede the message.
    let message = line.split_once(';').map_or(line, |(_, message)| message);
    Some(message.chars().take(160).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn machine(files: &[(&str, &str)]) -> tempfile::TempDir {
        let root = tempfile::tempdir().unwrap();
        for (file, text) in files {
            let file = root.path().join(file);
            std::fs::create_dir_all(file.parent().unwrap()).unwrap();
            std::fs::write(file, text).unwrap();
        }
        root
    }

    fn write(root: &tempfile::TempDir, file: &str, text: &str) {
        std::fs::write(root.path().join(file), text).unwrap();
    }

    #[test]
    fn a_group_that_ran_out_is_reported_with_what_the_log_says() {
        let events = "sys/fs/cgroup/system.slice/check.service/memory.events";
        let root = machine(&[
            ("proc/self/cgroup", "0::/system.slice/check.service\n"),
            (events, "low 0\nhigh 0\nmax 12\noom 1\noom_kill 3\noom_group_kill 0\n"),
            ("proc/vmstat", "nr_free_pages 1\noom_kill 70\n"),
        ]);
        let before = Kills::at(root.path());
        assert_eq!(before, Kills { group: Some(3), machine: Some(70) });
        assert_eq!(before.why_at(root.path(), 4711), None, "somebody else killed it");
        write(&root, events, "oom 2\noom_kill 4\n");
        write(&root, "proc/vmstat", "oom_kill 71\n");
        let why = before.why_at(root.path(), 4711).unwrap();
        assert_eq!(why, "the kernel ended a process of its control group, which ran out of memory");
        std::fs::create_dir(root.path().join("dev")).unwrap();
        let log = "6,1,2,-;Memory cgroup out of memory: Killed process 471 (other)\n\
                   3,9,8,-;Memory cgroup out of memory: Killed process 4711 (peerscope) total-vm:9kB\n";
        write(&root, "dev/kmsg", log);
        let why = before.why_at(root.path(), 4711).unwrap();
        assert!(
            why.ends_with(
                "(Memory cgroup out of memory: Killed process 4711 (peerscope) total-vm:9kB)"
            ),
            "{why}"
        );
    }

    #[test]
    fn older_groups_containers_and_machines_without_any_are_read_as_well() {
        let older = machine(&[
            ("proc/self/cgroup", "9:name=systemd:/\n4:cpu,memory:/job/7\n0::/\n"),
            (
                "sys/fs/cgroup/memory/job/7/memory.oom_control",
                "oom_kill_disable 0\nunder_oom 0\noom_kill 2\n",
            ),
        ]);
        assert_eq!(Kills::at(older.path()), Kills { group: Some(2), machine: None });
        let container = machine(&[
            ("proc/self/cgroup", "0::/kubepods/pod1/abc\n"),
            ("sys/fs/cgroup/memory.events", "oom_kill 5\n"),
        ]);
        assert_eq!(Kills::at(container.path()).group, Some(5));
        let none = machine(&[("proc/vmstat", "oom_kill 1\n")]);
        let before = Kills::at(none.path());
        assert_eq!(before.group, None);
        write(&none, "proc/vmstat", "oom_kill 2\n");
        assert!(before.why_at(none.path(), 1).unwrap().contains("the machine ran out of memory"));
        // Missing counters prove nothing.
        assert_eq!(Kills::default().why_at(none.path(), 1), None);
    }
}
