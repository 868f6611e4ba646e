//! A lease on something that only one VM of an Envoy may do.
//!
//! It is written by compare and swap, so of several who claim it at once one wins. It ends by itself when its holder is
//! gone. Times are of the process's monotonic clock, which all VMs share.

use std::time::Duration;

/// How long a lease lasts without being renewed: long enough that a busy event loop does not lose it.
pub const TERM: Duration = Duration::from_secs(1);

/// Who holds it, and until when.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lease {
    /// Random name of the holder.
    pub holder: u128,
    /// When it ends.
    pub until: Duration,
}

impl Lease {
    /// 24 bytes: the holder and the nanoseconds, little endian.
    #[must_use]
    pub fn write(&self) -> [u8; 24] {
        let mut bytes = [0; 24];
        let (holder, until) = bytes.split_at_mut(16);
        holder.copy_from_slice(&self.holder.to_le_bytes());
        until.copy_from_slice(&u64::try_from(self.until.as_nanos()).unwrap_or(u64::MAX).to_le_bytes());
        bytes
    }

    /// What [`Lease::write`] wrote; `None` for anything else.
    #[must_use]
    pub fn read(bytes: &[u8]) -> Option<Self> {
        let (holder, until) = bytes.split_first_chunk()?;
        let until = u64::from_le_bytes(until.try_into().ok()?);
        Some(Self { holder: u128::from_le_bytes(*holder), until: Duration::from_nanos(until) })
    }
}

/// The lease that `holder` may write at `now` over what is there; `None` while somebody else holds it.
#[must_use]
pub fn claim(found: Option<Lease>, holder: u128, now: Duration) -> Option<Lease> {
    let taken = found.is_some_and(|lease| lease.holder != holder && lease.until > now);
    (!taken).then(|| Lease { holder, until: now.saturating_add(TERM) })
}

#[cfg(test)]
mod tests {
    use super::*;
    #[cfg(target_arch = "wasm32")]
    use wasm_bindgen_test::wasm_bindgen_test as test;

    fn at(milliseconds: u64) -> Duration {
        Duration::from_millis(milliseconds)
    }

    #[test]
    fn a_lease_survives_writing_and_other_bytes_are_none() {
        let lease = Lease { holder: u128::MAX - 7, until: at(123_456) };
        assert_eq!(Lease::read(&lease.write()), Some(lease));
        for length in [0, 16, 23, 25] {
            assert_eq!(Lease::read(&vec![1; length]), None, "{length} bytes");
        }
    }

    #[test]
    fn one_holds_it_until_it_ends() {
        let first = claim(None, 1, at(0)).unwrap();
        assert_eq!(first, Lease { holder: 1, until: at(1_000) });
        assert_eq!(claim(Some(first), 2, at(999)), None);
        assert_eq!(claim(Some(first), 1, at(999)).unwrap().until, at(1_999), "renewed");
        assert_eq!(claim(Some(first), 2, at(1_000)).unwrap().holder, 2, "its term is over");
    }
}
