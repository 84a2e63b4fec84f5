//! Shows progress on stderr.

use std::cell::Cell;
use std::fmt::Write;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressState, ProgressStyle};

use probes::Round;

/// Interval between two drawings of the bar, also while no round ends.
const TICK: Duration = Duration::from_millis(100);

/// Least time after which a round is reported to give no answer; it must also exceed ten other rounds. Chosen.
const NO_ANSWER: Duration = Duration::from_secs(1);

/// A bar that shows the running round and the time left. Nothing is drawn if stderr is not a terminal.
pub(super) struct Progress {
    bar: ProgressBar,
    /// True if nothing is drawn.
    hidden: bool,
    pace: Arc<Mutex<Pace>>,
    /// Rounds that ended before those that count theirs from 0.
    before: Cell<usize>,
}

impl Progress {
    /// Shows that the driver starts.
    pub(super) fn starting() -> Self {
        let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::stderr());
        bar.set_style(ProgressStyle::default_spinner());
        bar.set_message("reading facts, starting the CUDA driver");
        // The steady tick starts a thread, and panics if no thread can start.
        if !bar.is_hidden() && std::thread::Builder::new().spawn(|| ()).is_ok() {
            bar.enable_steady_tick(TICK);
        }
        Self { hidden: bar.is_hidden(), bar, pace: Arc::default(), before: Cell::default() }
    }

    /// Begins to count this many rounds.
    pub(super) fn measuring(&self, rounds: usize) {
        self.before.set(0);
        self.bar.reset();
        self.bar.set_length(rounds as u64);
        lock(&self.pace).rounds = rounds;
        let pace = Arc::clone(&self.pace);
        let style = ProgressStyle::with_template("[{bar:24}] {pos}/{len}, {left}  {wide_msg}");
        let style = style.unwrap_or_else(|_| ProgressStyle::default_bar()).progress_chars("=> ");
        self.bar.set_style(style.with_key("left", move |_: &ProgressState, to: &mut dyn Write| {
            // Text that cannot be written is not shown.
            let _ = to.write_str(&lock(&pace).words(Instant::now()));
        }));
    }

    /// Lets the next rounds count on after so many.
    pub(super) fn goes_on_after(&self, rounds: usize) {
        self.before.set(rounds);
    }

    /// Shows the running round; `ended` is the number of rounds that have ended.
    pub(super) fn round(&self, round: &Round, ended: usize) {
        if self.hidden {
            return;
        }
        let ended = self.before.get() + ended;
        lock(&self.pace).begins(ended, round.deadline, Instant::now());
        self.bar.set_position(ended as u64);
        self.bar.set_message(format!("{}: {}", round.way(), round.task));
    }

    /// Shows the time left of hours under load, with the figures so far.
    pub(super) fn hours(&self, left: f64, figures: &str) {
        if self.hidden {
            return;
        }
        if let Ok(style) = ProgressStyle::with_template("{spinner} {wide_msg}") {
            self.bar.set_style(style);
        }
        let left = report::duration(left.max(0.0));
        let mut message = format!("{left} left");
        if !figures.is_empty() {
            message += &format!("; {figures}");
        }
        self.bar.set_message(message);
    }

    /// Hides the bar while `write` also writes to stderr.
    pub(super) fn aside(&self, write: impl FnOnce()) {
        self.bar.suspend(write);
    }

    /// Removes the bar.
    pub(super) fn clear(&self) {
        self.bar.finish_and_clear();
    }
}

fn lock(pace: &Mutex<Pace>) -> std::sync::MutexGuard<'_, Pace> {
    pace.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The speed of the rounds, and the running round.
#[derive(Debug, Default)]
struct Pace {
    /// Total number of rounds.
    rounds: usize,
    ended: usize,
    /// Number of ended rounds that count for the usual time. A round that ran into its deadline does not count.
    counted: usize,
    /// Total time of the counted rounds.
    took: Duration,
    /// Start of the running round, and its deadline.
    running: Option<(Instant, Duration)>,
}

