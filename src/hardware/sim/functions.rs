//! The PCI functions of a simulated machine, as its kernel shows them.

use super::spec::FunctionSpec;
use super::telemetry::SimTelemetry;
use model::reading::{Reading, Unknown};
use model::snapshot::PciFunction;

impl SimTelemetry {
    /// Returns the NUMA node of a function. If the firmware does not report one, returns the only node there is.
    pub(super) fn numa_node(&self, function: &FunctionSpec) -> Result<u32, Unknown> {
        let only = (self.spec.numa_nodes.len() == 1).then_some(0);
        function.numa_node.or(only).ok_or(Unknown::Unsupported)
    }

    pub(super) fn function(&self, spec: &FunctionSpec) -> PciFunction {
        let kind = (spec.address, spec.parent, spec.host_bridge.clone(), spec.kind);
        let mut function =
            PciFunction::unread(kind.0, kind.1, kind.2, kind.3, &Unknown::Unsupported);
        function.vendor = Reading::Known(spec.id.0);
        function.device_id = Reading::Known(spec.id.1);
        function.class = Reading::Known(spec.class);
        function.numa_node = self.numa_node(spec).into();
        function.slot = spec.slot.clone().ok_or(Unknown::Unsupported).into();
        self.spec.read_function(spec, &mut function);
        let lost = self.spec.is_silent(spec);
        if lost {
            // The bus still lists a GPU that fell off it. Its registers read as all ones, which the kernel shows like
            // this.
            let says = |word: &str| Unknown::Failed(format!("the kernel says '{word}'"));
            function.generation = Reading::Unknown(says("Unknown"));
            function.width = Reading::Unknown(says("63"));
            function.generation_max = Reading::Unknown(says("Unknown"));
            function.width_max = Reading::Unknown(says("63"));
        } else {
            let now: Reading<_> = self.spec.idle(spec).ok_or(Unknown::Unsupported).into();
            let max: Reading<_> = spec.max.ok_or(Unknown::Unsupported).into();
            function.generation = now.clone().map(|link| link.generation);
            function.width = now.map(|link| link.width);
            function.generation_max = max.clone().map(|link| link.generation);
            function.width_max = max.map(|link| link.width);
        }
        if !self.spec.host.virtual_machine {
            let errors = self.errors_now(spec);
            function.aer_correctable = Reading::Known(errors.correctable);
            function.aer_nonfatal = Reading::Known(errors.non_fatal);
            function.aer_fatal = Reading::Known(errors.fatal);
            let group = self.spec.pci.iter().position(|other| other.address == spec.address);
            function.iommu_group = group
                .and_then(|group| u32::try_from(group).ok())
                .ok_or(Unknown::Unsupported)
                .into();
            let translating = self.spec.host.iommu_translating;
            function.iommu_type =
                Reading::Known(if translating { "DMA-FQ" } else { "identity" }.into());
            function.acs_redirect = if lost {
                let why = "configuration space reads all ones: the function does not answer";
                Reading::Unknown(Unknown::Failed(why.into()))
            } else {
                Reading::Known(spec.acs_redirect)
            };
        }
        function
    }
}
