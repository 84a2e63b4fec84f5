//! The hours under load that `soak` asks for.

use std::time::Duration;

use super::super::Failure;
use super::super::files::Whole;
use super::outputs::Outputs;
use crate::cli::SoakArgs;

/// The hours that were asked for.
pub(super) struct Hours {
    pub length: Duration,
    pub fail_fast: bool,
    pub textfile: Option<Whole>,
}

impl Hours {
    /// Checks that the text file can be written.
    ///
    /// # Errors
    ///
    /// A sentence that names the file.
    pub(super) fn prepare(args: &SoakArgs, outputs: &Outputs) -> Result<Self, Failure> {
        if args.check.serial {
            return Err("--serial: a soak copies several pairs at once, so it has no effect".into());
        }
        let textfile = args.textfile.as_deref();
        if textfile.is_some() && textfile == args.check.journal.as_deref() {
            return Err("--textfile and --journal are the same file".into());
        }
        Ok(Self {
            length: args.length,
            fail_fast: args.fail_fast,
            textfile: textfile.map(|path| outputs.beside(path)).transpose()?,
        })
    }
}
