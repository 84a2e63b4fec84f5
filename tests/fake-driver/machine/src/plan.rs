//! Planned faults, as text: `cuMemcpyPeerAsync@3=code:719; nvmlDeviceGetName=hang`.
//!
//! Semicolons separate the entries. An entry consists of a function, `@` and the number of the call, counted from 1 in
//! every process, and the action at that call. Without a number it is the first call. `@3` happens once, in the first
//! process that gets there. `@3+` happens at the third call and every later one, in every process. The action is one of
//!
//! - `code:N`: the call does nothing and returns this code;
//! - `hang`: the call never returns;
//! - `abort`: the process ends as by a crash;
//! - `skip`: the call does nothing and reports success.

use std::str::FromStr;

/// The action instead of the call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Action {
    /// Returns this code.
    Code(u32),
    /// Never returns.
    Hang,
    /// Ends the process.
    Abort,
    /// Reports success.
    Skip,
}

/// One fault.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// The function's name.
    pub function: String,
    /// The number of the call, from 1.
    pub call: u64,
    /// True if every later call goes wrong too.
    pub lasting: bool,
    pub action: Action,
}

/// Reads a plan.
///
/// # Errors
///
/// The entry that cannot be read.
pub fn parse(text: &str) -> Result<Vec<Entry>, String> {
    text.split(';').map(str::trim).filter(|entry| !entry.is_empty()).map(str::parse).collect()
}

impl FromStr for Entry {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let odd = || format!("'{text}' is no fault such as cuMemcpyPeerAsync@3=code:719");
        let (place, action) = text.split_once('=').ok_or_else(odd)?;
        let (function, call) = place.split_once('@').unwrap_or((place, "1"));
        let (call, lasting) = call.strip_suffix('+').map_or((call, false), |call| (call, true));
        let action = match action.trim().split_once(':') {
            Some(("code", code)) => Action::Code(code.parse().map_err(|_| odd())?),
            None if action.trim() == "hang" => Action::Hang,
            None if action.trim() == "abort" => Action::Abort,
            None if action.trim() == "skip" => Action::Skip,
            _ => return Err(odd()),
        };
        Ok(Self {
            function: function.trim().to_owned(),
            call: call.parse().map_err(|_| odd())?,
            lasting,
            action,
        })
    }
}
