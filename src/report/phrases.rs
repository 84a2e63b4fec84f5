//! The phrases for the facts of a finding.
//!
//! The names of facts are in braces, without their units: `{a}` is the fact, `{a..b}` a range of two. A phrase is used
//! if all its facts are present. The first matching phrase of the table wins, so phrases for several facts come before
//! those for single ones. A test compares the table with the facts that the rules write.

/// A phrase for yes and one for no; an empty phrase is omitted.
pub(super) const FLAGS: &[(&str, &str, &str)] = &[
    (
        "answers_on_the_bus",
        "its configuration space answers",
        "its configuration space reads all ones",
    ),
    ("address_by_elimination", "the address is the only one that no other GPU has", ""),
    ("confidential_computing", "confidential computing is on", "confidential computing is off"),
    ("external_link", "it hangs at an external link", ""),
    ("in_a_container", "this runs in a container", "this does not run in a container"),
    (
        "iommu_translating",
        "the IOMMU translates device addresses",
        "the IOMMU does not translate device addresses",
    ),
    (
        "made_for_sxm",
        "the GPUs are boards for NVLink (SXM)",
        "the GPUs are not boards for NVLink (SXM)",
    ),
    (
        "remapping_failed",
        "rows of memory could not be remapped",
        "no remapping of memory rows failed",
    ),
    (
        "remapping_pending",
        "rows of memory wait to be remapped",
        "no rows of memory wait to be remapped",
    ),
];

