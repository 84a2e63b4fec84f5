//! Plans of single NVLinks.

use serde::Deserialize;

use crate::plan::slot::Slot;
use crate::{Group, Request, Task};
use model::flow::Setup;
use model::placement::{Engine, Pair};
use model::topology::LinkClass;
use model::units::Bytes;

/// Each NVLink by itself.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Parameters {
    /// Most samples of a rate.
    pub samples: u32,
}

/// Plans a round of each of these pairs that NVLinks connect, one after the other: the counters of a GPU have one reader.
pub(crate) fn rounds(request: &Request<'_>, pairs: &[Pair]) -> Vec<Slot> {
    let Some(Parameters { samples }) = request.profile.links else { return Vec::new() };
    if !request.groups.contains(&Group::Links) {
        return Vec::new();
    }
    let setup = Setup { engine: Engine::Kernel, ..Setup::REFERENCE.with_bytes(Bytes(0)) };
    let has_links = |pair: &&Pair| {
        let route = request.topology.route(**pair);
        request.driver.is_direct(**pair)
            && route.is_some_and(|route| matches!(route.class, LinkClass::NvLink(_)))
    };
    let slot =
        |pair: &Pair| Slot::one(Task::new(setup, super::Links { samples }), vec![(*pair).into()]);
    pairs.iter().filter(has_links).map(slot).collect()
}
