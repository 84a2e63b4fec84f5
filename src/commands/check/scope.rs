//! The scope of a check: its profile and its probe groups.

use std::collections::BTreeSet;

use super::super::Failure;
use crate::cli::CheckArgs;
use model::choice::Choice;
use model::request::Request;
use probes::Group;
use probes::plan::Profile;

/// The requested measurements.
pub(super) struct Scope {
    pub profile: Profile,
    pub groups: BTreeSet<Group>,
}

impl Scope {
    /// Loads the profile and applies `--only` and `--skip`.
    ///
    /// # Errors
    ///
    /// The profile is broken, or does not have a group that was requested by name.
    pub(super) fn new(args: &CheckArgs) -> Result<Self, Failure> {
        let mut profile = Profile::load(args.profile)?;
        for group in &args.only {
            profile.name(*group)?;
        }
        profile.addresses.iter_mut().for_each(|of| of.limited = args.memory.is_some());
        let groups = groups(args, &profile)?;
        if let Some(bytes) = args.overlap_bytes {
            let most = args.buffers();
            if bytes > most {
                return Err(format!("--overlap-bytes {bytes}: more than --memory {most}").into());
            }
            profile.overlap.bytes = bytes;
        }
        Ok(Self { profile, groups })
    }

    /// Returns true if a round of this scope can be traced for a timeline.
    pub(super) fn has_timeline(&self) -> bool {
        self.groups.iter().any(|group| self.profile.has(*group) && group.has_timeline())
    }

    /// Adds the probe groups of this run to a request.
    pub(super) fn requested(&self, request: Request, args: &CheckArgs) -> Request {
        let names = |groups: &[Group]| groups.iter().map(|group| group.name().to_owned()).collect();
        let left_out = Group::ALL
            .iter()
            .copied()
            .filter(|group| self.profile.has(*group))
            .filter(|group| !self.groups.contains(group));
        Request {
            only: names(&args.only),
            skip: names(&args.skip),
            probes_left_out: left_out.map(|group| group.name().to_owned()).collect(),
            ..request
        }
    }
}

/// Returns the requested probe groups.
///
/// # Errors
///
/// The profile does not contain a group that was requested by name.
fn groups(args: &CheckArgs, profile: &Profile) -> Result<BTreeSet<Group>, String> {
    let name = args.profile.name();
    if let Some(missing) = args.only.iter().find(|&&group| !profile.has(group)) {
        let choose = Profile::with(*missing).map_or("full", Choice::name);
        let group = missing.name();
        return Err(format!(
            "--only {group}: profile {name} does not measure that; choose --profile {choose}"
        ));
    }
    if !args.skip.is_empty() && !args.skip.iter().any(|&group| profile.has(group)) {
        return Err(format!("--skip: profile {name} measures none of these probe groups anyway"));
    }
    let only = |group: &Group| args.only.is_empty() || args.only.contains(group);
    let groups: BTreeSet<_> = Group::ALL
        .iter()
        .copied()
        .filter(only)
        .filter(|group| !args.skip.contains(group))
        .collect();
    if args.overlap_bytes.is_some()
        && !(groups.contains(&Group::Overlap) && profile.has(Group::Overlap))
    {
        return Err(format!(
            "--overlap-bytes: profile {name} with these probe groups does not measure overlap"
        ));
    }
    Ok(groups)
}
