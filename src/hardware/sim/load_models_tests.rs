//! A GPU of which a description gives the name alone is a healthy one of its model.

use super::*;
use model::units::MIB;

/// Names of NVML's, with MiB of memory, generation and lanes of PCIe, and NVLinks of healthy boards.
const MODELS: &[(&str, u64, (u8, u8), u8)] = &[
    ("Tesla K80", 11_441, (3, 16), 0),
    ("Tesla P4", 7_680, (3, 16), 0),
    ("Tesla P100-PCIE-16GB", 16_280, (3, 16), 0),
    ("Tesla P100-SXM2-16GB", 16_280, (3, 16), 0),
    ("NVIDIA GeForce GTX 1080 Ti", 11_178, (3, 16), 0),
    ("Tesla V100-PCIE-16GB", 16_160, (3, 16), 0),
    ("Tesla V100-SXM2-16GB", 16_160, (3, 16), 0),
    ("Tesla V100-PCIE-32GB", 32_510, (3, 16), 0),
    ("Tesla V100-SXM2-32GB", 32_510, (3, 16), 0),
    ("Tesla V100-SXM3-32GB", 32_510, (3, 16), 6),
    ("Tesla T4", 15_360, (3, 16), 0),
    ("NVIDIA GeForce GTX 1660 SUPER", 6_144, (3, 16), 0),
    ("NVIDIA GeForce RTX 2080", 8_192, (3, 16), 0),
    ("NVIDIA GeForce RTX 2080 Ti", 11_264, (3, 16), 0),
    ("NVIDIA A100-SXM4-40GB", 40_960, (4, 16), 12),
    ("A100-SXM4-40GB", 40_960, (4, 16), 12),
    ("NVIDIA A100-SXM4-80GB", 81_920, (4, 16), 12),
    ("NVIDIA A100-SXM-64GB", 65_536, (4, 16), 0),
    ("NVIDIA A100-PCIE-40GB", 40_960, (4, 16), 0),
    ("NVIDIA A100-PCIE-80GB", 81_920, (4, 16), 0),
    ("NVIDIA A100 80GB PCIe", 81_920, (4, 16), 0),
    ("NVIDIA A800-SXM4-80GB", 81_920, (4, 16), 8),
    ("NVIDIA A800 80GB PCIe", 81_920, (4, 16), 0),
    ("NVIDIA A30", 24_576, (4, 16), 0),
    ("NVIDIA A40", 46_068, (4, 16), 0),
    ("NVIDIA A10", 23_028, (4, 16), 0),
    ("NVIDIA A10G", 23_028, (4, 16), 0),
    ("NVIDIA RTX A6000", 49_140, (4, 16), 0),
    ("NVIDIA RTX A5500", 24_564, (4, 16), 0),
    ("NVIDIA RTX A5000", 24_564, (4, 16), 0),
    ("NVIDIA RTX A4500", 20_470, (4, 16), 0),
    ("NVIDIA RTX A4000", 16_376, (4, 16), 0),
    ("NVIDIA RTX A2000", 6_138, (4, 16), 0),
    ("NVIDIA GeForce RTX 3060", 12_288, (4, 16), 0),
    ("NVIDIA GeForce RTX 3060 Laptop GPU", 6_144, (4, 8), 0),
    ("NVIDIA GeForce RTX 3070", 8_192, (4, 16), 0),
    ("NVIDIA GeForce RTX 3080", 10_240, (4, 16), 0),
    ("NVIDIA GeForce RTX 3090", 24_576, (4, 16), 0),
    ("NVIDIA L4", 23_034, (4, 16), 0),
    ("NVIDIA L40", 46_068, (4, 16), 0),
    ("NVIDIA L40S", 46_068, (4, 16), 0),
    ("NVIDIA RTX 6000 Ada Generation", 49_140, (4, 16), 0),
    ("NVIDIA RTX 5880 Ada Generation", 49_140, (4, 16), 0),
    ("NVIDIA RTX 4000 Ada Generation", 20_475, (4, 16), 0),
    ("NVIDIA RTX 4000 SFF Ada Generation", 20_475, (4, 16), 0),
    ("NVIDIA GeForce RTX 4060 Ti", 16_380, (4, 8), 0),
    ("NVIDIA GeForce RTX 4090", 24_564, (4, 16), 0),
    ("NVIDIA H100 80GB HBM3", 81_559, (5, 16), 18),
    ("NVIDIA H100 NVL", 95_830, (5, 16), 0),
    ("NVIDIA H100 PCIe", 81_559, (5, 16), 0),
    ("NVIDIA H800", 81_559, (5, 16), 8),
    ("NVIDIA H800 PCIe", 81_559, (5, 16), 0),
    ("NVIDIA H20", 97_871, (5, 16), 18),
    ("NVIDIA H200", 143_771, (5, 16), 18),
    ("NVIDIA H200 NVL", 143_771, (5, 16), 0),
    ("NVIDIA GH200 480GB", 97_871, (5, 16), 0),
    ("NVIDIA B200", 183_359, (5, 16), 18),
    ("NVIDIA B300 SXM6 AC", 275_040, (5, 16), 18),
    ("NVIDIA GB200", 189_471, (5, 16), 18),
    ("NVIDIA GB300", 284_208, (6, 16), 18),
    ("NVIDIA RTX PRO 6000 Blackwell Server Edition", 97_887, (5, 16), 0),
    ("NVIDIA RTX PRO 6000 Blackwell Workstation Edition", 97_887, (5, 16), 0),
    ("NVIDIA RTX PRO 6000 Blackwell Max-Q Workstation Edition", 97_887, (5, 16), 0),
    ("NVIDIA GeForce RTX 5060 Ti", 16_311, (5, 8), 0),
    ("NVIDIA GeForce RTX 5070 Ti", 16_303, (5, 16), 0),
    ("NVIDIA GeForce RTX 5080", 16_303, (5, 16), 0),
    ("NVIDIA GeForce RTX 5090", 32_607, (5, 16), 0),
];

