//! The cases: the function, the call and the fault.

use fake_machine::plan::Action;

use crate::beds::{Bed, Calls, NVLINK_5};

/// Codes of CUDA that any call may return: undocumented; context errors that last; the system not ready; memory; device
/// gone; the driver's own "unknown".
const CUDA_CODES: [u32; 12] = [919, 700, 719, 802, 2, 46, 101, 999, 1, 214, 304, 400];
/// Codes that only one function returns.
const CUDA_SPECIAL: [(&str, &[u32]); 7] = [
    ("cuInit", &[34, 100, 803]),
    ("cuDevicePrimaryCtxRetain", &[216]),
    ("cuCtxEnablePeerAccess", &[217, 704, 711]),
    ("cuCtxDisablePeerAccess", &[705]),
    ("cuModuleLoadData", &[209, 218, 221, 222, 223]),
    ("cuStreamWaitValue32_v2", &[801]),
    ("cuStreamWriteValue32_v2", &[801]),
];
/// Codes of NVML: undocumented, uninitialised, argument, not supported, no permission, not found,
/// driver not loaded, timeout, function not found, lost, needs a reset, versions differ, memory,
/// structure's version, unknown.
const NVML_CODES: [u32; 15] = [4711, 1, 2, 3, 4, 6, 9, 10, 13, 15, 16, 18, 20, 25, 999];

/// Faults of beds at whose every function they are injected: a code, one that breaks the context, a worker that ends, a lie.
const LOAD_ACTIONS: [Action; 4] =
    [Action::Code(999), Action::Code(719), Action::Abort, Action::Skip];

/// The kind of fault of a case.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Class {
    CudaCode,
    CudaSticky,
    CudaHang,
    CudaAbort,
    CudaSkip,
    CudaMissing,
    NvmlCode,
    NvmlHang,
    NvmlSkip,
    NvmlMissing,
}

/// One run.
#[derive(Debug, Clone)]
pub(crate) struct Case {
    /// Index of the bed.
    pub bed: usize,
    pub function: &'static str,
    /// The fault; `None` if the function is missing.
    pub action: Option<Action>,
    /// Number of the call.
    pub call: u64,
    /// True if every later call is affected too.
    pub lasting: bool,
    /// Number of such calls before the first copy; for NVML, all of them.
    pub start: u64,
}

impl Case {
    pub(crate) fn is_cuda(&self) -> bool {
        self.function.starts_with("cu")
    }

    /// Returns true if the fault occurs after copies have begun.
    pub(crate) fn while_measuring(&self) -> bool {
        self.is_cuda() && self.call > self.start
    }

    pub(crate) fn sleeps(&self) -> bool {
        self.action == Some(Action::Hang)
    }

    pub(crate) fn class(&self) -> Class {
        match (self.is_cuda(), self.action) {
            (true, None) => Class::CudaMissing,
            (true, Some(Action::Code(214 | 700 | 719))) => Class::CudaSticky,
            (true, Some(Action::Code(_))) => Class::CudaCode,
            (true, Some(Action::Hang)) => Class::CudaHang,
            (true, Some(Action::Abort)) => Class::CudaAbort,
            (true, Some(Action::Skip)) => Class::CudaSkip,
            (false, None) => Class::NvmlMissing,
            (false, Some(Action::Hang)) => Class::NvmlHang,
            (false, Some(Action::Skip)) => Class::NvmlSkip,
            (false, Some(_)) => Class::NvmlCode,
        }
    }

    /// Returns the fault in the form that the libraries read.
    pub(crate) fn plan(&self) -> String {
        let action = match self.action {
            None => return String::new(),
            Some(Action::Code(code)) => format!("code:{code}"),
            Some(Action::Hang) => "hang".into(),
            Some(Action::Abort) => "abort".into(),
            Some(Action::Skip) => "skip".into(),
        };
        format!("{}@{}{}={action}", self.function, self.call, if self.lasting { "+" } else { "" })
    }

    pub(crate) fn name(&self, beds: &[Bed]) -> String {
        let what =
            if self.action.is_none() { format!("without {}", self.function) } else { self.plan() };
        format!("[{}] {what}", beds[self.bed].name)
    }
}

