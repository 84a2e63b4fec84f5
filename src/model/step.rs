//! The steps of a finding: what a technician, or a program that repairs machines, can do about it.

use std::borrow::Cow;

use serde::{Deserialize, Serialize};

/// Class of a step, by which a program can act on it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "testing"), derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum Remedy {
    /// Nothing is wrong.
    None,
    /// Check again.
    Repeat,
    /// Read a log, a counter or a setting, or compare with another machine.
    Investigate,
    /// End, start or change a program.
    ChangeProgram,
    /// Change a setting of the machine, its driver or its firmware.
    ChangeSetting,
    /// Give the GPU no more work.
    TakeOut,
    /// Reset a GPU, or reload its driver.
    ResetGpu,
    /// Start the operating system again.
    Reboot,
    /// Switch the machine off and on again, or a virtual machine.
    PowerCycle,
    /// Reseat a part, or clean its contacts.
    Reseat,
    /// Swap a part with another, or replace it.
    Exchange,
    /// Ask whoever runs the host of this virtual machine.
    AskHost,
    /// Call the maker or the service of the machine.
    CallService,
}

/// The stage in which a step is taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "testing"), derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum When {
    /// Until the repair, so that programs run safely. One of these steps is enough.
    UntilRepair,
    /// At once.
    Now,
    /// If the steps so far have not helped.
    IfItStays,
    /// If the fault moves with the part that was swapped.
    IfItMoves,
    /// If the fault stays at the place of the part that was swapped.
    IfItStaysThere,
    /// If the steps so far do not apply, or show nothing.
    Otherwise,
    /// When the fault is repaired.
    Afterwards,
}

impl When {
    /// Returns the words before the steps of a stage.
    const fn lead(self, is_first: bool, remedy: Remedy) -> &'static str {
        match (self, remedy) {
            (Self::UntilRepair, _) => "Until the repair: ",
            (Self::Now, _) if is_first => "",
            (Self::Now, Remedy::Investigate | Remedy::Repeat) => "To find the cause: ",
            (Self::Now, _) => "To repair: ",
            (Self::IfItStays, _) => "If it stays: ",
            (Self::IfItMoves, _) => "If the fault moves: ",
            (Self::IfItStaysThere, _) => "If it stays in place: ",
            (Self::Otherwise, _) => "Otherwise: ",
            (Self::Afterwards, _) => "Afterwards: ",
        }
    }
}

/// A step of a finding, or of the test for a suspect.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "testing"), derive(schemars::JsonSchema))]
pub struct Step {
    /// Its identifier, such as `reseat`. Identifiers are never reused.
    pub id: Cow<'static, str>,
    /// Its class.
    pub remedy: Remedy,
    /// The stage in which it is taken.
    pub when: When,
    /// The step in words, beginning with a small letter.
    pub text: String,
    /// The GPUs that it is about, by NVML's index.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub gpus: Vec<u32>,
    /// The PCI functions that it is about.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub addresses: Vec<crate::units::PciAddress>,
    /// The kinds of parts to handle, such as `riser`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub parts: Vec<Cow<'static, str>>,
}

impl Step {
    /// Returns the words that join it to the step before it in its stage.
    const fn joint(&self, before: &Self) -> &'static str {
        match (self.when, before.remedy, self.remedy) {
            (When::UntilRepair, ..) => ", or ",
            (_, Remedy::None, _) => "; ",
            (.., Remedy::Repeat) => "; then ",
            _ => "; ",
        }
    }
}

/// An argument of a step.
pub trait Argument {
    /// Adds the GPUs, addresses and parts that it names.
    #[must_use]
    fn about(&self, step: Step) -> Step {
        step
    }
}

impl Argument for &'static str {}
impl Argument for String {}
impl Argument for u32 {}

