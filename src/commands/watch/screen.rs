//! The whole terminal as a screen that is drawn anew each second.

use std::io::Write;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crossterm::cursor::{Hide, MoveTo, Show};
use crossterm::event::{self, Event, KeyCode, KeyModifiers};
use crossterm::style::Print;
use crossterm::terminal::{
    self, BeginSynchronizedUpdate, Clear, ClearType, EndSynchronizedUpdate, EnterAlternateScreen,
    LeaveAlternateScreen,
};
use crossterm::{execute, queue};

use rustix::event::{PollFd, PollFlags, Timespec};

use super::super::output;
use crate::cli::Color;
use model::report::Report;
use report::Level;

/// True while the terminal is a screen.
static TAKEN: AtomicBool = AtomicBool::new(false);

/// Why a screen ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum End {
    /// By `q`.
    Asked,
    /// By Ctrl-C.
    Interrupted,
    /// The terminal is gone.
    Gone,
}

/// The terminal, as it is until the screen is dropped.
pub(super) struct Screen {
    resized: bool,
}

impl Screen {
    /// Takes the terminal.
    ///
    /// # Errors
    ///
    /// A sentence that says why the terminal cannot be used so.
    pub(super) fn enter() -> Result<Self, String> {
        let why = |error: std::io::Error| format!("the terminal cannot be drawn on: {error}");
        terminal::enable_raw_mode().map_err(why)?;
        TAKEN.store(true, Ordering::Relaxed);
        let screen = Self { resized: false };
        execute!(std::io::stdout(), EnterAlternateScreen, Hide).map_err(why)?;
        Ok(screen)
    }

    /// Waits for a key at most this long. Returns how it ends the screen, if it does.
    pub(super) fn ended(&mut self, wait: Duration) -> Option<End> {
        let stdin = std::io::stdin();
        let mut fds = [PollFd::new(&stdin, PollFlags::IN)];
        let wait = Timespec::try_from(wait).unwrap_or_default();
        let is_input = rustix::event::poll(&mut fds, Some(&wait)).is_ok_and(|ready| ready > 0);
        // crossterm would read the end of a terminal that is gone for ever.
        if fds[0].revents().intersects(PollFlags::HUP | PollFlags::ERR | PollFlags::NVAL) {
            return Some(End::Gone);
        }
        if !is_input {
            // A signal reports a new size of the terminal.
            return self.taken(event::poll(Duration::ZERO).unwrap_or(false));
        }
        self.taken(true)
    }

    /// Takes an event if there is one.
    fn taken(&mut self, is_there: bool) -> Option<End> {
        if !is_there {
            return None;
        }
        match event::read() {
            Ok(Event::Key(key)) => match key.code {
                KeyCode::Char('c') if key.modifiers.contains(KeyModifiers::CONTROL) => {
                    Some(End::Interrupted)
                }
                KeyCode::Char('q') | KeyCode::Esc => Some(End::Asked),
                _ => None,
            },
            Ok(Event::Resize(..)) => {
                self.resized = true;
                None
            }
            Ok(_) => None,
            Err(_) => Some(End::Gone),
        }
    }

    /// Returns true if the terminal has another size since the last call.
    pub(super) fn was_resized(&mut self) -> bool {
        std::mem::take(&mut self.resized)
    }

    /// Draws the report of a moment.
    ///
    /// # Errors
    ///
    /// The terminal is gone.
    pub(super) fn draw(&self, report: &Report, elapsed: Duration) -> Result<(), String> {
        let style = output::style(Color::Auto, Level::Short);
        // Some terminals have no size.
        let size = terminal::size().ok().filter(|(_, rows)| *rows > 0);
        let rows = size.map_or(24, |(_, rows)| usize::from(rows));
        let text = report::screen(report, elapsed, &style, rows);
        let drawn = || {
            let mut out = std::io::stdout().lock();
            queue!(out, BeginSynchronizedUpdate, MoveTo(0, 0))?;
            for (number, line) in text.lines().take(rows).enumerate() {
                let end = if number + 1 < rows { "\r\n" } else { "" };
                queue!(out, Print(line), Clear(ClearType::UntilNewLine), Print(end))?;
            }
            queue!(out, Clear(ClearType::FromCursorDown), EndSynchronizedUpdate)?;
            out.flush()
        };
        drawn().map_err(|error: std::io::Error| format!("cannot write to the terminal: {error}"))
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        restore();
    }
}

/// Gives the terminal back, if it was taken.
pub(super) fn restore() {
    if TAKEN.swap(false, Ordering::Relaxed) {
        // A terminal that is gone needs no more.
        let _ = execute!(std::io::stdout(), Show, LeaveAlternateScreen);
        let _ = terminal::disable_raw_mode();
    }
}
