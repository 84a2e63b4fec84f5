//! Progress on stderr.

use std::time::Duration;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use crate::plan::Round;

/// A bar that shows what runs and how long it will take. Nothing is drawn if stderr is not a
/// terminal.
pub struct Progress(ProgressBar);

impl Progress {
    /// While the driver starts.
    pub fn starting() -> Self {
        let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::stderr());
        bar.set_style(ProgressStyle::default_spinner());
        bar.set_message("reading facts, starting the CUDA driver");
        // It starts a thread, and panics where there can be none.
        if !bar.is_hidden() && std::thread::Builder::new().spawn(|| ()).is_ok() {
            bar.enable_steady_tick(Duration::from_millis(100));
        }
        Self(bar)
    }

    /// Begins to count this many rounds.
    pub fn measuring(&self, rounds: usize) {
        self.0.disable_steady_tick();
        self.0.reset();
        self.0.set_length(rounds as u64);
        let style = ProgressStyle::with_template("[{bar:24}] {pos}/{len}, {eta} left  {wide_msg}");
        self.0.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()).progress_chars("=> "));
    }

    /// This round is running; `ended` rounds have ended.
    pub fn round(&self, round: &Round, ended: usize) {
        self.0.set_position(ended as u64);
        self.0.set_message(format!("{}: {}", round.way(), round.task));
    }

    /// Runs something that also writes to stderr.
    pub fn aside(&self, write: impl FnOnce()) {
        self.0.suspend(write);
    }

    /// Removes the bar.
    pub fn clear(&self) {
        self.0.finish_and_clear();
    }
}
