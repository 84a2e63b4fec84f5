//! NCCL's topology files: written from a machine, and compared with it.
//!
//! The elements and attributes are those that NCCL 2.x reads and writes (src/graph/xml.cc and src/graph/topo.cc of
//! NVIDIA/nccl): `system`, `cpu`, `pci`, `gpu`, `nvlink`, `nic`, `net`, and `graphs`, `graph`, `channel`. What is left
//! out, NCCL reads from the machine itself.

mod compare;
mod write;
mod xml;

pub use self::compare::{File, compare, read};
pub use self::write::export;

#[cfg(test)]
mod tests;
