//! The command, run as a user runs it.

mod agreement;
mod config;
mod distribution;
mod errors;
mod output;
mod ring;
mod run;