impl Pace {
    /// Notes the start of a round after `ended` others.
    fn begins(&mut self, ended: usize, deadline: Duration, now: Instant) {
        if let Some((began, deadline)) = self.running {
            let took = now.saturating_duration_since(began);
            let number = ended.saturating_sub(self.ended);
            if took < deadline && number > 0 {
                self.counted += number;
                self.took += took;
            }
        }
        self.ended = ended;
        self.running = Some((now, deadline));
    }

    /// Returns the time of a usual round.
    fn usual(&self) -> Option<Duration> {
        let counted = u32::try_from(self.counted).ok().filter(|counted| *counted > 0)?;
        Some(self.took / counted)
    }

    /// Returns how long the running round has given no answer, and the rest of its deadline. Returns none if the round
    /// takes no longer than others.
    fn late(&self, now: Instant) -> Option<(Duration, Duration)> {
        let (began, deadline) = self.running?;
        let runs = now.saturating_duration_since(began);
        let is_late = runs >= NO_ANSWER && self.usual().is_none_or(|usual| runs > usual * 10);
        is_late.then(|| (runs, deadline.saturating_sub(runs)))
    }

    /// Returns the time left. Other rounds count with the usual time, a late running round with the rest of its
    /// deadline.
    fn left(&self, now: Instant) -> Option<Duration> {
        let usual = self.usual()?;
        let (began, _) = self.running?;
        let own = match self.late(now) {
            Some((_, left)) => left,
            None => usual.saturating_sub(now.saturating_duration_since(began)),
        };
        let others = self.rounds.saturating_sub(self.ended + 1);
        Some(own + usual.saturating_mul(u32::try_from(others).unwrap_or(u32::MAX)))
    }

    /// Returns texts such as `12 s left` or `no answer for 3 s, given up in 2 s; 14 s left`.
    fn words(&self, now: Instant) -> String {
        let left = self.left(now).map(|left| format!("{} s left", left.as_secs_f64().ceil()));
        let late = self.late(now).map(|(runs, left)| {
            format!(
                "no answer for {} s, given up in {} s",
                runs.as_secs(),
                left.as_secs_f64().ceil()
            )
        });
        let parts: Vec<String> = late.into_iter().chain(left).collect();
        if parts.is_empty() { "measuring".to_owned() } else { parts.join("; ") }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_time_left_is_true_while_a_round_hangs() {
        let start = Instant::now();
        let at = |millis| start + Duration::from_millis(millis);
        let deadline = Duration::from_secs(5);
        let mut pace = Pace { rounds: 110, ..Pace::default() };
        assert_eq!(pace.words(at(0)), "measuring");
        for number in 0..=10 {
            pace.begins(number, deadline, at(100 * number as u64));
        }
        // A hundred rounds remain, of a tenth of a second each.
        assert_eq!(pace.words(at(1000)), "10 s left");
        assert_eq!(pace.words(at(1500)), "10 s left");
        // The eleventh hangs: the rest of its deadline and 99 others remain.
        assert_eq!(pace.words(at(3000)), "no answer for 2 s, given up in 3 s; 13 s left");
        assert_eq!(pace.words(at(5900)), "no answer for 4 s, given up in 1 s; 10 s left");
        assert_eq!(pace.words(at(7000)), "no answer for 6 s, given up in 0 s; 10 s left");
        // The hang does not make the others slower.
        pace.begins(11, deadline, at(6000));
        assert_eq!(pace.words(at(6000)), "10 s left");
        pace.begins(110, deadline, at(6000));
        assert_eq!(pace.words(at(6000)), "1 s left");
    }

    #[test]
    fn several_rounds_that_end_together_count_as_several() {
        let start = Instant::now();
        let mut pace = Pace { rounds: 8, ..Pace::default() };
        pace.begins(0, Duration::from_secs(5), start);
        pace.begins(4, Duration::from_secs(5), start + Duration::from_secs(4));
        assert_eq!(pace.words(start + Duration::from_secs(4)), "4 s left");
    }
}