/// Phrases, in their order of use.
pub(super) const PHRASES: &[&str] = &[
    // Affected GPUs and pairs.
    "{gpus} {gpus#is|are} affected",
    "{gpus_behind} {gpus_behind#is|are} behind it",
    "affected: {pairs}",
    "{slowed_pairs} are slowed",
    "{pairs_over_pcie} pairs copy over PCIe",
    "{pairs_checked} pairs were checked",
    "this was read in {read_in}",
    "copies of {broken_pairs} fail",
    "alike: {links_alike} other {links_alike#link|links}",
    "at the same time ran {beside}",
    "the pattern is '{pattern}', one of {patterns} such",
    "the pattern is '{pattern}'",
    "in {patterns} patterns",
    "copied at once: {flows_at_once}",
    "it happened {events} {events#time|times}: {how}",
    "it happened {events} {events#time|times}",
    "they {how}",
    "signals of the worker: {signals}",
    "exit codes of the worker: {exit_codes}",
    "CUDA errors: {error_codes}",
    "{absent} measurements have no row",
    "{ways_refused} {ways_refused#way|ways} of handing over {ways_refused#was|were} refused",
    "{ways_wrong} {ways_wrong#way|ways} of handing over {ways_wrong#has|have} wrong bytes",
    // Rates of copies.
    "copies over it reach {copies_over_it_lowest..copies_over_it_highest}",
    "copies reach {lowest_achieved..highest_achieved}",
    "the slowest copy reaches {lowest_achieved} of {theoretical} in theory",
    "the slowest copy reaches {lowest_achieved}",
    "a copy reaches up to {highest_achieved}, of {possible} that are possible",
    "a copy reaches up to {highest_achieved}",
    "copies reach {achieved}",
    "direct copies reach {direct}, staged ones {staged}: {below_staged} less",
    "{percent_of_expected}% of the {expected} that healthy machines reach; the floor is {floor}",
    "healthy machines reach {expected}; the floor is {floor}",
    "{expected} {expected#was|were} expected and {found} {found#was|were} found",
    "healthy machines reach {expected}",
    "{busy_tasks} tasks ran on the host in the minute before the check",
    "found: {found}",
    "the floor is {floor}, with a kernel {floor_kernel}",
    "the floor is {floor}",
    "that is {percent_of_expected}% of what is expected",
    "one way alone they reach {one_way}",
    "the expectation is from {expected_from}",
    "theory allows {theoretical}",
    "the narrowest hop is {bottleneck}",
    "the other direction reaches {other_direction}, {below_other_direction} more than this one",
    "the other direction reaches {other_direction}",
    "that is {below_median} below the median, {median}",
    "that is {below_usual} below what the figures of this machine together predict, {usual}",
    "the median is {median}",
    "GPUs of this model are known to copy {known_of_model} (from {known_from})",
    "copied by: {copied_by}",
    "staged copies reach {staged_lowest..staged_highest}",
    "the flows reach {together} together, {of_explained} of the {explained} that their links explain",
    "together they reach {together}, {of_alone} of {one_at_a_time} one at a time",
    "all at once reach {at_once}, {of_alone} of {one_at_a_time} one at a time",
    "one flow alone reaches {alone}",
    "what limits it: {limit}",
    "the memory of the own node gives {own_node}, that of the far one {far_node}: {below_own} less",
    "node {stated_node} is stated, and gives {with_stated_node}; node {near_node} gives {with_near_node}",
    "together they get {together_at_most} at most",
    "measured besides: {measured_to_tell_apart}",
    "not explained: {figures_not_explained}",
    "pinned memory gives {lowest_pinned} at least, {times} times the {lowest_pageable} of pageable memory",
    "pinned anew for each copy {pinned_anew}, re-used {reused}, pageable {pageable}",
    "page-locking takes {page_locking} of the time",
    "pinned memory gives {pinned}, {below_pageable} below the {pageable} of pageable memory",
    "then {then}, now {now}: {fall} less, where repeats differ by {noise}",
    "then {then}, now {now}: {fall} less",
    "then {then}, now {now}",
    "a call took {then_us} us, now {now_us} us",
    "repeats differ by {spread}, where {usual} is usual",
    "repeats differ by {spread}",
    "rows that took far longer than others: {slow_rows}",
    // Links.
    "the link has {width} of {width_possible} lanes",
    "the link has {width} lanes",
    "generation {generation} of {generation_possible}",
    "generation {generation}",
    "that leaves {rate} of {rate_possible}",
    "the wider end can do {rate_of_the_wider_end}, the link carries {rate}",
    "the link carries {rate}",
    "the link is {is} and could be {could_be}",
    "adapters: {adapters}",
    "{gpus_in_wider_slots} {gpus_in_wider_slots#is|are} in wider slots",
    "above it {rate_above} are left, of {rate_of_the_gpu} that the GPU's own link carries",
    "above it {rate_above} are left",
    "the GPU's own link carries {rate_of_the_gpu}",
    "it hangs at the chipset port {chipset_port}",
    "the link was in turn {states_in_turn}",
    "replays added while copies ran: {replays_added}",
    "packets carry {payload}, those of others {usual_payload}; {possible_payload} is possible",
    "packets carry {payload}, those of others {usual_payload}",
    "{possible_payload} is possible",
    "requests to read are of {read_request} at most",
    "PCIe errors added: {corrected_added} corrected, {non_fatal_added} non-fatal, {fatal_added} fatal",
    "corrected PCIe errors added: {corrected_added}",
    "non-fatal PCIe errors added: {non_fatal_added}",
    "fatal PCIe errors added: {fatal_added}",
    "counted since boot: {corrected_errors} corrected, {nonfatal_errors} non-fatal and {fatal_errors} fatal errors",
    "the port above counted {port_corrected_errors} corrected, {port_nonfatal_errors} non-fatal and {port_fatal_errors} fatal errors",
    "the port above counted {port_corrected_errors} corrected errors",
    "the port above counted {port_nonfatal_errors} non-fatal errors",
    "the port above counted {port_fatal_errors} fatal errors",
    "{active_count} NVLinks are active; GPUs like it have {active_count_of_like_gpus}",
    "{active_count} NVLinks are active; the model has {links_of_model_count}",
    "{active_count} NVLinks are active; the bridge carries {links_of_bridge_count}",
    "{active_count} NVLinks are active",
    "GPUs like these have {active_count_of_like_gpus} active NVLinks",
    "inactive NVLinks: {inactive_links}",
    "links: {links}",
    "the least one carries {least_part} of an equal part",
    "counted on them: {crc_errors} CRC errors, {replays} replays, {recoveries} recoveries",
    "CRC errors counted: {crc_errors}",
    "replays counted: {replays}",
    "recoveries counted: {recoveries}",
    "recoveries that failed: {failed_recoveries}",
    "packets lost: {lost_packets}",
    "errors that were not corrected: {uncorrected_errors}",
    "up to {most_symbols} symbols of a codeword were corrected, {symbols_from} or more in {codewords} codewords",
    "the most symbols corrected in a codeword: {most_symbols}",
    "codewords with many: {codewords}",
    "many are {symbols_from} and more",
    "at the other end: {far_ends}",
    "NVSwitches seen: {nvswitches_count}",
    "the model is {model}",
    // Access and bytes.
    "NVML says {nvml_read_write}; CUDA says {cuda}",
    "NVML says {nvml_read_write}",
    "CUDA says {cuda}",
    "seen on the destination: {seen_on_destination}",
    "ports with ACS redirect on: {ports_with_acs_redirect}",
    "copies whose bytes were dropped: {copies_dropped}; lost in some copies: {copies_stale}; changed: {copies_corrupt}",
    "copied by: {copies}",
    "stores that came too late: {stores_late}; that never came: {stores_lost}",
    "at most {most_torn_ll} lines of 16 bytes were torn, and {most_out_of_order} of fenced data out of order",
    "at most {most_torn_ll} lines of 16 bytes were torn",
    "at most {most_out_of_order} lines of fenced data were out of order",
    "at most {most_torn_ll128} lines of 128 bytes were torn",
    "at most {most_atomics_lost} atomics were lost",
    // Times.
    "direct {highest_direct_us} us at most",
    "staged {highest_staged_us} us at most",
    "a copy costs up to {highest_fixed_cost_us} us beside its bytes",
    "the median is {median_us} us, the highest {highest_us} us",
    "the limit is {limit_us} us",
    "the driver took {driver_start} to start",
    // Counters and copy engines.
    "{copied} were copied, {counted} counted: {of_copied}",
    "of {copied} copied, {over_nvlink} went over NVLink and at least {over_pcie_at_least} over PCIe",
    "{reported} copy engines are reported, {observed} were seen at work",
    "copies overlap by {highest_overlap} at most",
    "a pipeline is {pipeline_speed_up} times as fast at most",
    // Other programs.
    "processes: {processes}",
    "processes by number: {pids}",
    "they hold {memory_held} of memory",
    "others moved up to {highest_over_nvlink} over NVLink",
    "others moved up to {highest_over_pcie} over PCIe",
    "utilization was up to {highest_utilization}",
    "{gpus_with_other_processes} {gpus_with_other_processes#has|have} other processes",
    "other programs: {other_programs}",
    "reasons: {reasons}",
    "the clock of the multiprocessors was {sm_clock}",
    "the highest temperature was {highest_temperature_c} degrees Celsius",
    // Measured and unmeasured parts.
    "{tested} measurements were made, {untested} were not, {unverified} were not verified",
    "{tested} measurements were made, {untested} were not",
    "measurements that were not made: {untested}",
    "measurements: {measurements}",
    "probes: {probes}",
    "figures: {figures}",
    "the first: {first}",
    "flows: {flows}",
    "a link counted {crc_errors_per_second} CRC errors in a second",
    "facts not read: {unread}",
    "GPUs not watched: {unwatched}",
    "expectations not checked: {unchecked}",
    "changes: {changes}",
    // Identities and states of parts.
    "the error is: {error}",
    "its power state is {pci_power_state}",
    "Xid codes: {xid_codes}",
    "its last Xid is {last_xid_code}, {last_xid_seconds} s after boot",
    "the kernel's log was not read: {xids_unknown}",
    "its PCI address is {address}",
    "its PCI address is {pci}",
    "PCI addresses: {addresses}",
    "its UUID is {uuid}",
    "its serial number is {serial}",
    "its index was {earlier_index}",
    "it is bound to the driver {bound_driver}",
    "they are bound to the drivers {bound_drivers}",
    "it is bound to no driver of NVIDIA: device {device_id}",
    "its device file is number {device_minor}",
    "device files are numbered {device_minors}",
    "device files there are: {device_files}",
    "{missing_count} are missing; {gpus_listed_count} GPUs are listed",
    "{gpus_listed_count} GPUs are listed",
    "GPUs hidden from CUDA: {hidden_gpus}",
    "CUDA's order of devices: {cuda_order}",
    "GPUs with NVSwitch: {gpus_with_nvswitch}",
    "parts: {parts}",
    "NVLink domains and cliques: {clusters}",
    "GPUs by model: {gpus_by_model}",
    "models: {models}",
    "GPUs by version: {gpus_by_version}",
    "uncorrected memory errors: {uncorrected_errors}, of which {uncorrected_errors_meanwhile} meanwhile",
    "uncorrected memory errors: {uncorrected_errors}",
    "uncorrected memory errors meanwhile: {uncorrected_errors_meanwhile}",
    "rows of memory remapped so far: {rows_remapped}",
    "the kernel module is {kernel_module_version}, the driver's library {driver_version}",
    "the kernel module is {kernel_module_version}",
    "the driver's library is {driver_version}",
    "NVML is {nvml_version}",
    "NVML refused: {nvml_refused}",
    "directions: {directions}",
    "taken out of the environment of copies: {removed}",
    "NCCL's variables: {nccl_variables}",
    "the kernel was told {kernel_parameter}",
    "{asked_for} were asked for; {left} are left of the limit",
    "{asked_for} were asked for",
    "NUMA nodes: {numa_nodes}",
    // Hours under load.
    "from {at_first} to {at_last} GB/s: {rate_lost} less",
    "the rate lost {rate_lost}",
    "at first {at_first} GB/s",
    "at last {at_last} GB/s",
    "its clock lost {clock_lost}",
    "its temperature went from {first_temperature_c} to {last_temperature_c} degrees Celsius",
    "its temperature was {first_temperature_c} degrees Celsius then",
    "its temperature was {last_temperature_c} degrees Celsius at last",
    "its temperature was {temperature_c} degrees Celsius, that of the others {siblings_temperature_c}",
    "its temperature was {temperature_c} degrees Celsius",
    "the temperature of the others was {siblings_temperature_c} degrees Celsius",
    "in equilibrium from {steady_from} on",
    "the first after {first_after}",
    "minutes with changes: {minutes_with_changes}",
    "errors counted: {link_errors}, in {minutes_with_errors} minutes",
    "errors counted: {link_errors}",
    "minutes with errors: {minutes_with_errors}",
    "petabits copied: {petabits}",
    "errors in 10^15 bits: {errors_per_petabit}, from {least_per_petabit} to {most_per_petabit} at 95%",
    "errors in 10^15 bits: {errors_per_petabit}",
    "at least {least_per_petabit} in 10^15 bits",
    "at most {most_per_petabit} in 10^15 bits",
    "bursts with wrong bytes: {wrong_bursts}",
    "rounds lost: {rounds_lost}",
    "rounds that were not run: {rounds_not_run}",
    "ran for {ran_for}",
    "counted since then: {counts}",
];

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::path::Path;

    use super::{FLAGS, PHRASES};
    use crate::evidence::{ELSEWHERE, names};

    /// Collects every name of a fact in the code of the rules. These are `.fact("name", …)`, and the two that have a
    /// call of their own.
    fn written(folder: &Path, found: &mut BTreeSet<String>) {
        for entry in std::fs::read_dir(folder).unwrap().flatten() {
            let path = entry.path();
            if path.is_dir() {
                written(&path, found);
                continue;
            }
            let name = path.file_stem().unwrap().to_string_lossy().into_owned();
            if name.ends_with("tests") || name == "testing" {
                continue;
            }
            let code = std::fs::read_to_string(&path).unwrap();
            let code = code.split("#[cfg(test)]").next().unwrap();
            for call in code.split(".fact(").skip(1) {
                let literal = call.trim_start().strip_prefix('"');
                let name = literal.and_then(|rest| rest.split('"').next());
                found.insert(
                    name.unwrap_or_else(|| {
                        panic!("a fact without a literal name in {}", path.display())
                    })
                    .into(),
                );
            }
            assert!(
                !code.contains("evidence.add("),
                "a fact that this test does not see in {}",
                path.display()
            );
        }
    }

    #[test]
    fn every_fact_of_every_rule_has_a_phrase_and_every_phrase_a_fact() {
        let mut facts: BTreeSet<String> = ["gpus", "pairs"].map(String::from).into();
        written(&Path::new(env!("CARGO_MANIFEST_DIR")).join("../diagnose"), &mut facts);
        assert!(facts.len() > 150, "{}", facts.len());
        let phrased: BTreeSet<String> =
            PHRASES.iter().flat_map(|phrase| names(phrase)).map(String::from).collect();
        let flags = FLAGS.iter().map(|(name, ..)| (*name).to_owned());
        let said: BTreeSet<String> = phrased.into_iter().chain(flags).collect();
        let elsewhere = |name: &&String| !ELSEWHERE.contains(&name.as_str());
        let unsaid: Vec<_> = facts.difference(&said).filter(elsewhere).collect();
        assert_eq!(unsaid, Vec::<&String>::new(), "facts without a phrase");
        assert_eq!(
            said.difference(&facts).collect::<Vec<_>>(),
            Vec::<&String>::new(),
            "phrases without a fact"
        );
        // Each fact must have a phrase of its own, whatever other facts a report contains.
        let alone =
            PHRASES.iter().map(|phrase| names(phrase)).filter(|names| names.len() == 1).flatten();
        let alone: BTreeSet<&str> = alone.collect();
        assert!(["rate", "median", "pairs", "achieved"].iter().all(|name| alone.contains(name)));
    }
}
