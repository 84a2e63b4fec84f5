//! The facts that explain why a way to share memory was refused.

use crate::share::run::Refusal;
use hardware::ErrorKind;
use model::measurement::{Obstacle, Rung};

/// Returns the facts that explain a refusal.
pub(crate) fn obstacles(rung: Rung, bytes: u64, refusal: &Refusal) -> Vec<Obstacle> {
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
pub(crate) fn is_lack(rung: Rung, obstacles: &[Obstacle]) -> bool {
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
            shared_memory_bytes: Some(1 << 30),
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
