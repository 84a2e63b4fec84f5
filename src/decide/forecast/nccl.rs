//! NCCL's transport of each pair (src/graph/paths.cc, src/transport/p2p.cc, src/transport/shm.cc, src/graph/tuning.cc of
//! NCCL 2.18 to 2.30; docs/forecast.md).

use model::forecast::{NcclForecast, PairsForecast, Transport};
use model::placement::Pair;

use super::between::{Machine, all};
use super::memory::Memory;
use super::ring_buffers::{Room, room};
use super::rules::Rules;
use super::variables::Level;
use super::version::Version;

/// What decides for a pair.
#[derive(PartialEq)]
struct Decided {
    transport: Option<Transport>,
    in_one_process: Option<Transport>,
    ll128: Option<bool>,
    because: String,
    needs: Vec<String>,
}

pub(super) fn forecast(machine: &Machine<'_>, version: Version) -> NcclForecast {
    let rules = Rules { machine, version };
    let mut groups: Vec<(Decided, Vec<Pair>)> = Vec::new();
    for pair in machine.pairs() {
        let decided = rules.decide(pair);
        let ordered = Pair { source: pair.0, destination: pair.1 };
        match groups.iter_mut().find(|(known, _)| *known == decided) {
            Some((_, pairs)) => pairs.push(ordered),
            None => groups.push((decided, vec![ordered])),
        }
    }
    let needs = match machine.variables.0 {
        Some(_) => Vec::new(),
        None => vec!["NCCL's variables where the job runs: here as if none were set".to_owned()],
    };
    let group = |(decided, pairs): (Decided, Vec<Pair>)| PairsForecast {
        pairs,
        transport: decided.transport,
        in_one_process: decided.in_one_process,
        ll128: decided.ll128,
        because: decided.because,
        needs: decided.needs,
    };
    NcclForecast {
        version: version.to_string(),
        needs,
        groups: groups.into_iter().map(group).collect(),
    }
}

/// The farthest level of peer access.
struct Limit {
    level: Level,
    /// What set it.
    words: String,
}

/// Whether there is peer access between two GPUs.
enum Peer {
    /// There is; through this GPU, if any.
    Yes(Option<u32>, String),
    No(String),
    /// NCCL ends with an error.
    Fails(String),
    /// It is not known, for lack of this.
    NotKnown(String, String),
}

