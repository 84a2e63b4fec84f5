//! The flows that the user gave as a pattern of their own: `0>1, 2>3, host0>4`.

use std::collections::BTreeSet;
use std::fmt;
use std::str::FromStr;

use super::{Request, host};
use model::flow::{Endpoint, Flow, HostMemory};
use model::snapshot::Snapshot;

/// An end of a flow as it was given.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum End {
    Gpu(u32),
    /// Memory of this NUMA node; `None` for that of the GPU at the other end.
    Host(Option<u32>),
}

impl fmt::Display for End {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Gpu(gpu) => write!(f, "{gpu}"),
            Self::Host(Some(node)) => write!(f, "host{node}"),
            Self::Host(None) => f.write_str("host"),
        }
    }
}

/// A flow as it was given: `0>1`, `host0>4`, `4>host`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct GivenFlow {
    from: End,
    to: End,
}

impl fmt::Display for GivenFlow {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}>{}", self.from, self.to)
    }
}

impl FromStr for GivenFlow {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let refused = || {
            format!(
                "'{text}' is no flow: give SOURCE>DESTINATION, each a GPU's index, host, or host with a NUMA node, such \
                 as 0>1 or host0>4"
            )
        };
        let end = |text: &str| {
            let text = text.trim();
            match text.strip_prefix("host") {
                Some("") => Some(End::Host(None)),
                Some(node) => Some(End::Host(Some(number(node)?))),
                None => Some(End::Gpu(number(text)?)),
            }
        };
        let (from, to) = text.split_once('>').ok_or_else(refused)?;
        let flow = Self { from: end(from).ok_or_else(refused)?, to: end(to).ok_or_else(refused)? };
        match (flow.from, flow.to) {
            (End::Host(_), End::Host(_)) => Err(format!("{text}: one end of a flow must be a GPU")),
            (one, other) if one == other => {
                Err(format!("{text}: the two ends of a flow must be different GPUs"))
            }
            _ => Ok(flow),
        }
    }
}

/// Returns the number of plain digits.
fn number(text: &str) -> Option<u32> {
    let is_plain = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    text.parse().ok().filter(|_| is_plain)
}

impl GivenFlow {
    /// Returns the flow, with the memory near the GPU where no node was given.
    fn flow(self, request: &Request<'_>) -> Flow {
        let end = |end: End, other: End| match (end, other) {
            (End::Gpu(gpu), _) => Endpoint::Gpu(gpu),
            (End::Host(given), other) => {
                let near = match other {
                    End::Gpu(gpu) => host::node_of(request, gpu),
                    End::Host(_) => None,
                };
                Endpoint::Host { node: given.or(near), memory: HostMemory::Pinned }
            }
        };
        Flow { from: end(self.from, self.to), to: end(self.to, self.from) }
    }
}

/// Returns the flows of the pattern that the user gave.
pub(super) fn flows(request: &Request<'_>) -> Vec<Flow> {
    let given = request.profile.load.given.iter();
    given.map(|given| given.flow(request)).collect()
}

/// Checks that these flows make a pattern on this machine.
///
/// # Errors
///
/// A sentence that names the flow and what is wrong with it.
pub fn check(given: &[GivenFlow], snapshot: &Snapshot) -> Result<(), String> {
    if given.len() == 1 {
        return Err(
            "--flows: one flow is no pattern, and its rate alone is in every report; give two or more".into(),
        );
    }
    let mut seen = BTreeSet::new();
    for flow in given {
        if !seen.insert(flow) {
            return Err(format!("--flows: {flow} is given twice"));
        }
        for end in [flow.from, flow.to] {
            let is_there = match end {
                End::Gpu(gpu) => snapshot.gpu(gpu).is_some(),
                End::Host(Some(node)) => snapshot.host_nodes().any(|known| known.node == node),
                End::Host(None) => true,
            };
            if !is_there {
                return Err(format!("--flows: {flow}: {}", missing(end, snapshot)));
            }
        }
    }
    Ok(())
}

fn missing(end: End, snapshot: &Snapshot) -> String {
    let (what, there): (_, Vec<String>) = match end {
        End::Gpu(gpu) => {
            let gpus = snapshot.gpus.iter().map(|gpu| gpu.index.to_string());
            (format!("GPU {gpu}"), gpus.collect())
        }
        End::Host(node) => {
            let nodes = snapshot.host_nodes().map(|node| node.node.to_string());
            let node = node.unwrap_or_default();
            (format!("NUMA node {node}"), nodes.collect())
        }
    };
    match there.is_empty() {
        true => format!("there is no {what}"),
        false => format!("there is no {what}; this machine has {}", there.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use model::testing::h200_vm;

    fn given(text: &str) -> Vec<GivenFlow> {
        text.split(',').map(|flow| flow.parse().unwrap()).collect()
    }

    #[test]
    fn flows_are_read_as_they_are_written() {
        for text in ["0>1", "host0>4", "4>host", "12>host3"] {
            assert_eq!(text.parse::<GivenFlow>().unwrap().to_string(), text);
        }
        assert_eq!(" 0 > 1 ".parse(), "0>1".parse::<GivenFlow>());
        for text in [
            "",
            ">",
            "0",
            "0-1",
            "0>",
            ">1",
            "0>1>2",
            "a>1",
            "+0>1",
            "host>host",
            "host0>host1",
            "3>3",
            "Host>1",
            "hostx>1",
            "99999999999>1",
            "0→1",
        ] {
            let why = text.parse::<GivenFlow>().unwrap_err();
            assert!(why.contains(text) && !why.contains('\n'), "{why}");
        }
    }

    #[test]
    fn a_pattern_has_two_flows_of_what_the_machine_has() {
        let machine = h200_vm(2);
        assert_eq!(check(&given("0>1,1>0"), &machine), Ok(()));
        assert_eq!(check(&given("0>1,host>0"), &machine), Ok(()));
        for (text, part) in [
            ("0>1", "two or more"),
            ("0>1,0>1", "twice"),
            ("0>1,1>2", "no GPU 2; this machine has 0, 1"),
            ("0>1,host9>1", "no NUMA node 9"),
        ] {
            let why = check(&given(text), &machine).unwrap_err();
            assert!(why.contains(part), "{why}");
        }
    }
}
