use super::*;
use std::collections::HashSet;

#[test]
fn every_machine_is_sound() {
    assert_eq!(names().collect::<HashSet<_>>().len(), names().count());
    for name in names() {
        let spec = get(name).unwrap();
        assert!(!spec.summary.is_empty(), "{name}");
        assert_eq!(spec.check(), Ok(()), "{name}");
    }
    assert!(get("nonsense").is_none());
}

#[test]
fn a_machine_survives_its_text() {
    for name in names() {
        let spec = get(name).unwrap();
        let text = serde_json::to_string(&spec).unwrap();
        assert_eq!(serde_json::from_str::<MachineSpec>(&text).unwrap(), spec, "{name}");
        assert_eq!(load::parse(&toml::to_string(&spec).unwrap()).unwrap(), spec, "{name}");
        assert_eq!(load::parse(&description(name).unwrap()).unwrap(), spec, "{name}");
    }
}
