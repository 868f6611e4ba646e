//! What the subcommands print alike.

use clap::ValueEnum;
use serde::Serialize;
use std::io::Write;

use crate::fault::Fault;

/// How an answer is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Format {
    /// For people.
    Text,
    /// For programs; --help tells the shape.
    Json,
}

/// Writes `answer` as indented JSON with a line break at its end.
///
/// # Errors
/// When it cannot be written.
pub fn json(answer: &impl Serialize, out: &mut dyn Write) -> Result<(), Fault> {
    serde_json::to_writer_pretty(&mut *out, answer)?;
    Ok(writeln!(out)?)
}

/// `text` as a terminal can bear it: control characters become escapes.
#[must_use]
pub fn shown(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    for character in text.chars() {
        match character.is_control() {
            true => shown.extend(character.escape_default()),
            false => shown.push(character),
        }
    }
    shown
}

/// `text` in at most `width` characters, with … in the place of what is cut off.
#[must_use]
pub fn cut(text: &str, width: usize) -> String {
    if text.chars().count() <= width {
        return text.to_owned();
    }
    text.chars().take(width.saturating_sub(1)).chain(['…']).collect()
}

/// A share, 0–1, in eight characters: ` 12.50 %`.
#[must_use]
pub fn percent(share: f64) -> String {
    format!("{:>6.2} %", share * 100.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_cannot_write_to_the_terminal() {
        assert_eq!(shown("gpu\u{1b}[2J\n-ü"), "gpu\\u{1b}[2J\\n-ü");
    }

    #[test]
    fn a_cut_name_is_no_wider_than_asked() {
        for (text, expected) in [("gpu-10", "gpu-10"), ("gpu-100", "gpu-1…"), ("üüüüüü", "üüüüüü")] {
            assert_eq!(cut(text, 6), expected);
        }
    }

    #[test]
    fn every_share_is_as_wide_as_the_others() {
        assert_eq!([0.0, 0.125, 1.0].map(percent), ["  0.00 %", " 12.50 %", "100.00 %"]);
    }
}
