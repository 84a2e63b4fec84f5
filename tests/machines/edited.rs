//! A description of a machine that is being changed.

use toml::{Table, Value, toml};

/// A machine's description as it is being changed.
pub struct Machine {
    pub text: Table,
    pub random: fastrand::Rng,
}

impl Machine {
    /// One with noise of its own.
    pub fn of(base: &Table, seed: usize) -> Self {
        let mut random = fastrand::Rng::with_seed(seed as u64);
        let mut text = base.clone();
        let percent = 1.0 + random.f64();
        let number = i64::try_from(seed).unwrap();
        text.insert("noise".into(), Value::Table(toml! { percent = percent  seed = number }));
        Self { text, random }
    }

    pub fn gpus(&self) -> usize {
        self.text["gpus"].as_array().unwrap().len()
    }

    pub fn gpu(&mut self, index: usize) -> &mut Table {
        self.text["gpus"][index].as_table_mut().unwrap()
    }

    pub fn function(&mut self, address: &str) -> &mut Table {
        let functions = self.text["pci"].as_array_mut().unwrap();
        let function = functions.iter_mut().find(|function| function["address"].as_str() == Some(address));
        function.unwrap().as_table_mut().unwrap()
    }

    pub fn address(&self, gpu: usize) -> String {
        self.text["gpus"][gpu]["pci"].as_str().unwrap().to_owned()
    }

    /// The bridges above a function, the nearest first.
    pub fn above(&mut self, address: &str) -> Vec<String> {
        let mut way = Vec::new();
        let mut at = address.to_owned();
        while let Some(parent) = self.function(&at).get("parent").map(|parent| parent.as_str().unwrap().to_owned()) {
            way.push(parent.clone());
            at = parent;
        }
        way
    }

    /// Generation and lanes that both ends of a function's link can do.
    pub fn link(&mut self, address: &str) -> (u32, u32) {
        let ends: Vec<_> = std::iter::once(address.to_owned()).chain(self.above(address).into_iter().take(1)).collect();
        let parse = |text: &str| -> (u32, u32) {
            let (generation, lanes) = text.split_once(" x").unwrap();
            (generation.trim_start_matches("Gen").parse().unwrap(), lanes.parse().unwrap())
        };
        let ends: Vec<_> =
            ends.iter().filter_map(|end| Some(parse(self.function(end).get("max")?.as_str()?))).collect();
        (ends.iter().map(|end| end.0).min().unwrap(), ends.iter().map(|end| end.1).min().unwrap())
    }

    /// The switches, by their upstream ports, with the GPUs below each.
    pub fn switches(&mut self) -> Vec<(String, Vec<usize>)> {
        let mut switches: Vec<(String, Vec<usize>)> = Vec::new();
        for gpu in 0..self.gpus() {
            let address = self.address(gpu);
            for bridge in self.above(&address) {
                if self.function(&bridge)["kind"].as_str() == Some("switch-upstream") {
                    match switches.iter_mut().find(|(known, _)| *known == bridge) {
                        Some((_, gpus)) => gpus.push(gpu),
                        None => switches.push((bridge, vec![gpu])),
                    }
                }
            }
        }
        switches
    }

    pub fn has_nvlinks(&self) -> bool {
        self.text["gpus"][0].get("nvlinks").is_some_and(|links| !links.as_array().unwrap().is_empty())
    }

    /// The target of a GPU's first links.
    pub fn leads_to_gpus(&self) -> bool {
        self.text["gpus"][0]["nvlinks"][0]["remote"].as_str() != Some("switch")
    }

    pub fn fault(&mut self, list: &str, fault: Table) {
        let faults = self.text.entry("faults").or_insert_with(|| Value::Table(Table::new())).as_table_mut().unwrap();
        let list = faults.entry(list).or_insert_with(|| Value::Array(Vec::new()));
        list.as_array_mut().unwrap().push(Value::Table(fault));
    }

    pub fn copies(&mut self, pairs: &Value, fault: &Value) {
        let (pairs, fault) = (pairs.clone(), fault.clone());
        let mut entry = Table::new();
        entry.insert("pairs".into(), pairs);
        entry.insert("fault".into(), fault);
        self.fault("pairs", entry);
    }

    pub fn refuse(&mut self, pairs: Value) {
        let peers = self.text.entry("peers").or_insert_with(|| Value::Table(Table::new())).as_table_mut().unwrap();
        let exceptions = peers.entry("exceptions").or_insert_with(|| Value::Array(Vec::new()));
        let mut entry = Table::new();
        entry.insert("pairs".into(), pairs);
        entry.insert("rule".into(), Value::Table(toml! { nvml = "CNS"  cuda = "refused" }));
        exceptions.as_array_mut().unwrap().push(Value::Table(entry));
    }

    pub fn state(&mut self, gpu: usize, key: &str, value: Value) {
        let state = self.gpu(gpu).entry("state").or_insert_with(|| Value::Table(Table::new()));
        state.as_table_mut().unwrap().insert(key.into(), value);
    }

    /// Two GPUs.
    pub fn two(&mut self) -> (usize, usize) {
        let gpus = self.gpus();
        let one = self.random.usize(..gpus);
        let other = (one + 1 + self.random.usize(..gpus - 1)) % gpus;
        (one, other)
    }

    /// A share that is below every floor, and not so low that staged copies are faster.
    pub fn slow(&mut self) -> Value {
        let share = 0.45 + self.random.f64() * 0.25;
        let mut slow = Table::new();
        slow.insert("share".into(), Value::Float((share * 1000.0).round() / 1000.0));
        Value::Table(Table::from_iter([("slow".to_owned(), Value::Table(slow))]))
    }
}

fn pair(key: &str, one: usize, other: usize) -> Value {
    let ends = [one, other].map(|gpu| Value::Integer(i64::try_from(gpu).unwrap()));
    Value::Table(Table::from_iter([(key.to_owned(), Value::Array(ends.to_vec()))]))
}

pub fn both(one: usize, other: usize) -> Value {
    pair("both", one, other)
}

pub fn one_way(from: usize, to: usize) -> Value {
    pair("ordered", from, to)
}
