//! What can go wrong, and what the process says and returns then.

use std::io;
use std::process::ExitCode;

/// Exit code of bad input; clap's own, so that all bad input ends alike.
const BAD_INPUT: u8 = 2;

/// Why there is no answer.
#[derive(Debug, thiserror::Error)]
pub enum Fault {
    /// An argument, or what it leads to, is not as it must be.
    #[error("{argument}: {message}")]
    Input {
        /// The argument as the user writes it, such as `--config`.
        argument: &'static str,
        /// The bad value and what is allowed.
        message: String,
    },
    /// The answer could not be written.
    #[error("cannot write the answer: {0}")]
    Output(#[from] io::Error),
    /// The answer is no JSON; a number in it is none.
    #[error("cannot write the answer: {0}")]
    Json(#[from] serde_json::Error),
}

impl Fault {
    /// Bad input by `argument`.
    pub fn input(argument: &'static str, message: impl Into<String>) -> Self {
        Self::Input { argument, message: message.into() }
    }

    /// Tells the user, and the caller by the exit code. A reader that has enough (`| head`) is no fault.
    #[must_use]
    pub fn report(&self) -> ExitCode {
        if self.reader_is_gone() {
            return ExitCode::SUCCESS;
        }
        eprintln!("error: {self}");
        if matches!(self, Self::Input { .. }) { ExitCode::from(BAD_INPUT) } else { ExitCode::FAILURE }
    }

    fn reader_is_gone(&self) -> bool {
        let kind = match self {
            Self::Input { .. } => None,
            Self::Output(error) => Some(error.kind()),
            Self::Json(error) => error.io_error_kind(),
        };
        kind == Some(io::ErrorKind::BrokenPipe)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_closed_pipe_is_a_reader_that_has_enough() {
        let output = |kind| Fault::from(io::Error::from(kind));
        assert!(output(io::ErrorKind::BrokenPipe).reader_is_gone());
        assert!(!output(io::ErrorKind::StorageFull).reader_is_gone());
        assert!(!Fault::input("--key", "broken pipe").reader_is_gone());
        let json = serde_json::Error::io(io::ErrorKind::BrokenPipe.into());
        assert!(Fault::from(json).reader_is_gone());
    }
}
