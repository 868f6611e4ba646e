//! Homes of the models that fit in memory.
//!
//! The model with the biggest share comes first, in steps of 1.4, ties by hash. First every model keeps the homes of the
//! plan before that fit memory and stay under the bound for those. Then the missing ones are looked for, model by model:
//! see `search`, then `displace`, and for a model without any home whoever has the memory. A model that still has none
//! goes to the tail. Keeping comes first for all, so that no new home takes the place of one that need not move.

use super::Inputs;
use super::board::{At, Board, Model, Tenant};
use super::bound::{ALONE, Bounds, RELIEF};
use super::displace;
use super::search::{Holders, Reach, Search, serves};
use crate::small;
use std::collections::VecDeque;

/// Places the pinned models of `models`.
pub(super) fn place(inputs: &Inputs<'_>, board: &mut Board, models: &mut [Model], bounds: &Bounds) {
    let order = by_share(models);
    for position in &order {
        keep(inputs, board, models, *position, bounds);
    }
    let missing = |position: &usize| models.get(*position).is_some_and(is_short);
    let queue: VecDeque<usize> = order.into_iter().filter(missing).collect();
    if !queue.is_empty() {
        fill(inputs, board, models, bounds, queue);
    }
    models.iter_mut().for_each(settle_order);
}

fn by_share(models: &[Model]) -> Vec<usize> {
    let pinned = models.iter().enumerate().filter(|(_, model)| model.pinned);
    let mut ranked: Vec<(i32, usize)> = pinned.map(|(position, model)| (model.rank(), position)).collect();
    // Models are in the order of their hashes, and the sort keeps that.
    small::sort(&mut ranked, &mut |a, b| b.0.cmp(&a.0));
    ranked.into_iter().map(|(_, position)| position).collect()
}

fn is_short(model: &Model) -> bool {
    model.homes.len() < model.replicas as usize
}

fn keep(inputs: &Inputs<'_>, board: &mut Board, models: &mut [Model], position: usize, bounds: &Bounds) {
    let Some(model) = models.get_mut(position) else { return };
    let previous = std::mem::take(&mut model.previous);
    for at in &previous {
        let Some(spot) = board.spot(*at) else { continue };
        let calm = spot.with(model.share()) <= bounds.keep || spot.load < ALONE;
        let stays = is_short(model) && !board.is_lane(*at) && spot.has_room(model.size) && calm;
        if stays && serves(inputs, board, *at, model.hash) {
            add(board, model, position, *at);
        }
    }
    model.previous = previous;
}

fn add(board: &mut Board, model: &mut Model, position: usize, at: At) {
    board.place(at, Tenant { model: position, share: model.share(), size: model.size });
    model.homes.push(at);
}

fn fill(inputs: &Inputs<'_>, board: &mut Board, models: &mut [Model], bounds: &Bounds, mut queue: VecDeque<usize>) {
    board.keep_order();
    let holders = Holders::of(inputs, board);
    // Each displacement puts others into the queue; so many rounds settle it in practice.
    let mut rounds = models.len().saturating_mul(2);
    while let Some(position) = queue.pop_front() {
        rounds = rounds.saturating_sub(1);
        let Some(model) = models.get(position) else { continue };
        let reach = Reach::of(inputs, board, model.hash);
        while let Some(model) = models.get(position).filter(|model| is_short(model)) {
            let search = Search { inputs, board, holders: &holders, bounds, reach: &reach, model };
            let Some((at, leavers)) = home(&search, models, rounds > 0) else { break };
            for tenant in leavers {
                leave(board, models, at, &tenant);
                queue.push_back(tenant.model);
            }
            if let Some(model) = models.get_mut(position) {
                add(board, model, position, at);
            }
        }
    }
}

/// One more home, and the tenants that have to leave it.
fn home(search: &Search<'_>, models: &[Model], may_displace: bool) -> Option<(At, Vec<Tenant>)> {
    if let Some(at) = search.fresh() {
        return Some((at, Vec::new()));
    }
    if let Some(at) = search.stay() {
        let relief = may_displace.then(|| relief(search, models, at)).flatten();
        return Some(relief.unwrap_or((at, Vec::new())));
    }
    if let Some(at) = search.spread() {
        return Some((at, Vec::new()));
    }
    if let Some(displaced) = may_displace.then(|| displaced(search, models)).flatten() {
        return Some(displaced);
    }
    if search.model.homes.is_empty() { Some((search.anyone()?, Vec::new())) } else { None }
}

