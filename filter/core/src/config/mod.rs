//! The plugin configuration, in five steps: the JSON as it stands there (`tree`), the strict wire form ([`wire`], read
//! by `shape`), defaults and ranges in one place ([`limits`]), validation that names the path of every mistake
//! ([`ConfigError`]), and the runtime objects ([`Config`]).

mod aliases;
mod compile;
mod fit;
mod headers;
pub mod limits;
mod pools;
mod requests;
mod shape;
mod tree;
pub mod wire;

pub use compile::{Config, ExplainSettings, SessionCookie};
pub use pools::PoolConfig;

use std::fmt::{self, Write};

/// One mistake: where it is, and what is allowed there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// Path of the field, such as `pools[0].endpoints[2].address`; `.` for the whole.
    pub path: String,
    /// What is wrong and what is allowed.
    pub message: String,
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Field names and values come from the user: none of them may begin a line of its own in a log.
        for character in self.path.chars().chain(": ".chars()).chain(self.message.chars()) {
            match character.is_control() {
                true => write!(f, "{}", character.escape_default())?,
                false => f.write_char(character)?,
            }
        }
        Ok(())
    }
}

/// All mistakes of a configuration that was refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigError {
    /// At least one, at most [`limits::MAX_PROBLEMS`].
    pub problems: Vec<Problem>,
    /// How many more there are.
    pub more: usize,
}

impl Problem {
    fn new(path: impl Into<String>, message: impl Into<String>) -> Self {
        Self { path: path.into(), message: message.into() }
    }
}

impl ConfigError {
    fn one(path: impl Into<String>, message: impl Into<String>) -> Self {
        Self { problems: vec![Problem::new(path, message)], more: 0 }
    }
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (n, problem) in self.problems.iter().enumerate() {
            let separator = if n == 0 { "" } else { "; " };
            write!(f, "{separator}{problem}")?;
        }
        if self.more > 0 {
            write!(f, "; and {} more", self.more)?;
        }
        Ok(())
    }
}

impl std::error::Error for ConfigError {}

/// Reads a plugin configuration. Nothing at all is the empty configuration, which steers no cluster.
///
/// # Errors
/// Every mistake with its path: what is no JSON, `null`, unknown fields, wrong types, values out of range, duplicates.
pub fn parse(bytes: &[u8]) -> Result<Config, ConfigError> {
    let bytes = if bytes.trim_ascii().is_empty() { b"{}" } else { bytes };
    if !bytes.trim_ascii_start().starts_with(b"{") {
        let start = bytes.get(..20).unwrap_or(bytes).escape_ascii();
        let message = format!("must be a JSON object, as a google.protobuf.StringValue; starts with \"{start}\"");
        return Err(ConfigError::one(".", message));
    }
    let wire: wire::Plugin = shape::shaped(tree::read(bytes)?)?;
    compile::compile(wire)
}

/// What a user wrote, as a message repeats it: enough to recognise, not so much that it fills a log.
fn shortened(text: &str) -> String {
    const SHOWN: usize = 200;
    match text.char_indices().nth(SHOWN) {
        Some((end, _)) => format!("{}…", text.get(..end).unwrap_or(text)),
        None => text.to_owned(),
    }
}

#[cfg(test)]
mod tests;