/// Returns a machine with GPUs of one name, of which the description says nothing else.
fn of(name: &str) -> MachineSpec {
    let mut text = "summary = 'x'\n".to_owned();
    for gpu in 1..=2 {
        text += &format!("[[pci]]\naddress = '0{gpu}:00.0'\n");
        text += &format!("[[gpus]]\nname = '{name}'\npci = '0{gpu}:00.0'\n");
    }
    parse(&text).unwrap_or_else(|error| panic!("{name}: {error}"))
}

#[test]
fn a_gpu_of_which_only_the_name_is_given_is_a_healthy_one_of_its_model() {
    for (name, mib, (generation, lanes), nvlinks) in MODELS {
        let spec = of(name);
        for (gpu, function) in spec.gpus.iter().zip(&spec.pci) {
            assert_eq!(gpu.memory, Bytes(mib * MIB), "{name}");
            assert_eq!(gpu.memory_free, gpu.memory, "{name}");
            assert_eq!(function.max, Some(pcie_link(*generation, *lanes)), "{name}");
            assert_eq!(spec.trained(function), function.max, "{name}");
            assert_eq!(gpu.nvlinks.iter().map(|links| links.count).sum::<u8>(), *nvlinks, "{name}");
            assert!(gpu.nvlinks.iter().all(|links| links.active), "{name}");
        }
    }
}

#[test]
fn every_row_of_the_models_is_that_of_a_name() {
    let rows: toml::Table = toml::from_str(include_str!("defaults.toml")).unwrap();
    let rows: Vec<_> = rows["models"].as_array().unwrap().iter().collect();
    assert!(rows.len() > 55, "{}", rows.len());
    let is_of = |name: &str, words: &str| {
        let mut parts = words.split(' ').filter(|word| !word.is_empty());
        parts.all(|word| name.split([' ', '-']).any(|part| part == word))
    };
    for row in rows {
        let words = row["words"].as_str().unwrap();
        assert!(MODELS.iter().any(|(name, ..)| is_of(name, words)), "{words}");
    }
}

#[test]
fn what_a_description_says_of_a_gpu_is_not_that_of_the_model() {
    let text = "summary = 'x'\npci = [{ address = '01:00.0', max = 'none' }]\n\
        gpus = [{ name = 'NVIDIA H200', pci = '01:00.0', nvlinks = [], memory = '1GiB' }]";
    let spec = parse(text).unwrap();
    assert_eq!((spec.pci[0].max, spec.gpus[0].nvlinks.len()), (None, 0));
    assert_eq!((spec.gpus[0].memory, spec.gpus[0].bar1), (Bytes(1 << 30), Bytes(256 << 30)));
    // An unknown GPU has no link to read and no NVLinks.
    let spec = of("NVIDIA XYZ-SXM9");
    assert_eq!((spec.pci[0].max, spec.gpus[0].nvlinks.len()), (None, 0));
    assert_eq!(spec.gpus[0].memory, Bytes(46_068 * MIB));
}
