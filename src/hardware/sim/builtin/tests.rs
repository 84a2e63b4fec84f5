use super::*;
use std::collections::HashSet;

#[test]
fn every_machine_is_sound() {
    assert_eq!(names().collect::<HashSet<_>>().len(), names().count());
    for name in names() {
        let spec = get(name).unwrap();
        assert!(!spec.summary.is_empty(), "{name}");
        let addresses: HashSet<_> = spec.pci.iter().map(|function| function.address).collect();
        assert_eq!(addresses.len(), spec.pci.len(), "{name}: an address twice");
        let parents = spec.pci.iter().filter_map(|function| function.parent);
        let devices = spec.gpus.iter().map(|gpu| gpu.pci).chain(spec.adapters.iter().map(|adapter| adapter.pci));
        for address in parents.chain(devices) {
            assert!(addresses.contains(&address), "{name}: {address} is not in the tree");
        }
    }
    assert!(get("nonsense").is_none());
}

#[test]
fn a_machine_survives_its_text() {
    for name in names() {
        let spec = get(name).unwrap();
        let text = serde_json::to_string(&spec).unwrap();
        assert_eq!(serde_json::from_str::<MachineSpec>(&text).unwrap(), spec, "{name}");
        let text = toml::to_string(&spec).unwrap();
        assert_eq!(toml::from_str::<MachineSpec>(&text).unwrap(), spec, "{name}");
    }
}