/// Declares steps: arguments, identifier, class and words. The words take the arguments by name. They are worded to follow
/// "if it stays: " and to stand beside others, begin with a small letter and end without a full stop.
#[macro_export]
macro_rules! steps {
    ($($name:ident $(($($argument:ident: $kind:ty),+))? => $id:literal $remedy:ident $words:literal;)*) => {
        /// A step of a finding, or of the test for a suspect.
        #[derive(Debug, Clone, PartialEq)]
        pub(crate) enum Step { $($name $(($($kind),+))?),* }

        impl Step {
            /// Returns the step as a report has it.
            pub(crate) fn recorded(&self, when: $crate::step::When) -> $crate::step::Step {
                match self {
                    $(Self::$name $(($($argument),+))? => {
                        let step = $crate::step::Step {
                            id: $id.into(),
                            remedy: $crate::step::Remedy::$remedy,
                            when,
                            text: format!($words),
                            gpus: Vec::new(),
                            addresses: Vec::new(),
                            parts: Vec::new(),
                        };
                        $($(let step = $crate::step::Argument::about($argument, step);)+)?
                        step
                    })*
                }
            }
        }

        /// Identifier and class of every step.
        #[cfg(test)]
        pub(crate) const STEPS: &[(&str, $crate::step::Remedy)] =
            &[$(($id, $crate::step::Remedy::$remedy)),*];
    };
}

/// Returns the stages of a plan in words, a sentence each, without the last full stop.
pub(super) fn stages(steps: &[Step]) -> impl Iterator<Item = String> {
    let stages = steps.chunk_by(|one, next| one.when == next.when);
    stages.enumerate().map(|(number, stage)| {
        let first = stage.first();
        let lead = first.map_or("", |step| step.when.lead(number == 0, step.remedy));
        capitalised(lead.to_owned() + &joined(stage))
    })
}

/// Returns steps of one stage in words, beginning with a small letter.
pub fn joined(steps: &[Step]) -> String {
    let Some(first) = steps.first() else {
        return String::new();
    };
    let mut text = first.text.clone();
    for (before, step) in steps.iter().zip(steps.iter().skip(1)) {
        text.push_str(step.joint(before));
        text.push_str(&step.text);
    }
    text
}

/// Returns a plan in words.
pub fn sentences(steps: &[Step]) -> String {
    stages(steps).collect::<Vec<_>>().join(". ")
}

/// Returns the steps that are taken before any outcome is known: the first stage, and those to take at once.
pub fn at_once(steps: &[Step]) -> &[Step] {
    let Some(first) = steps.first() else {
        return steps;
    };
    let last = first.when.max(When::Now);
    &steps[..steps.partition_point(|step| step.when <= last)]
}

fn capitalised(text: String) -> String {
    let mut letters = text.chars();
    letters.next().map_or_else(String::new, |first| first.to_uppercase().chain(letters).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn step(remedy: Remedy, when: When, text: &str) -> Step {
        Step {
            id: "any".into(),
            remedy,
            when,
            text: text.into(),
            gpus: Vec::new(),
            addresses: Vec::new(),
            parts: Vec::new(),
        }
    }

    #[test]
    fn a_plan_has_a_sentence_for_each_stage() {
        let plan = [
            step(Remedy::ChangeProgram, When::Now, "stop other work"),
            step(Remedy::Repeat, When::Now, "check again"),
            step(Remedy::Reseat, When::IfItStays, "reseat GPU 3"),
            step(Remedy::Exchange, When::IfItStays, "swap it"),
        ];
        assert_eq!(
            sentences(&plan),
            "Stop other work; then check again. If it stays: reseat GPU 3; swap it"
        );
        assert_eq!(at_once(&plan), &plan[..2]);
    }

    #[test]
    fn ways_to_run_until_the_repair_are_alternatives() {
        let plan = [
            step(Remedy::ChangeProgram, When::UntilRepair, "use no peer access"),
            step(Remedy::TakeOut, When::UntilRepair, "leave GPU 1 out"),
            step(Remedy::Investigate, When::Now, "look for Xid messages"),
        ];
        assert_eq!(
            sentences(&plan),
            "Until the repair: use no peer access, or leave GPU 1 out. To find the cause: look for Xid messages"
        );
        assert_eq!(at_once(&plan), &plan);
        let plan = [plan[1].clone(), step(Remedy::Exchange, When::Now, "replace GPU 1")];
        assert_eq!(sentences(&plan), "Until the repair: leave GPU 1 out. To repair: replace GPU 1");
    }
}
