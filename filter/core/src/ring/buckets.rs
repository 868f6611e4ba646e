//! The circle cut into equal buckets, so that a change copies a few small arrays instead of moving all points.
//!
//! A bucket holds the points whose hashes share their top bits, sorted. Buckets are shared between rings: copying a ring
//! copies none, and changing one bucket leaves the others where they are. An endpoint's 150 points lie in as many
//! buckets, so adding it to a ring of 10,000 endpoints copies 150 buckets of 8,192.

use super::Point;
use std::sync::Arc;

/// Points that a bucket should hold: four kilobytes. Smaller ones are scattered over more memory than a processor's
/// cache holds while a large ring is built (64: a fifth slower), larger ones are more to copy for a change.
const FILL: usize = 256;

/// The most that the size may differ from that before the circle is cut anew.
const SLACK: usize = 4;

/// Bits beyond which no circle is cut: a million buckets.
const MAX_BITS: u32 = 20;

/// See the module.
#[derive(Clone, Debug)]
pub(super) struct Buckets {
    bits: u32,
    list: Vec<Arc<Vec<Point>>>,
}

impl Default for Buckets {
    fn default() -> Self {
        Self::for_points(0)
    }
}

impl Buckets {
    /// Empty ones for about so many points.
    pub(super) fn for_points(points: usize) -> Self {
        let bits = (points / FILL).next_power_of_two().trailing_zeros().min(MAX_BITS);
        Self { bits, list: vec![Arc::default(); 1 << bits] }
    }

    /// Whether the circle would be cut much finer or coarser for so many points.
    pub(super) fn fits(&self, points: usize) -> bool {
        let here = self.list.len().saturating_mul(FILL);
        let small = self.bits == 0 || points.saturating_mul(SLACK) >= here;
        let large = self.bits == MAX_BITS || points <= here.saturating_mul(SLACK);
        small && large
    }

    pub(super) fn count(&self) -> usize {
        self.list.len()
    }

    /// The bucket of a place on the circle.
    pub(super) fn position(&self, hash: u64) -> usize {
        // A shift by all 64 bits is none: one bucket holds everything.
        usize::try_from(hash.checked_shr(64 - self.bits).unwrap_or(0)).unwrap_or(0)
    }

    /// The points of a bucket; none past the end.
    pub(super) fn get(&self, position: usize) -> &[Point] {
        self.list.get(position).map_or(&[], |bucket| bucket.as_slice())
    }

    /// Makes room for so many more points in a bucket, and no more than that.
    pub(super) fn reserve(&mut self, position: usize, points: usize) {
        if let Some(bucket) = self.get_mut(position) {
            bucket.reserve_exact(points);
        }
    }

    /// The bucket to be changed: a copy of it, when another ring shares it.
    pub(super) fn get_mut(&mut self, position: usize) -> Option<&mut Vec<Point>> {
        self.list.get_mut(position).map(Arc::make_mut)
    }

    /// All points in their order.
    pub(super) fn iter(&self) -> impl Iterator<Item = &Point> {
        self.list.iter().flat_map(|bucket| bucket.iter())
    }

    pub(super) fn len(&self) -> usize {
        self.list.iter().map(|bucket| bucket.len()).sum()
    }

    /// All points once around, from the first at or after `key`.
    pub(super) fn walk(&self, key: u64) -> impl Iterator<Item = &Point> {
        let first = self.position(key);
        let bucket = self.get(first);
        let (before, from) =
            bucket.split_at_checked(bucket.partition_point(|point| point.hash < key)).unwrap_or_default();
        let (left, right) = self.list.split_at_checked(first).unwrap_or_default();
        let after = right.iter().skip(1).chain(left).flat_map(|bucket| bucket.iter());
        from.iter().chain(after).chain(before)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::endpoint::EndpointIndex;
    #[cfg(target_arch = "wasm32")]
    use wasm_bindgen_test::wasm_bindgen_test as test;

    fn filled(points: usize, hashes: &[u64]) -> Buckets {
        let mut buckets = Buckets::for_points(points);
        for &hash in hashes {
            let position = buckets.position(hash);
            let bucket = buckets.get_mut(position).unwrap();
            bucket.push(Point { hash, endpoint: EndpointIndex(0) });
            bucket.sort_by_key(|point| point.hash);
        }
        buckets
    }

    #[test]
    fn the_circle_is_cut_by_the_number_of_points() {
        for (points, count) in
            [(0, 1), (256, 1), (512, 2), (256 * 1024, 1024), (1_500_000, 8_192), (usize::MAX, 1 << 20)]
        {
            let buckets = Buckets::for_points(points);
            assert_eq!(buckets.count(), count, "{points} points");
            assert_eq!((buckets.position(0), buckets.position(u64::MAX)), (0, count - 1));
        }
    }

    /// 256 buckets are right for 65,536 points, and stay down to a quarter and up to four times as many.
    #[test]
    fn it_is_cut_anew_only_when_much_changed() {
        let buckets = Buckets::for_points(65_536);
        for (points, fits) in [(16_383, false), (16_384, true), (65_536, true), (262_144, true), (262_145, false)] {
            assert_eq!(buckets.fits(points), fits, "{points}");
        }
        assert!(Buckets::for_points(0).fits(0));
    }

    #[test]
    fn a_walk_meets_every_point_once_in_order_from_its_key() {
        let hashes = [0, 5, u64::MAX / 3, u64::MAX / 2, u64::MAX - 1];
        for points in [0, 1_000] {
            let buckets = filled(points, &hashes);
            let walk = |key| buckets.walk(key).map(|point| point.hash).collect::<Vec<_>>();
            for start in 0..hashes.len() {
                let mut expected = hashes.to_vec();
                expected.rotate_left(start);
                assert_eq!(walk(hashes[start]), expected, "the key is a point");
            }
            assert_eq!(walk(1)[0], 5);
            assert_eq!(walk(u64::MAX), hashes, "past the last point");
        }
        assert_eq!(Buckets::default().walk(7).count(), 0);
    }

    #[test]
    fn a_change_leaves_copies_as_they_were() {
        let old = filled(4_000, &[7, u64::MAX]);
        let mut new = old.clone();
        new.get_mut(0).unwrap().clear();
        assert_eq!((old.len(), new.len()), (2, 1));
        assert!(std::ptr::eq(old.get(15), new.get(15)), "the other buckets are shared");
    }
}
