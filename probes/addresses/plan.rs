//! Plans of addresses all over the memory of GPUs.

use std::collections::BTreeSet;

use serde::Deserialize;

use crate::plan::slot::Slot;
use crate::{Group, Request, Round, Task};
use model::flow::Setup;
use model::placement::{Engine, Pair};
use model::units::Bytes;

/// Addresses all over the memory of each GPU.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Parameters {
    /// True if the user limits the memory.
    #[serde(skip)]
    pub limited: bool,
}

/// Plans a round for each GPU and each class of link by which others reach its memory, with the next GPU of that class: all
/// that use a link of one kind pass one window, and each GPU reaches another one.
pub(crate) fn rounds(request: &Request<'_>) -> Vec<Slot> {
    if !request.groups.contains(&Group::Addresses)
        || request.profile.addresses.as_ref().is_none_or(|asked| asked.limited)
    {
        return Vec::new();
    }
    let setup = Setup { engine: Engine::Kernel, ..Setup::REFERENCE.with_bytes(Bytes(0)) };
    let mut planned = Vec::new();
    for (place, owner) in request.gpus.iter().enumerate() {
        let (before, after) = request.gpus.split_at(place);
        let mut classes = BTreeSet::new();
        for peer in after.iter().chain(before) {
            let pair = Pair { source: *peer, destination: *owner };
            let class = request.topology.route(pair).map(|route| route.class);
            if request.driver.is_direct(pair) && classes.insert(class) {
                // Data flow both ways: neither is tried where copies have hung.
                let flows = vec![pair.into(), pair.reversed().into()];
                planned.push(Slot::one(Task::new(setup, super::Addresses {}), flows));
            }
        }
    }
    planned
}

/// Describes, in a sentence, why no address is tried although it was asked for.
pub fn addresses_left_out(request: &Request<'_>, rounds: &[Round]) -> Option<String> {
    let is_asked = request.groups.contains(&Group::Addresses);
    let Parameters { limited } = request.profile.addresses.as_ref().filter(|_| is_asked)?;
    let is_named = request.groups.len() == 1 && request.gpus.len() > 1;
    let why = match limited {
        true => "--memory limits what it may take",
        false if is_named && !rounds.iter().any(Round::is_of_addresses) => {
            "no GPU reaches another's"
        }
        false => return None,
    };
    Some(format!("addresses all over the memory of each GPU are not tried: {why}"))
}
