//! Detects a container around this process, by the traces that programs leave when they start containers. A container
//! sees all functions of its host in /sys, and may have the device files of some GPUs only.

use std::fs;

use super::Sysfs;
use super::read::{io_unknown, odd, text};
use model::reading::Reading;

/// Files that only containers have: Docker's, Podman's, systemd's, Kubernetes' and Apptainer's.
const FILES: [&str; 6] = [
    ".dockerenv",
    "run/.containerenv",
    "run/systemd/container",
    "run/secrets/kubernetes.io",
    "var/run/secrets/kubernetes.io",
    ".singularity.d",
];

/// The first PID namespace, that of the host: `PROC_PID_INIT_INO` in the kernel's include/linux/proc_ns.h.
const HOST_NAMESPACE: &str = "pid:[4026531836]";

impl Sysfs {
    /// Returns true if this process runs in a container. Without any of the signs, returns false only if the process
    /// shares its PID namespace with the host.
    pub(crate) fn container(&self) -> Reading<bool> {
        let has_file = FILES.iter().any(|file| self.root.join(file).exists());
        // The first process shows the signs if it is the container's own.
        let processes = ["1", "self"].map(|process| self.proc.join(process));
        let in_group = processes.iter().any(|process| {
            text(&process.join("cgroup")).is_ok_and(|groups| any_of_a_container(&groups))
        });
        let named = processes.iter().any(|process| {
            text(&process.join("environ")).is_ok_and(|variables| names_a_container(&variables))
        });
        if has_file || in_group || named {
            return Reading::Known(true);
        }
        let namespace =
            fs::read_link(self.proc.join("self/ns/pid")).map_err(|error| io_unknown(&error));
        namespace
            .and_then(|name| match name.to_str() {
                Some(name) if name.starts_with("pid:[") => Ok(name != HOST_NAMESPACE),
                name => Err(odd(name.unwrap_or_default())),
            })
            .into()
    }
}

/// Returns true if one of these control groups, in the format of /proc, is one that programs make for containers.
fn any_of_a_container(groups: &str) -> bool {
    let folders = groups
        .lines()
        .filter_map(|line| line.splitn(3, ':').nth(2))
        .flat_map(|path| path.split('/'));
    let begins = ["kubepods", "libpod-", "cri-containerd-", "crio-", "lxc.payload"];
    let is_one = |folder: &str| {
        ["docker", "lxc"].contains(&folder)
            // The program's own service, `docker.service`, is not a container.
            || (folder.starts_with("docker-") && folder.ends_with(".scope"))
            || begins.iter().any(|begin| folder.starts_with(begin))
    };
    folders.into_iter().any(is_one)
}

/// Returns true if the variable `container` is set, by which systemd, Podman and LXC name themselves.
fn names_a_container(variables: &str) -> bool {
    variables
        .split('\0')
        .any(|variable| variable.strip_prefix("container=").is_some_and(|name| !name.is_empty()))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::super::fixture::Fixture;
    use super::*;
    use model::reading::Unknown;

    fn in_namespace(name: &str) -> Fixture {
        let machine = Fixture::new();
        machine.proc("self/ns/net", "");
        symlink(name, machine.root().join("proc/self/ns/pid")).unwrap();
        machine
    }

    #[test]
    fn a_host_is_known_by_the_first_namespace_and_the_lack_of_signs() {
        let host = in_namespace(HOST_NAMESPACE);
        host.proc("1/cgroup", "0::/init.scope\n");
        host.proc(
            "self/cgroup",
            "12:devices:/system.slice/docker.service\n0::/user.slice/docker-check.service\n",
        );
        host.proc("self/environ", "HOME=/root\0container_name=x\0container=\0");
        assert_eq!(host.sysfs().container(), Reading::Known(false));
        assert_eq!(in_namespace("pid:[4026532201]").sysfs().container(), Reading::Known(true));
        assert_eq!(Fixture::new().sysfs().container(), Reading::unsupported(), "no such kernel");
        assert!(matches!(
            in_namespace("nonsense").sysfs().container(),
            Reading::Unknown(Unknown::Failed(_))
        ));
    }

    #[test]
    fn each_sign_of_a_container_is_enough() {
        for groups in [
            "11:devices:/docker/0123abcd\n",
            "0::/system.slice/docker-0123abcd.scope\n",
            "0::/kubepods.slice/kubepods-burstable.slice/cri-containerd-01.scope\n",
            "0::/machine.slice/libpod-01.scope\n",
            "0::/lxc.payload.node/init.scope\n",
        ] {
            for process in ["1", "self"] {
                let machine = in_namespace(HOST_NAMESPACE);
                machine.proc(&format!("{process}/cgroup"), groups);
                assert_eq!(machine.sysfs().container(), Reading::Known(true), "{groups}");
            }
        }
        for file in FILES {
            let machine = in_namespace(HOST_NAMESPACE);
            machine.file(file);
            assert_eq!(machine.sysfs().container(), Reading::Known(true), "{file}");
        }
        let machine = Fixture::new();
        machine.proc("self/environ", "PATH=/bin\0container=podman\0");
        assert_eq!(machine.sysfs().container(), Reading::Known(true));
    }
}