/// Returns every case, function by function. A function is tried on the first bed that calls it.
pub(crate) fn all(beds: &[Bed]) -> Vec<Case> {
    let mut cases = Vec::new();
    for (index, &function) in fake_cuda::FUNCTIONS.iter().enumerate() {
        let Some(bed) = beds.iter().position(|bed| bed.cuda.all[index] > 0) else {
            continue;
        };
        let (start, all) =
            (beds[bed].cuda.start.get(index).copied().unwrap_or(0), beds[bed].cuda.all[index]);
        let special = CUDA_SPECIAL
            .iter()
            .filter(|(name, _)| *name == function)
            .flat_map(|(_, codes)| codes.iter());
        let codes = CUDA_CODES.iter().chain(special).map(|code| Action::Code(*code));
        let actions: Vec<_> = codes.chain([Action::Hang, Action::Abort, Action::Skip]).collect();
        let mut calls = vec![1, start, start + 1, (start + 1 + all) / 2, all];
        calls.retain(|call| (1..=all).contains(call));
        calls.sort_unstable();
        calls.dedup();
        let case = |call, action, lasting| Case {
            bed,
            function,
            action: Some(action),
            call,
            lasting,
            start,
        };
        for &call in &calls {
            cases.extend(actions.iter().map(|action| case(call, *action, false)));
        }
        let last = [1, start + 1].into_iter().filter(|call| *call <= all);
        for call in last.collect::<std::collections::BTreeSet<_>>() {
            cases.extend(
                [Action::Code(919), Action::Code(719), Action::Skip]
                    .map(|action| case(call, action, true)),
            );
        }
    }
    for (index, &function) in fake_nvml::FUNCTIONS.iter().enumerate() {
        let Some(bed) = beds.iter().position(|bed| bed.nvml.all[index] > 0) else {
            continue;
        };
        let all = beds[bed].nvml.all[index];
        let mut calls = vec![1, all.div_ceil(2), all];
        calls.dedup();
        let case = |call, action, lasting| Case {
            bed,
            function,
            action: Some(action),
            call,
            lasting,
            start: all,
        };
        for &call in &calls {
            // An abort in NVML ends the process that would have to report it.
            let actions =
                NVML_CODES.map(Action::Code).into_iter().chain([Action::Hang, Action::Skip]);
            cases.extend(actions.map(|action| case(call, action, false)));
        }
        cases.extend([4711, 15, 3].map(|code| case(1, Action::Code(code), true)));
        cases.push(case(1, Action::Skip, true));
    }
    cases
}

/// Returns every function that several flows at once need, at the first, a middle and the last of its calls.
pub(crate) fn of_load(beds: &[Bed]) -> Vec<Case> {
    on(beds, Calls::OfFlows)
}

/// Like [`of_load`], for one GPU and the host.
pub(crate) fn of_one_gpu(beds: &[Bed]) -> Vec<Case> {
    on(beds, Calls::OfOneGpu)
}

/// Returns faults at every reading of counters of NVLink 5: unsupported, an argument it does not know, a failure, no answer.
pub(crate) fn of_nvlink_5(beds: &[Bed]) -> Vec<Case> {
    const FIELDS: &str = "nvmlDeviceGetFieldValues";
    /// Calls for what the links and PCIe are, three for each of the two GPUs. They come first, and the first bed has them:
    /// without them copies have another size, and on this machine another rate.
    const BEFORE: u64 = 6;
    let functions = fake_nvml::FUNCTIONS.iter();
    let (Some(bed), Some(index)) = (
        beds.iter().position(|bed| bed.name == NVLINK_5),
        functions.clone().position(|function| *function == FIELDS),
    ) else {
        return Vec::new();
    };
    let all = beds[bed].nvml.all[index];
    let case = |call, action, lasting| Case {
        bed,
        function: FIELDS,
        action: Some(action),
        call,
        lasting,
        start: all,
    };
    let once = (BEFORE + 1..=all).flat_map(|call| {
        let codes = [3, 2, 4711].map(Action::Code);
        let actions = codes.into_iter().chain([Action::Hang, Action::Skip]);
        actions.map(move |action| case(call, action, false))
    });
    let lasting = [3, 2, 4711].map(|code| case(BEFORE + 1, Action::Code(code), true));
    once.chain(lasting).collect()
}

fn on(beds: &[Bed], calls: Calls) -> Vec<Case> {
    let places = beds.iter().enumerate().filter(|(_, bed)| bed.calls == calls);
    places.flat_map(|(place, _)| while_measuring(beds, place)).collect()
}

/// Returns faults after the first round of this bed has begun.
fn while_measuring(beds: &[Bed], bed: usize) -> Vec<Case> {
    let mut cases = Vec::new();
    for (index, &function) in fake_cuda::FUNCTIONS.iter().enumerate() {
        let all = beds[bed].cuda.all[index];
        let start = beds[bed].cuda.start.get(index).copied().unwrap_or(0);
        let mut calls = vec![start + 1, (start + 1 + all) / 2, all];
        calls.retain(|call| (start + 1..=all).contains(call));
        calls.dedup();
        for call in calls {
            let case =
                |action| Case { bed, function, action: Some(action), call, lasting: false, start };
            cases.extend(LOAD_ACTIONS.map(case));
        }
        if all > start {
            let case = |action, lasting| Case {
                bed,
                function,
                action: Some(action),
                call: start + 1,
                lasting,
                start,
            };
            cases.extend([case(Action::Hang, false), case(Action::Code(919), true)]);
        }
    }
    cases
}

/// Returns a case for every missing function of either library.
pub(crate) fn missing(beds: &[Bed]) -> Vec<Case> {
    let functions = fake_cuda::FUNCTIONS.iter().chain(fake_nvml::FUNCTIONS);
    functions
        .map(|&function| {
            let calls = |bed: &Bed| {
                let there = |names: &[&str], counts: &[u64]| {
                    names.iter().zip(counts).any(|(name, count)| *name == function && *count > 0)
                };
                there(fake_cuda::FUNCTIONS, &bed.cuda.all)
                    || there(fake_nvml::FUNCTIONS, &bed.nvml.all)
            };
            let bed = beds.iter().position(calls).unwrap_or(0);
            // This bed already lacks other functions.
            let own = beds[bed].name == "older";
            let bed = if own { 0 } else { bed };
            Case { bed, function, action: None, call: 1, lasting: true, start: u64::MAX }
        })
        .collect()
}
