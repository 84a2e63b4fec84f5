//! Profiles decide how much is measured. They are files under probes/profiles, built into the binary.

use serde::Deserialize;

use crate::{
    Group, addresses, asynchrony, host, latency, links, live, load, local, overlap, peers,
    pipeline, share,
};
use model::choice::Choice;
use model::choices;
use model::units::Bytes;

/// The amount of each measurement.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Profile {
    /// Purpose of the profile.
    pub summary: String,
    /// Bandwidth between GPUs.
    pub peers: peers::plan::Parameters,
    /// Overlap of copies with kernels.
    pub overlap: overlap::plan::Parameters,
    /// Latency of small copies.
    pub latency: latency::plan::Parameters,
    /// Copies within each GPU.
    pub local: local::plan::Parameters,
    /// Copies between host and GPU.
    pub host: host::plan::Parameters,
    /// Pipelines of copies and kernels.
    pub pipeline: pipeline::plan::Parameters,
    /// Time that calls block the host, launch loops, and data that is read too early.
    #[serde(rename = "async")]
    pub asynchrony: asynchrony::plan::Parameters,
    /// Several flows at once.
    pub load: load::plan::Parameters,
    /// Kernels that talk to each other while they run.
    pub live: live::plan::Parameters,
    /// Each NVLink by itself. Left out if omitted.
    pub links: Option<links::plan::Parameters>,
    /// Addresses all over the memory of each GPU. Left out if omitted.
    pub addresses: Option<addresses::plan::Parameters>,
    /// Memory handed from one process to another. Left out if omitted.
    pub share: Option<share::plan::Parameters>,
}

impl Profile {
    /// Returns the profile for a machine with last-level caches of this size, if known, and so many GPUs.
    #[must_use]
    pub fn beyond_caches(mut self, caches: Option<Bytes>, gpus: usize) -> Self {
        if let Some(caches) = caches {
            self.host.exceed(caches, gpus);
        }
        self
    }

    /// Returns true if this profile measures anything of a probe group.
    pub const fn has(&self, group: Group) -> bool {
        match group {
            Group::Peers => self.peers.rows > 0,
            Group::Host => self.host.rows > 0,
            Group::Overlap => self.overlap.samples > 0,
            Group::Latency => self.latency.samples > 0,
            Group::Pipeline => self.pipeline.samples > 0,
            Group::Async => self.asynchrony.samples > 0,
            Group::Load => self.load.rows > 0,
            Group::Live => self.live.rounds > 0,
            Group::Links => self.links.is_some(),
            Group::Addresses => self.addresses.is_some(),
            Group::Share => self.share.is_some(),
        }
    }
}

choices! {
    /// The name of a profile.
    Name {
        /// Verifies and times every pair, in seconds.
        Quick = "quick",
        /// Also host copies, overlap, latency, several copies at once, both ways.
        Standard = "standard",
        /// Every combination of stream placement, issuer, engine and direction, and every kind of stream.
        Full = "full",
    }
}

impl Profile {
    /// Returns the shortest built-in profile that measures a probe group.
    pub fn with(group: Group) -> Option<Name> {
        let has = |name: &Name| Self::load(*name).is_ok_and(|profile| profile.has(group));
        Name::ALL.iter().copied().find(has)
    }

    /// Returns the built-in profile of this name.
    ///
    /// # Errors
    ///
    /// Fails if the built-in file is invalid, which a test rules out.
    pub fn load(name: Name) -> Result<Self, toml::de::Error> {
        Self::parse(match name {
            Name::Quick => include_str!("../profiles/quick.toml"),
            Name::Standard => include_str!("../profiles/standard.toml"),
            Name::Full => include_str!("../profiles/full.toml"),
        })
    }

    /// Adapts the profile to a group that is requested by name. Any profile then measures the groups `links`,
    /// `addresses` and `share`, which the full profile alone has, and overlap on every kind of stream.
    ///
    /// # Errors
    ///
    /// Fails if the built-in file is invalid, which a test rules out.
    pub fn name(&mut self, group: Group) -> Result<(), toml::de::Error> {
        match group {
            Group::Links => self.links = Self::load(Name::Full)?.links,
            Group::Addresses => self.addresses = Self::load(Name::Full)?.addresses,
            Group::Share => self.share = Self::load(Name::Full)?.share,
            Group::Overlap => self.overlap.every_stream = true,
            Group::Peers
            | Group::Host
            | Group::Latency
            | Group::Pipeline
            | Group::Async
            | Group::Load
            | Group::Live => {}
        }
        Ok(())
    }

    fn parse(text: &str) -> Result<Self, toml::de::Error> {
        toml::from_str(text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_built_in_profile_is_readable() {
        for name in [Name::Quick, Name::Standard, Name::Full] {
            let profile = Profile::load(name).unwrap();
            assert!(profile.peers.rows > 0, "{}", name.name());
        }
    }

    #[test]
    fn a_group_is_measured_by_the_shortest_profile_that_has_it() {
        for (group, name) in [
            (Group::Peers, Name::Quick),
            (Group::Overlap, Name::Standard),
            (Group::Share, Name::Full),
        ] {
            assert_eq!(Profile::with(group), Some(name), "{group:?}");
        }
        for group in Group::ALL {
            assert!(Profile::with(*group).is_some(), "{group:?}");
        }
        let mut quick = Profile::load(Name::Quick).unwrap();
        quick.name(Group::Share).unwrap();
        assert!(quick.has(Group::Share), "by name, any profile has it");
    }

    #[test]
    #[ignore = "scripts/fuzz runs it"]
    fn fuzz_profiles() {
        let strategy = (0..3_usize, fuzz::edits(5));
        fuzz::run("profile", 4.0, &strategy, |(base, edits)| {
            let base = [
                include_str!("../profiles/quick.toml"),
                include_str!("../profiles/standard.toml"),
                include_str!("../profiles/full.toml"),
            ][base];
            let text = fuzz::edited(base.as_bytes(), &edits);
            match Profile::parse(&String::from_utf8_lossy(&text)) {
                Ok(profile) => {
                    let groups =
                        Group::ALL.iter().map(|group| profile.has(*group)).collect::<Vec<_>>();
                    if groups[0] == (profile.peers.rows > 0) {
                        Ok(())
                    } else {
                        Err(format!("{profile:?}"))
                    }
                }
                Err(error) => fuzz::assert_is_sentence(&error.to_string()),
            }
        });
    }

    #[test]
    fn an_unknown_key_is_named() {
        let error =
            toml::from_str::<Profile>("summary = ''\nwarmup = 3\n").unwrap_err().to_string();
        assert!(error.contains("warmup"), "{error}");
    }
}
