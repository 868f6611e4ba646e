//! The `warmroute` command: what an operator asks about rings without asking a proxy.
//!
//! Every answer comes from the core's own pool, so that it is what the proxies do and not what somebody thinks they do.
//!
//! | file | what it holds |
//! |---|---|
//! | [`ring`], [`distribution`] | one subcommand each |
//! | [`source`] | the arguments that say which endpoints |
//! | [`spec`] | one endpoint as a command line writes it |
//! | [`view`] | a pool and its ring, as the subcommands ask about them |
//! | [`keys`] | keys from a file |
//! | [`text`] | what both print alike |
//! | [`fault`] | what can go wrong, and the exit codes |

#![deny(missing_docs)]

pub mod distribution;
pub mod fault;
pub mod keys;
pub mod ring;
pub mod source;
pub mod spec;
pub mod text;
pub mod view;

use clap::{Parser, Subcommand};
use fault::Fault;
use std::io::{self, BufWriter, Write};
use std::process::ExitCode;

/// Asks Warmroute's hash ring: which endpoints own a model, and how evenly the ring is shared.
///
/// The answers are computed by the code that runs in the proxies, from a list of endpoints or from the plugin
/// configuration that the proxies got. Nothing is sent to anybody.
#[derive(Debug, Parser)]
#[command(name = "warmroute", version, max_term_width = 100, after_help = EXAMPLE)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

const EXAMPLE: &str = "Example:
  warmroute ring --endpoints gpu-0=10.0.0.1:8000,gpu-1=10.0.0.2:8000 --key llama-3-70b

Exit codes: 0 answered; 1 the answer could not be written; 2 bad input, told on stderr.";

#[derive(Debug, Subcommand)]
enum Command {
    Ring(ring::Arguments),
    Distribution(distribution::Arguments),
}

/// Runs the command that the process was started with.
#[must_use]
pub fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let mut out = BufWriter::new(io::stdout().lock());
    let done = arguments.command.run(&mut out).and_then(|()| Ok(out.flush()?));
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(fault) => fault.report(),
    }
}

impl Command {
    fn run(&self, out: &mut dyn Write) -> Result<(), Fault> {
        match self {
            Self::Ring(arguments) => arguments.run(out),
            Self::Distribution(arguments) => arguments.run(out),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_arguments_do_not_contradict_each_other() {
        Arguments::command().debug_assert();
    }
}