impl Rules<'_> {
    fn decide(&self, pair: (u32, u32)) -> Decided {
        match self.peer(pair) {
            Peer::NotKnown(because, needs) => Decided {
                transport: None,
                in_one_process: None,
                ll128: None,
                because,
                needs: vec![needs],
            },
            Peer::Fails(because) => Decided {
                transport: Some(Transport::Fails),
                in_one_process: Some(Transport::Fails),
                ll128: Some(false),
                because,
                needs: Vec::new(),
            },
            Peer::Yes(middle, because) => self.peer_to_peer(pair, middle, because),
            Peer::No(why) => self.without_peer_access(pair, why),
        }
    }

    /// Returns the farthest level of peer access; `None` with what is missing if it is not known.
    fn limit(&self) -> Result<Limit, String> {
        let variables = self.machine.variables;
        if variables.number("NCCL_P2P_DISABLE") == Some(1) {
            return Ok(Limit { level: Level::Local, words: variables.written("NCCL_P2P_DISABLE") });
        }
        let name = "NCCL_P2P_LEVEL";
        if let Some(level) = variables.get(name).and_then(Level::of) {
            return Ok(Limit { level, words: variables.written(name) });
        }
        let by_default = |level: Level, why: &str| {
            Ok(Limit { level, words: format!("{}, NCCL's default{why}", level.word()) })
        };
        let old = self.version.crosses_host_bridges();
        if !old && self.machine.gpus.len() > 2 {
            return by_default(Level::Pxb, "");
        }
        let cpu = self.machine.host.cpu.known();
        let cpu = cpu.map(|cpu| cpu.to_ascii_lowercase());
        let has = |word: &str| cpu.as_deref().is_some_and(|cpu| cpu.contains(word));
        match (old, has("amd"), has("intel") || has("zhaoxin")) {
            (_, true, false) => by_default(Level::Sys, " with AMD processors"),
            (_, false, true) => by_default(Level::Pxb, ""),
            _ => Err("the maker of the processor".to_owned()),
        }
    }

    fn peer(&self, pair: (u32, u32)) -> Peer {
        let machine = self.machine;
        let Some((level, middle)) = machine.path(pair) else {
            let because = "how the two are connected is not known".to_owned();
            return Peer::NotKnown(because, "the PCI tree and NVLinks".to_owned());
        };
        let class = machine.class(pair).map(|class| class.to_string());
        let path = match (level, middle) {
            (Level::Bridged, Some(middle)) => format!("NVLink through GPU {middle}"),
            (Level::NvLink, _) => format!("NVLink ({})", class.unwrap_or_default()),
            _ => format!("the path {}", class.unwrap_or_default()),
        };
        let limit = match self.limit() {
            Ok(limit) => limit,
            // Every default level admits the nearest paths.
            Err(_) if level <= Level::Pxb => {
                Limit { level: Level::Pxb, words: "every default of NCCL".to_owned() }
            }
            Err(needs) => {
                let because = format!("whether {path} is near enough depends on the processor");
                return Peer::NotKnown(because, needs);
            }
        };
        if level > limit.level {
            return Peer::No(format!("{path} is farther than {}", limit.words));
        }
        let near = format!("{path} is within {}", limit.words);
        match self.granted(pair, level, middle) {
            Ok(words) => Peer::Yes(middle, format!("{near}; {words}")),
            Err(why) => why,
        }
    }

    /// Returns what grants access, or why there is none.
    fn granted(&self, pair: (u32, u32), level: Level, middle: Option<u32>) -> Result<String, Peer> {
        let machine = self.machine;
        let hops = match middle {
            None => vec![pair],
            Some(middle) => vec![
                (pair.0.min(middle), pair.0.max(middle)),
                (pair.1.min(middle), pair.1.max(middle)),
            ],
        };
        let ignores = machine.variables.number("NCCL_IGNORE_DISABLED_P2P").unwrap_or(0);
        if ignores != 2 {
            match all(hops.iter().map(|hop| machine.nvml_grants(*hop))) {
                Some(true) => {}
                Some(false) => {
                    let refused = hops.iter().map(|hop| machine.nvml_words(*hop));
                    let words = refused.filter(|words| !words.is_empty()).collect::<Vec<_>>();
                    let words = words.first().cloned().unwrap_or_default();
                    return Err(match level <= Level::Bridged && ignores == 0 {
                        true => Peer::Fails(format!(
                            "{words} although NVLinks join them: NCCL ends with an error unless \
                             NCCL_IGNORE_DISABLED_P2P=1"
                        )),
                        false => Peer::No(words),
                    });
                }
                None => {
                    return Err(Peer::NotKnown(
                        "it depends on NVML".to_owned(),
                        "NVML's status of reading and writing".to_owned(),
                    ));
                }
            }
        }
        if middle.is_some() {
            return Ok("NVML grants reading and writing".to_owned());
        }
        match machine.cuda_grants(pair) {
            Some(true) => Ok("NVML and CUDA grant access".to_owned()),
            Some(false) => Err(Peer::No("CUDA refuses access".to_owned())),
            None => Err(Peer::NotKnown(
                "NVML grants access, and CUDA was not asked".to_owned(),
                "CUDA's answer on peer access ('peerscope check')".to_owned(),
            )),
        }
    }

    fn peer_to_peer(&self, pair: (u32, u32), middle: Option<u32>, because: String) -> Decided {
        let machine = self.machine;
        let ll128 = self.ll128(pair, true);
        if middle.is_some() {
            return Decided {
                transport: Some(Transport::P2pIndirect),
                in_one_process: Some(Transport::P2pIndirect),
                ll128: ll128.0,
                because: format!("{because}{}", ll128.1),
                needs: ll128.2.into_iter().collect(),
            };
        }
        if let Some(adapter) = self.net_may_win(pair) {
            return Decided {
                transport: None,
                in_one_process: None,
                ll128: None,
                because: format!("{because}; {adapter} may be faster by NCCL's reckoning"),
                needs: vec!["the rate that NCCL gives the way between the sockets".to_owned()],
            };
        }
        let memory = self.memory(pair);
        let mut needs: Vec<String> = ll128.2.into_iter().collect();
        let (transport, words) = match &memory {
            Memory::Cumem(why) => (Transport::P2pCumem, why.clone()),
            Memory::Plain(why) if machine.host.is_wsl() => {
                // CUDA under Windows has no such handles, and NCCL asks for one.
                let why = format!("{why}, and CUDA has no IPC handles under Windows (WSL 2)");
                return self.without_peer_access(pair, why);
            }
            Memory::Plain(why) => (Transport::P2pIpc, why.clone()),
            Memory::NotKnown(what) => {
                needs.push(what.clone());
                (Transport::P2p, "CUMEM or IPC is not known".to_owned())
            }
        };
        let pointers = machine.variables.number("NCCL_P2P_DIRECT_DISABLE").unwrap_or(0) == 0
            && machine.variables.number("NCCL_P2P_USE_CUDA_MEMCPY").unwrap_or(0) == 0;
        let in_one_process = match (&memory, self.version.shares_pointers()) {
            (_, _) if !pointers => transport,
            (Memory::Cumem(_), false) => transport,
            (Memory::NotKnown(_), false) => Transport::P2p,
            _ => Transport::P2pDirect,
        };
        Decided {
            transport: Some(transport),
            in_one_process: Some(in_one_process),
            ll128: ll128.0,
            because: format!("{because}; {words}{}", ll128.1),
            needs,
        }
    }

    /// Returns the adapter that NCCL may prefer to the path between two GPUs. It compares rates where adapters are near
    /// both, and only the way between sockets is reckoned slower than a GPU's own link.
    fn net_may_win(&self, pair: (u32, u32)) -> Option<&str> {
        if self.machine.variables.number("NCCL_NET_DISABLE_INTRA") == Some(1) {
            return None;
        }
        let (level, _) = self.machine.path(pair)?;
        self.machine.adapters_near_both(pair).filter(|_| level == Level::Sys)
    }

    fn without_peer_access(&self, pair: (u32, u32), why: String) -> Decided {
        let machine = self.machine;
        let decided = |transport, because, needs| Decided {
            transport,
            in_one_process: transport,
            ll128: self.ll128(pair, false).0,
            because,
            needs,
        };
        if machine.variables.number("NCCL_SHM_DISABLE") == Some(1) {
            let set = machine.variables.written("NCCL_SHM_DISABLE");
            return decided(Some(Transport::Net), format!("{why}; {set}"), Vec::new());
        }
        if let Some(adapter) = self.net_may_win(pair) {
            return decided(
                None,
                format!(
                    "{why}; memory of the host, unless {adapter} is faster by NCCL's reckoning"
                ),
                vec!["the rate that NCCL gives the way between the sockets".to_owned()],
            );
        }
        let (words, needs) = match self.memory_of_the_host(pair) {
            Memory::Cumem(words) => (words, Vec::new()),
            memory => {
                let needs = match memory {
                    Memory::NotKnown(what) => Some(what),
                    _ => None,
                };
                match room(machine) {
                    Room::Enough(words) => (words, Vec::new()),
                    Room::TooSmall(words) if needs.is_none() => {
                        return decided(
                            Some(Transport::Fails),
                            format!("{why}; {words}"),
                            Vec::new(),
                        );
                    }
                    Room::TooSmall(words) => (words, needs.into_iter().collect()),
                    Room::NotKnown => {
                        ("through /dev/shm".to_owned(), vec!["the size of /dev/shm".to_owned()])
                    }
                }
            }
        };
        decided(Some(Transport::Shm), format!("{why}; {words}"), needs)
    }
}
