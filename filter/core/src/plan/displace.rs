//! Room for a home where small tenants have to go.
//!
//! When nobody has room under the bounds, tenants with less than half of the new share may have to leave. Taken is the
//! endpoint that would be least loaded afterwards, so that a hot model does not end on top of another. The ones that left
//! look for a new home themselves. Without the half, two models of about one share displace each other for ever.

use super::board::{At, Board, Model, Tenant};
use super::bound::DISPLACED;

/// A tenant has to go only for a share that is more than this many times its own.
const TIMES_LARGER: f64 = 2.0;

/// The endpoint of `candidates` that is best after its small tenants left; none when they would not make room.
pub(super) fn best(board: &Board, model: &Model, candidates: &[At]) -> Option<At> {
    let scored = candidates.iter().filter_map(|at| Some((score(board, model, *at)?, *at)));
    scored.min_by(|a, b| a.0.total_cmp(&b.0).then(a.1.cmp(&b.1))).map(|(_, at)| at)
}

/// The tenants that leave, smallest first, until memory and load (up to `bound`) suffice; until memory does, when the load
/// would be above `bound` without all of them. Each that leaves costs a load, and where everybody is too full one that
/// need not go only swaps places with another, plan by plan.
pub(super) fn leavers(board: &Board, models: &[Model], model: &Model, at: At, bound: f64) -> Vec<Tenant> {
    let Some(spot) = board.spot(at) else { return Vec::new() };
    let mut small: Vec<Tenant> = spot.tenants.iter().filter(|tenant| is_small(tenant, model)).copied().collect();
    let rank = |tenant: &Tenant| (models.get(tenant.model).map_or(0, Model::rank), std::cmp::Reverse(tenant.model));
    crate::small::sort(&mut small, &mut |a, b| rank(a).cmp(&rank(b)));
    let share = model.share() * spot.speed;
    let (mut used, mut load) = (spot.used, spot.load);
    let least = small.iter().fold(load, |load, tenant| load - tenant.share * spot.speed);
    let bound = if least + share <= bound { bound } else { f64::INFINITY };
    let mut leaving = 0;
    for tenant in &small {
        let fits = used.saturating_add(model.size.into()) <= spot.memory.into();
        if fits && load + share <= bound {
            break;
        }
        used = used.saturating_sub(tenant.size.into());
        load -= tenant.share * spot.speed;
        leaving += 1;
    }
    small.truncate(leaving);
    small
}

/// Lower is better: the load afterwards, and half of what is there now, since leavers need another place.
fn score(board: &Board, model: &Model, at: At) -> Option<f64> {
    let spot = board.spot(at)?;
    let small = || spot.tenants.iter().filter(|tenant| is_small(tenant, model));
    let units: u64 = small().map(|tenant| u64::from(tenant.size)).sum();
    let share: f64 = small().map(|tenant| tenant.share).sum();
    if spot.used.saturating_sub(units).saturating_add(model.size.into()) > spot.memory.into() {
        return None;
    }
    let after = (spot.load - share * spot.speed).max(0.0) + model.share() * spot.speed;
    let crowded = after > DISPLACED && !model.homes.is_empty();
    (!crowded).then(|| after.max(0.5 * spot.load + 0.5 * model.share()))
}

fn is_small(tenant: &Tenant, model: &Model) -> bool {
    tenant.share * TIMES_LARGER < model.share()
}

#[cfg(test)]
mod tests {
    use super::super::board::tests::inputs;
    use super::*;
    #[cfg(target_arch = "wasm32")]
    use wasm_bindgen_test::wasm_bindgen_test as test;

    fn model(demand: f64, size: u32) -> Model {
        Model { demand, size, replicas: 1, ..Model::default() }
    }

    /// Endpoints of three units, with tenants of one unit that have these shares.
    fn board(endpoints: &[&[f64]]) -> (Board, Vec<Model>) {
        let mut board = Board::new(&inputs(&vec![3; endpoints.len()]));
        let mut models = Vec::new();
        for (at, shares) in (0..).zip(endpoints) {
            for share in *shares {
                board.place(at, Tenant { model: models.len(), share: *share, size: 1 });
                models.push(model(*share, 1));
            }
        }
        (board, models)
    }

    /// A share of 0.4 moves tenants under 0.2: of the first 0.1 leaves 0.2 + 0.3 + 0.4 = 0.9; of the second
    /// 0.1 + 0.1 leave 0.3 + 0.4 = 0.7; of the third nobody may be moved.
    #[test]
    fn the_endpoint_that_is_least_loaded_afterwards_is_taken() {
        let (board, models) = board(&[&[0.1, 0.2, 0.3], &[0.1, 0.1, 0.3], &[0.2, 0.2, 0.2]]);
        assert_eq!(best(&board, &model(0.4, 1), &[0, 1, 2]), Some(1));
        assert_eq!(best(&board, &model(0.4, 1), &[0, 2]), Some(0));
        assert_eq!(best(&board, &model(0.4, 1), &[2]), None, "half of the share is not small");
        let leaving = leavers(&board, &models, &model(0.4, 1), 1, 0.9);
        assert_eq!(
            leaving.iter().map(|tenant| tenant.model).collect::<Vec<_>>(),
            [4],
            "one is enough; the last of equals"
        );
        let leaving = leavers(&board, &models, &model(0.4, 1), 1, 0.75);
        assert_eq!(leaving.iter().map(|tenant| tenant.model).collect::<Vec<_>>(), [4, 3], "the load counts as well");
    }

    /// 0.1 + 0.1 + 0.3 on three units, and 0.4 more. Without the two small ones it is 0.7.
    #[test]
    fn nobody_leaves_for_a_load_that_stays_too_high() {
        let (mut board, models) = board(&[&[0.1, 0.1, 0.3]]);
        let leaving = |board: &Board, bound| leavers(board, &models, &model(0.4, 1), 0, bound).len();
        assert_eq!([0.75, 0.65].map(|bound| leaving(&board, bound)), [2, 1], "one for the memory");
        board.evict(0, &Tenant { model: 2, share: 0.3, size: 1 });
        assert_eq!([0.55, 0.45, 0.35].map(|bound| leaving(&board, bound)), [1, 2, 0], "there is room");
    }

    #[test]
    fn memory_has_to_suffice() {
        let (board, models) = board(&[&[0.1, 0.1, 0.5]]);
        assert_eq!(best(&board, &model(0.4, 3), &[0]), None, "two units can be had");
        assert_eq!(best(&board, &model(0.4, 2), &[0]), Some(0));
        assert_eq!(leavers(&board, &models, &model(0.4, 2), 0, 9.0).len(), 2);
    }

    /// 0.5 + 0.5 = 1 afterwards: too much for one more home, not for the only one.
    #[test]
    fn only_a_model_without_a_home_makes_an_endpoint_that_full() {
        let (board, _) = board(&[&[0.1, 0.1, 0.5]]);
        let mut hot = model(0.5, 1);
        assert_eq!(best(&board, &hot, &[0]), Some(0));
        hot.homes.push(7);
        assert_eq!(best(&board, &hot, &[0]), None);
    }
}
