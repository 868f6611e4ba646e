//! What the two body targets share.
//!
//! The head of an input says how the body is read: one byte for the limit, one for the length of chunks.

use crate::memory;
use warmroute_core::request::{BodyHint, BodyScanner, BodySettings, Scan};

/// A model's name in a body is no longer than this.
pub const MAX_NAME: usize = 1_024;

/// Names grow by doubling, and a buffer that grows is there twice: 1,024 and 2,048 bytes, and some to spare.
const MAX_HELD: usize = 4_096;

/// What a scanner said in the end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Said {
    /// Not enough yet.
    More,
    /// This name.
    Found(Vec<u8>),
    /// Anything else, by the scanner's word for it.
    Other(String),
}

impl Said {
    /// As a value of its own.
    pub fn of(scan: Scan<'_>) -> Self {
        match scan {
            Scan::More => Self::More,
            Scan::Found(name) => Self::Found(name.to_vec()),
            other => Self::Other(format!("{other:?}")),
        }
    }
}

/// One input.
pub struct Input<'a> {
    /// The most bytes that are read.
    pub limit: usize,
    chunk: usize,
    /// The body itself.
    pub body: &'a [u8],
}

impl<'a> Input<'a> {
    /// Limits from 0 to 510 bytes, or of the largest kind; `None` when even the head is missing.
    pub fn read(bytes: &'a [u8]) -> Option<Self> {
        let [limit, chunk, body @ ..] = bytes else { return None };
        let limit = if *limit == 0xFF { 65_536 } else { usize::from(*limit) * 2 };
        Some(Self { limit, chunk: usize::from(*chunk).max(1), body })
    }

    /// What a scanner says of the body, after checking what holds of any: the same in any chunks, for ever after, and
    /// with as little memory as is promised.
    pub fn scan(&self, hint: BodyHint) -> Said {
        let whole = self.feed(hint, self.body.len().max(1));
        assert_eq!(self.feed(hint, 1), whole, "byte by byte");
        assert_eq!(self.feed(hint, self.chunk), whole, "in chunks of {}", self.chunk);
        if let Said::Found(name) = &whole {
            assert!(!name.is_empty() && name.len() <= MAX_NAME);
        }
        whole
    }

    fn feed(&self, hint: BodyHint, chunk: usize) -> Said {
        let settings = BodySettings { max_bytes: u32::try_from(self.limit).unwrap_or(u32::MAX) };
        let (held, scanner) = memory::most(|| {
            let mut scanner = BodyScanner::new(hint, &settings);
            for chunk in self.body.chunks(chunk) {
                scanner.as_mut().map(|scanner| scanner.feed(chunk));
            }
            scanner
        });
        assert!(held <= MAX_HELD, "{held} bytes held for a body of {}", self.body.len());
        let Some(mut scanner) = scanner else { return Said::More };
        let said = Said::of(scanner.feed(b""));
        if said != Said::More {
            assert_eq!(Said::of(scanner.feed(b"{\"model\":\"other\"}")), said, "it changed its mind");
        }
        said
    }
}
