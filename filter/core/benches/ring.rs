//! Time of a ring of 10,000 endpoints: from nothing (aim: 200 ms), with one endpoint changed (aim: 1 ms), and of the
//! longest slice when it is built beside the traffic.
#![allow(
    missing_docs,
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::disallowed_methods,
    reason = "criterion's macros; a bench"
)]

use criterion::{BatchSize, Criterion, criterion_group, criterion_main};
use std::hint::black_box;
use std::time::Instant;
use warmroute_core::endpoint::Endpoint;
use warmroute_core::ring::{Member, Progress, Ring, RingBuilder, members};

const NODES: u32 = 150;

/// As the filter takes it: virtual nodes between two looks at the clock.
const STEP: usize = 512;

fn pool(count: usize) -> Vec<Endpoint> {
    let address = |n: usize| format!("10.{}.{}.{}:8000", n / 65_536, n / 256 % 256, n % 256);
    (0..count).map(|n| Endpoint::new(format!("gpu-{n}"), address(n).parse().unwrap())).collect()
}

fn bench(c: &mut Criterion) {
    let all = pool(10_000);
    let before = members(&all, NODES);
    let ring = Ring::new(&all, NODES);
    let mut group = c.benchmark_group("ring/10000");
    group.sample_size(10);
    group.bench_function("from nothing", |b| b.iter(|| black_box(Ring::new(&all, NODES))));

    let mut heavier = all.clone();
    heavier[4_321].weight = 2.0;
    let mut renamed = all.clone();
    renamed[4_321] = Endpoint::new("new", "10.9.9.9:8000".parse().unwrap());
    let mut more = all.clone();
    more.push(Endpoint::new("new", "10.9.9.9:8000".parse().unwrap()));
    let mut fewer = all.clone();
    fewer.swap_remove(4_321);
    group.sample_size(50);
    for (name, after) in [("one heavier", heavier), ("one replaced", renamed), ("one more", more), ("one fewer", fewer)]
    {
        let after = members(&after, NODES);
        // With the old ring in use elsewhere, as the pool that still serves has it.
        group.bench_function(name, |b| {
            b.iter_batched(
                || ring.clone(),
                |ring| black_box(RingBuilder::change(ring, &before, &after).finish()),
                BatchSize::PerIteration,
            );
        });
    }
    group.finish();
    slices(&before);
}

/// The longest single step, which criterion's means would hide.
fn slices(members: &[Member]) {
    let mut longest: Vec<_> = (0..7)
        .map(|_| {
            let begun = Instant::now();
            let mut builder = RingBuilder::from_nothing(members);
            let setup = begun.elapsed();
            let (mut most, mut steps) = (std::time::Duration::ZERO, 0);
            loop {
                let begun = Instant::now();
                let progress = builder.step(STEP);
                most = most.max(begun.elapsed());
                steps += 1;
                if progress == Progress::Done {
                    break (most, setup, steps);
                }
            }
        })
        .collect();
    longest.sort_unstable();
    let (most, setup, steps) = longest[3];
    println!(
        "ring/10000 in slices: median of 7 runs: longest step {most:?}, before the first {setup:?}, {steps} steps"
    );
}

criterion_group!(benches, bench);
criterion_main!(benches);
