//! Keys from a file, one a line.

use crate::fault::Fault;
use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};
use std::path::Path;

const ARGUMENT: &str = "--keys";

/// Calls `each` with every key of `file`, or of stdin for `-`, and returns how many there were. A line ends with LF or
/// CR LF; all else belongs to the key, which need not be UTF-8.
///
/// # Errors
/// When the file cannot be read, has no key, or has an empty line.
pub fn each(file: &Path, each: impl FnMut(&[u8])) -> Result<u64, Fault> {
    let name = if file == Path::new("-") { "stdin".to_owned() } else { format!("{file:?}") };
    let unreadable = |error: io::Error| format!("cannot read {name}: {error}");
    let opened: io::Result<Box<dyn Read>> = if file == Path::new("-") {
        Ok(Box::new(io::stdin()))
    } else {
        File::open(file).map(|file| Box::new(file) as _)
    };
    let read = opened.map_err(unreadable).and_then(|input| lines(BufReader::new(input), &name, each));
    read.map_err(|message| Fault::input(ARGUMENT, message))
}

fn lines(mut input: impl BufRead, name: &str, mut each: impl FnMut(&[u8])) -> Result<u64, String> {
    let (mut count, mut line) = (0, Vec::new());
    loop {
        line.clear();
        if input.read_until(b'\n', &mut line).map_err(|error| format!("cannot read {name}: {error}"))? == 0 {
            break;
        }
        let key = line.strip_suffix(b"\n").unwrap_or(&line);
        let key = key.strip_suffix(b"\r").unwrap_or(key);
        count += 1;
        if key.is_empty() {
            return Err(format!("line {count} of {name} is empty, must be a key"));
        }
        each(key);
    }
    if count == 0 { Err(format!("{name} has no key, must have at least one")) } else { Ok(count) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &[u8]) -> Result<Vec<Vec<u8>>, String> {
        let mut keys = Vec::new();
        let count = lines(text, "keys.txt", |key| keys.push(key.to_vec()))?;
        assert_eq!(count, keys.len() as u64);
        Ok(keys)
    }

    #[test]
    fn every_line_is_a_key_as_it_stands() {
        let keys = read(b"bert\n llama \r\n\xff\ngpt").unwrap();
        assert_eq!(keys, [&b"bert"[..], b" llama ", b"\xff", b"gpt"]);
    }

    #[test]
    fn an_empty_line_is_told_by_its_number() {
        assert_eq!(read(b"bert\n\ngpt\n").unwrap_err(), "line 2 of keys.txt is empty, must be a key");
        assert_eq!(read(b"bert\n\r\n").unwrap_err(), "line 2 of keys.txt is empty, must be a key");
        assert_eq!(read(b"").unwrap_err(), "keys.txt has no key, must have at least one");
    }
}
