//! The terminal: one screen that is drawn anew in place, given back as it was found.

use std::{
    env,
    io::{self, IsTerminal},
};

use super::view::{Paint, View, render};
use crate::output::{self, Error};

/// Hides the cursor and lets long lines end at the edge: a line that wraps would move all below it.
const TAKE: &str = "\x1b[?25l\x1b[?7l\x1b[2J";
const GIVE_BACK: &str = "\r\n\x1b[?7h\x1b[?25h";

/// A terminal that is drawn on.
#[derive(Debug)]
pub(super) struct Screen {
    paint: Paint,
}

impl Screen {
    /// Takes the terminal, if there is one that can be drawn on.
    pub(super) fn take() -> Result<Option<Self>, Error> {
        let drawable = env::var_os("TERM").is_some_and(|term| term != "dumb");
        if !(io::stdout().is_terminal() && drawable) {
            return Ok(None);
        }
        let screen = Self { paint: paint() };
        output::print(TAKE)?;
        Ok(Some(screen))
    }

    pub(super) fn draw(&self, heading: &str, view: &View) -> Result<(), Error> {
        output::print(&frame(heading, &render(view, self.paint)))
    }
}

impl Drop for Screen {
    /// Also after an error and after Ctrl-C. If it cannot be written to, there is no terminal to give back.
    fn drop(&mut self) {
        drop(output::print(GIVE_BACK));
    }
}

/// Colours where people see them and did not ask for none.
pub(super) fn paint() -> Paint {
    Paint(io::stdout().is_terminal() && env::var_os("NO_COLOR").is_none_or(|wish| wish.is_empty()))
}

/// From the top, each line over the one that was there, and nothing below the last. No new line after it: on a terminal
/// of just so many lines that would move all of them.
fn frame(heading: &str, lines: &[String]) -> String {
    let lines = heading.lines().chain([""]).chain(lines.iter().map(String::as_str));
    let lines: Vec<String> = lines.map(|line| format!("{line}\x1b[K")).collect();
    format!("\x1b[H{}\x1b[J", lines.join("\r\n"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_frame_covers_the_one_before() {
        let frame = frame("what it is", &["a".to_owned(), "b".to_owned()]);
        assert_eq!(frame, "\x1b[Hwhat it is\x1b[K\r\n\x1b[K\r\na\x1b[K\r\nb\x1b[K\x1b[J");
    }
}
