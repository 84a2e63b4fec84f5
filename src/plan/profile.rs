//! Profiles: how much is measured. They are files under probes/profiles, built into the binary.

use super::Profile;

/// A profile's name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Name {
    /// Every pair verified and measured in all eight placements.
    Quick,
    /// Quick, and overlap, latency, kernel copies, both ways, the staged path.
    Standard,
    /// Every combination of placement, issuer, engine and direction.
    Full,
}

impl Name {
    /// The name as it is written.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Quick => "quick",
            Self::Standard => "standard",
            Self::Full => "full",
        }
    }
}

impl Profile {
    /// The built-in profile of this name.
    ///
    /// # Errors
    ///
    /// The built-in file is wrong, which a test rules out.
    pub fn load(name: Name) -> Result<Self, String> {
        let text = match name {
            Name::Quick => include_str!("../../probes/profiles/quick.toml"),
            Name::Standard => include_str!("../../probes/profiles/standard.toml"),
            Name::Full => include_str!("../../probes/profiles/full.toml"),
        };
        Self::parse(text).map_err(|error| format!("built-in profile {}: {error}", name.as_str()))
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
            assert!(profile.peers.rows > 0, "{}", name.as_str());
        }
    }

    #[test]
    fn fuzz_profiles() {
        let strategy = (0..3_usize, crate::fuzz::edits(5));
        crate::fuzz::run("profile", 4.0, &strategy, |(base, edits)| {
            let base = [
                include_str!("../../probes/profiles/quick.toml"),
                include_str!("../../probes/profiles/standard.toml"),
                include_str!("../../probes/profiles/full.toml"),
            ][base];
            let text = crate::fuzz::edited(base.as_bytes(), &edits);
            match Profile::parse(&String::from_utf8_lossy(&text)) {
                Ok(profile) => {
                    let groups = super::super::Group::ALL.map(|group| profile.has(group));
                    if groups[0] == (profile.peers.rows > 0) { Ok(()) } else { Err(format!("{profile:?}")) }
                }
                Err(error) => crate::fuzz::assert_is_sentence(&error.to_string()),
            }
        });
    }

    #[test]
    fn an_unknown_key_is_named() {
        let error = toml::from_str::<Profile>("summary = ''\nwarmup = 3\n").unwrap_err().to_string();
        assert!(error.contains("warmup"), "{error}");
    }
}
