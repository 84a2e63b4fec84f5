//! The facts that explain why a way to share memory was refused.

use super::Refusal;
use hardware::ErrorKind;
use model::measurement::{Obstacle, Rung};

/// Returns the facts that explain a refusal.
pub(super) fn obstacles(rung: Rung, bytes: u64, refusal: &Refusal) -> Vec<Obstacle> {
    let Refusal { at_owner, error, facts } = refusal;
    let holds = |fact: Option<bool>, obstacle| (fact == Some(true)).then_some(obstacle);
    let in_the_way = |obstacles: Vec<Option<Obstacle>>| obstacles.into_iter().flatten().collect();
    match error.kind {
        ErrorKind::Impossible => return vec![Obstacle::NotOffered],
        ErrorKind::Unsupported if error.code.is_none() => return vec![Obstacle::DriverTooOld],
        _ if facts.no_file_left == Some(true) => return vec![Obstacle::OpenFiles],
        _ => {}
    }
    match rung {
        Rung::SharedMemory => {
            let full = facts.shared_memory_bytes.is_some_and(|free| free < bytes);
            in_the_way(vec![(*at_owner && full).then_some(Obstacle::SharedMemoryFull)])
        }
        Rung::LegacyMemory | Rung::Descriptor => in_the_way(vec![
            holds(facts.wsl, Obstacle::Wsl),
            holds(facts.own_ipc_namespace, Obstacle::IpcNamespace),
            holds(facts.seccomp_filter, Obstacle::Seccomp),
        ]),
    }
}

/// Returns true if the platform does not have this way, so that there is nothing to mend.
pub(super) fn is_lack(rung: Rung, obstacles: &[Obstacle]) -> bool {
    obstacles.iter().any(|obstacle| match obstacle {
        Obstacle::NotOffered | Obstacle::DriverTooOld => true,
        // NVIDIA, CUDA on WSL user guide: known limitations.
        Obstacle::Wsl => rung == Rung::LegacyMemory,
        _ => false,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use hardware::{HardwareError, SharingFacts};

    #[test]
    fn a_refusal_is_explained_by_facts_that_were_read_and_by_nothing_else() {
        let error = HardwareError::new(ErrorKind::Other, "refused").with_code(1);
        let known = |rung, facts: SharingFacts| {
            obstacles(rung, 4 << 20, &Refusal { at_owner: true, error: error.clone(), facts })
        };
        let (no, yes) = (Some(false), Some(true));
        let free = || SharingFacts {
            own_ipc_namespace: no,
            seccomp_filter: no,
            shared_memory_bytes: Some(1 << 30),
            no_file_left: no,
            wsl: no,
        };
        for rung in Rung::ALL {
            assert_eq!(known(rung, free()), [], "{rung}");
            assert_eq!(known(rung, SharingFacts::default()), [], "{rung}");
        }
        let full = SharingFacts { shared_memory_bytes: Some((4 << 20) - 1), ..free() };
        assert_eq!(known(Rung::SharedMemory, full), [Obstacle::SharedMemoryFull]);
        let container = SharingFacts { own_ipc_namespace: yes, seccomp_filter: yes, ..free() };
        let both = [Obstacle::IpcNamespace, Obstacle::Seccomp];
        assert_eq!(known(Rung::LegacyMemory, container), both);
        let files = SharingFacts { no_file_left: yes, ..free() };
        assert_eq!(known(Rung::Descriptor, files), [Obstacle::OpenFiles]);
    }
}
