//! The readers: one module for each kind of output, and one entry of the list.

mod bandwidth_test;
mod kernel_log;
mod lspci;
mod nccl_log;
mod nccl_tests;
mod nvbandwidth;
mod p2p_bandwidth;
mod simple_p2p;
mod smi_csv;
mod smi_facts;
mod smi_list;
mod smi_nvlink;
mod smi_p2p;
mod smi_query;
mod smi_table;
mod smi_topo;

use super::reader::Reader;
pub(crate) use smi_query::block_of;

/// All kinds, the more specific ones first.
pub(crate) static READERS: &[Reader] = &[
    smi_topo::READER,
    smi_p2p::READ,
    smi_p2p::WRITE,
    smi_p2p::NVLINK,
    smi_p2p::ATOMICS,
    smi_p2p::PCIE,
    smi_p2p::ANY,
    smi_list::READER,
    smi_nvlink::STATUS,
    smi_nvlink::ERRORS,
    smi_query::READER,
    smi_table::READER,
    smi_csv::READER,
    nvbandwidth::READER,
    p2p_bandwidth::READER,
    lspci::READER,
    kernel_log::READER,
    nccl_log::READER,
    nccl_tests::READER,
    simple_p2p::READER,
    bandwidth_test::READER,
];

/// Returns the commands whose output is read.
pub fn tools() -> impl Iterator<Item = &'static str> {
    READERS.iter().map(|reader| reader.tool)
}
