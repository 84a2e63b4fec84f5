//! The whole terminal as a screen that is drawn anew each second.

use std::io::Write;
use std::time::Duration;

use crossterm::cursor::{Hide, MoveTo, Show};
use crossterm::event::{self, Event, KeyCode, KeyModifiers};
use crossterm::style::Print;
use crossterm::terminal::{
    self, BeginSynchronizedUpdate, Clear, ClearType, EndSynchronizedUpdate, EnterAlternateScreen,
    LeaveAlternateScreen,
};
use crossterm::{execute, queue};

use super::super::output;
use crate::cli::Color;
use model::report::Report;
use report::Level;

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
        let screen = Self { resized: false };
        execute!(std::io::stdout(), EnterAlternateScreen, Hide).map_err(why)?;
        Ok(screen)
    }

    /// Waits for a key at most this long. Returns true if it was one that ends.
    pub(super) fn is_ended(&mut self, wait: Duration) -> bool {
        if !event::poll(wait).unwrap_or(true) {
            return false;
        }
        match event::read() {
            Ok(Event::Key(key)) => match key.code {
                KeyCode::Char('c') => key.modifiers.contains(KeyModifiers::CONTROL),
                KeyCode::Char('q') | KeyCode::Esc => true,
                _ => false,
            },
            Ok(Event::Resize(..)) => {
                self.resized = true;
                false
            }
            Ok(_) => false,
            // The terminal is gone.
            Err(_) => true,
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
        let text = report::screen(report, elapsed, &style);
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
        // A terminal that is gone needs no more.
        let _ = execute!(std::io::stdout(), Show, LeaveAlternateScreen);
        let _ = terminal::disable_raw_mode();
    }
}