fn displaced(search: &Search<'_>, models: &[Model]) -> Option<(At, Vec<Tenant>)> {
    let at = displace::best(search.board, search.model, &search.candidates())?;
    Some((at, displace::leavers(search.board, models, search.model, at, search.bounds.spread)))
}

/// A home where small tenants have to go, instead of the one of the plan before, `stay`, where the load would be above the
/// bound for keeping. It has to be under that bound, so that the next plan keeps it, and calmer by a margin: it costs a
/// load, and another one for each that leaves. Without it two hot models that once met where memory is full share an
/// endpoint for ever.
fn relief(search: &Search<'_>, models: &[Model], stay: At) -> Option<(At, Vec<Tenant>)> {
    let share = search.model.share();
    let now = search.board.spot(stay)?.with(share);
    if now <= search.bounds.keep {
        return None;
    }
    let (at, leavers) = displaced(search, models)?;
    let spot = search.board.spot(at)?;
    let after = spot.with(share) - leavers.iter().map(|tenant| tenant.share * spot.speed).sum::<f64>();
    (after <= search.bounds.keep.min(now - RELIEF)).then_some((at, leavers))
}

fn leave(board: &mut Board, models: &mut [Model], at: At, tenant: &Tenant) {
    board.evict(at, tenant);
    if let Some(model) = models.get_mut(tenant.model) {
        model.homes.retain(|home| *home != at);
    }
}

/// Homes of the plan before come first and in their old order, so that the same homes are the same placement.
fn settle_order(model: &mut Model) {
    let mut before: Vec<(At, usize)> = model.previous.iter().copied().zip(0..).collect();
    small::sort(&mut before, &mut Ord::cmp);
    let rank = |home: &At| match before.binary_search_by_key(home, |(at, _)| *at) {
        Ok(found) => before.get(found).map_or(usize::MAX, |(_, rank)| *rank),
        Err(_) => usize::MAX,
    };
    if !model.homes.is_sorted_by_key(rank) {
        small::sort(&mut model.homes, &mut |a, b| rank(a).cmp(&rank(b)));
    }
}

#[cfg(test)]
mod tests {
    use super::super::scene::Scene;
    use super::*;
    #[cfg(target_arch = "wasm32")]
    use wasm_bindgen_test::wasm_bindgen_test as test;

    /// Homes at a mean load of `mean`.
    fn placed(scene: &Scene, mean: f64) -> Vec<Vec<At>> {
        scene.run(0, |inputs, board, models| place(inputs, board, models, &Bounds::of(mean)))
    }

    #[test]
    fn a_new_model_goes_to_the_nearest_on_the_ring_under_the_bound() {
        let mut scene = Scene::new(&[3; 4]);
        scene.model(150, 0.3, 1, &[]);
        scene.model(151, 0.2, 1, &[]);
        scene.model(152, 0.1, 2, &[]);
        // B = 0.3 + 0.05. The second, 0.3; then not on top of it, 0.2; then 0.3 on the third, and another endpoint.
        assert_eq!(placed(&scene, 0.3), [vec![1], vec![2], vec![2, 3]]);
    }

    #[test]
    fn a_holder_under_the_bound_comes_before_the_ring() {
        let mut scene = Scene::new(&[3; 4]);
        scene.endpoints[0].resident = &[150, 152];
        scene.endpoints[3].resident = &[150];
        scene.model(150, 0.3, 1, &[]);
        scene.model(152, 0.1, 1, &[]);
        assert_eq!(placed(&scene, 0.3), [[0], [1]], "the first of equals; then the holder is above the bound");
    }

    #[test]
    fn homes_stay_up_to_the_bound_for_those() {
        let mut scene = Scene::new(&[3; 3]);
        scene.model(150, 0.5, 1, &[0]);
        scene.model(151, 0.29, 1, &[0]);
        scene.model(250, 0.2, 1, &[0]);
        // 0.5 + 0.29 ≤ 0.8, whatever B is; 0.2 more are not, and B = 0.38 leaves the third.
        assert_eq!(placed(&scene, 0.33), [[0], [0], [2]]);
    }

