//! The facts that explain why a way to share memory was refused.

use super::Refusal;
use hardware::ErrorKind;
use model::measurement::{Obstacle, Rung};

/// EPERM and ENOSYS.
const NOT_PERMITTED: u32 = 1;
const NO_SUCH_CALL: u32 = 38;

/// Returns the facts that explain a refusal.
pub(super) fn obstacles(rung: Rung, bytes: u64, refusal: &Refusal) -> Vec<Obstacle> {
    let Refusal { at_owner, error, facts } = refusal;
    let holds = |fact: Option<bool>, obstacle| (fact == Some(true)).then_some(obstacle);
    let in_the_way = |obstacles: Vec<Option<Obstacle>>| obstacles.into_iter().flatten().collect();
    match error.kind {
        ErrorKind::Impossible => return vec![Obstacle::NotOffered],
        ErrorKind::Unsupported if error.code.is_none() => return vec![Obstacle::DriverTooOld],
        // Without a channel, no limit of files would change the answer.
        _ if rung == Rung::Fabric && facts.imex_channels == Some(0) => {
            return vec![Obstacle::NoImexChannel];
        }
        _ if facts.no_file_left == Some(true) => return vec![Obstacle::OpenFiles],
        _ => {}
    }
    let confined = || {
        vec![
            holds(facts.wsl, Obstacle::Wsl),
            holds(facts.own_ipc_namespace, Obstacle::IpcNamespace),
            holds(facts.seccomp_filter, Obstacle::Seccomp),
        ]
    };
    match rung {
        Rung::Fabric => Vec::new(),
        Rung::SharedMemory if *at_owner => {
            let full = facts.shared_memory_bytes.is_some_and(|free| free < bytes);
            in_the_way(vec![match facts.shared_memory {
                Some(false) => Some(Obstacle::NoSharedMemory),
                _ => full.then_some(Obstacle::SharedMemoryFull),
            }])
        }
        Rung::SharedMemory => Vec::new(),
        Rung::Pidfd if !at_owner && error.code == Some(NOT_PERMITTED) => in_the_way(vec![
            facts.ptrace_scope.filter(|scope| *scope > 0).map(|_| Obstacle::Yama),
            holds(facts.seccomp_filter, Obstacle::Seccomp),
        ]),
        Rung::Pidfd if !at_owner && error.code == Some(NO_SUCH_CALL) => {
            vec![if facts.seccomp_filter == Some(true) {
                Obstacle::Seccomp
            } else {
                Obstacle::KernelTooOld
            }]
        }
        Rung::HostNode => in_the_way(vec![
            (facts.numa_policy == Some(false)).then_some(Obstacle::NumaRefused),
            holds(facts.seccomp_filter, Obstacle::Seccomp),
        ]),
        Rung::LegacyMemory | Rung::LegacyEvent | Rung::Descriptor | Rung::Pidfd => {
            in_the_way(confined())
        }
    }
}

/// Returns true if the platform does not have this way, so that there is nothing to mend.
pub(super) fn is_lack(rung: Rung, obstacles: &[Obstacle]) -> bool {
    obstacles.iter().any(|obstacle| match obstacle {
        Obstacle::NotOffered
        | Obstacle::DriverTooOld
        | Obstacle::NoImexChannel
        | Obstacle::KernelTooOld => true,
        // NVIDIA, CUDA on WSL user guide: known limitations.
        Obstacle::Wsl => matches!(rung, Rung::LegacyMemory | Rung::LegacyEvent),
        _ => false,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use hardware::{HardwareError, SharingFacts};

    fn refusal(at_owner: bool, code: Option<u32>, facts: SharingFacts) -> Refusal {
        let error = HardwareError::new(ErrorKind::Other, "refused");
        Refusal { at_owner, error: code.map_or(error.clone(), |code| error.with_code(code)), facts }
    }

    #[test]
    fn a_refusal_is_explained_by_facts_that_were_read_and_by_nothing_else() {
        let known = |rung, refusal: &Refusal| obstacles(rung, 4 << 20, refusal);
        let free = SharingFacts {
            own_ipc_namespace: Some(false),
            seccomp_filter: Some(false),
            ptrace_scope: Some(0),
            imex_channels: Some(2),
            shared_memory_bytes: Some(1 << 30),
            shared_memory: Some(true),
            numa_policy: Some(true),
            no_file_left: Some(false),
            wsl: Some(false),
        };
        for rung in Rung::ALL {
            for at_owner in [true, false] {
                for facts in [free.clone(), SharingFacts::default()] {
                    let none = known(rung, &refusal(at_owner, Some(1), facts));
                    assert_eq!(none, [], "{rung}");
                }
            }
        }
        let with = |change: fn(&mut SharingFacts)| {
            let mut facts = free.clone();
            change(&mut facts);
            facts
        };
        let yama = with(|facts| facts.ptrace_scope = Some(1));
        assert_eq!(known(Rung::Pidfd, &refusal(false, Some(1), yama.clone())), [Obstacle::Yama]);
        assert_eq!(known(Rung::Pidfd, &refusal(false, Some(22), yama.clone())), []);
        assert_eq!(known(Rung::Descriptor, &refusal(false, Some(1), yama)), []);
        assert_eq!(
            known(Rung::Pidfd, &refusal(false, Some(38), free.clone())),
            [Obstacle::KernelTooOld]
        );
        let channels = with(|facts| facts.imex_channels = Some(0));
        assert_eq!(
            known(Rung::Fabric, &refusal(true, Some(800), channels)),
            [Obstacle::NoImexChannel]
        );
        let full = with(|facts| facts.shared_memory_bytes = Some((4 << 20) - 1));
        assert_eq!(
            known(Rung::SharedMemory, &refusal(true, Some(28), full)),
            [Obstacle::SharedMemoryFull]
        );
        let container = with(|facts| {
            (facts.own_ipc_namespace, facts.seccomp_filter) = (Some(true), Some(true));
        });
        assert_eq!(
            known(Rung::LegacyMemory, &refusal(false, Some(201), container)),
            [Obstacle::IpcNamespace, Obstacle::Seccomp]
        );
        let files = with(|facts| facts.no_file_left = Some(true));
        assert_eq!(known(Rung::Descriptor, &refusal(false, Some(2), files)), [Obstacle::OpenFiles]);
    }
}