    #[test]
    fn homes_go_from_lanes_from_full_memory_and_from_who_cannot_serve() {
        let mut scene = Scene::new(&[1, 1, 1, 1]);
        scene.model(150, 0.2, 1, &[1]);
        scene.model(151, 0.1, 1, &[1]);
        scene.model(152, 0.1, 1, &[3]);
        scene.unservable.push((40, 152));
        let homes = scene.run(1, |inputs, board, models| place(inputs, board, models, &Bounds::of(0.5)));
        // The second's memory is full. Who cannot serve 152 can serve 151, whose nearest after the third is free.
        assert_eq!(homes, [vec![1], vec![2], vec![]], "the first is a lane, the fourth cannot serve it");
    }

    #[test]
    fn the_least_loaded_under_nine_tenths_when_nobody_is_under_the_bound() {
        let mut scene = Scene::new(&[3; 3]);
        scene.model(50, 0.5, 1, &[0]);
        scene.model(51, 0.3, 1, &[1]);
        scene.model(52, 0.4, 1, &[2]);
        scene.model(53, 0.29, 1, &[]);
        assert_eq!(placed(&scene, 0.2), [[0], [1], [2], [1]]);
    }

    #[test]
    fn small_tenants_leave_and_find_another_home() {
        let mut scene = Scene::new(&[1, 1]);
        scene.model(50, 0.1, 1, &[0]);
        scene.model(51, 0.25, 1, &[1]);
        scene.model(52, 0.4, 1, &[]);
        // Memory is full: 0.1 is less than half of 0.4 and leaves; nobody has room for it then.
        assert_eq!(placed(&scene, 0.4), [vec![], vec![1], vec![0]]);
        scene.endpoints[1].memory_units = 2;
        assert_eq!(placed(&scene, 0.2), [vec![0], vec![1], vec![1]], "under 0.9 with room: nobody has to leave");
    }

    /// Where hot ones meet is 0.7 + 0.25 > 0.8, where the rare ones are 0.05 + 0.02. Memory is full.
    fn hot_ones_together() -> Scene {
        let mut scene = Scene::new(&[2, 2]);
        scene.model(50, 0.7, 1, &[0]);
        scene.model(51, 0.25, 1, &[0]);
        scene.model(52, 0.05, 1, &[1]);
        scene.model(53, 0.02, 1, &[1]);
        scene
    }

    #[test]
    fn hot_models_do_not_share_an_endpoint_for_ever_because_memory_is_full() {
        let mut scene = hot_ones_together();
        let apart = [vec![0], vec![1], vec![1], vec![0]];
        assert_eq!(placed(&scene, 0.5), apart, "the rarest changes places with the second");
        scene.models.iter_mut().zip(&apart).for_each(|(model, homes)| model.previous.clone_from(homes));
        assert_eq!(placed(&scene, 0.5), apart);
    }

    #[test]
    fn nobody_changes_places_for_little() {
        let mut scene = hot_ones_together();
        scene.models[1].demand = 0.15;
        scene.models[2].demand = 0.65;
        // 0.85 > 0.8; with 0.65 it would be 0.8, which is not less by 0.1.
        assert_eq!(placed(&scene, 0.5), [[0], [0], [1], [1]]);
        scene.models[2].demand = 0.55;
        assert_eq!(placed(&scene, 0.5), [[0], [1], [1], [0]], "0.7 is");
    }

    #[test]
    fn a_model_without_any_home_takes_whoever_has_the_memory() {
        let mut scene = Scene::new(&[2]);
        scene.model(50, 0.8, 1, &[0]);
        scene.model(51, 0.7, 1, &[]);
        assert_eq!(placed(&scene, 0.5), [[0], [0]], "1.5 on one endpoint, since there is no other");
        scene.models[1].replicas = 2;
        assert_eq!(placed(&scene, 0.5), [[0], [0]], "but only its first");
    }

    #[test]
    fn a_model_that_few_can_serve_is_found_wherever_it_may_be() {
        let mut scene = Scene::new(&[1; 40]);
        scene.unservable = (0..39).map(|n| ((n + 1) * 10, 50)).collect();
        scene.model(50, 0.2, 1, &[]);
        assert_eq!(placed(&scene, 0.1), [[39]], "the last of forty on the ring");
    }

    #[test]
    fn the_same_homes_are_in_the_same_order() {
        let mut scene = Scene::new(&[1, 1, 1]);
        // The first of its homes is above the bound for keeping, and is found again as a home of the plan before.
        scene.model(50, 0.85, 2, &[2, 1]);
        scene.endpoints[2].speed = 1.25;
        assert_eq!(placed(&scene, 0.78), [[2, 1]]);
    }
}
