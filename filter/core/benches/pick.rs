//! Time of one answer by each strategy, in small and large pools; and of reading a request. The aim is one microsecond
//! at 10,000 endpoints.
#![allow(missing_docs, clippy::unwrap_used, clippy::indexing_slicing, reason = "criterion's macros; a bench")]

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use rand::rngs::Xoshiro256PlusPlus;
use rand::{RngExt, SeedableRng};
use std::hint::black_box;
use std::time::Duration;
use warmroute_core::endpoint::{Endpoint, EndpointIndex};
use warmroute_core::hash::hash;
use warmroute_core::live::LivePool;
use warmroute_core::load::Registry;
use warmroute_core::plan::{Placement, Plan};
use warmroute_core::pool::Pool;
use warmroute_core::request::{BodyHint, BodyScanner, BodySettings, Request, RequestSettings};
use warmroute_core::settings::{PlanSource, PoolSettings};
use warmroute_core::strategy::StrategyName;

const MODELS: usize = 10_000;
const NOW: Duration = Duration::from_secs(100);

/// Every tenth endpoint is marked, and each model has up to four homes.
fn pool(count: usize, strategy: StrategyName) -> LivePool {
    let address = |n: usize| format!("10.{}.{}.{}:8000", n / 65_536, n / 256 % 256, n % 256);
    let mut endpoints: Vec<_> =
        (0..count).map(|n| Endpoint::new(format!("gpu-{n}"), address(n).parse().unwrap())).collect();
    endpoints.iter_mut().step_by(10).for_each(|endpoint| endpoint.marked_unhealthy = true);
    let home = |model: usize, k: usize| endpoints[(model * 7 + k * 3) % count].key();
    let placement = |model| Placement { homes: (0..1 + model % 4).map(|k| home(model, k)).collect(), tail: false };
    let plan = Plan::new(1, (0..MODELS).map(|model| (hash(name(model).as_bytes()), placement(model))));
    let plan = if strategy == StrategyName::Homes { PlanSource::Fixed(plan) } else { PlanSource::None };
    let mut pool = Pool::new(PoolSettings { strategy, plan, ..PoolSettings::default() });
    pool.update(endpoints);
    LivePool::new(pool, &mut Registry::default())
}

fn name(model: usize) -> String {
    format!("model-{model}")
}

/// Zipf 0.9 by inversion of its continuous form.
fn stream() -> Vec<String> {
    let mut rng = Xoshiro256PlusPlus::seed_from_u64(7);
    (0..4_096).map(|_| name(((rng.random::<f64>().powf(10.0) * MODELS as f64) as usize).min(MODELS - 1))).collect()
}

fn picks(c: &mut Criterion) {
    let names = stream();
    for count in [10, 1_000, 10_000] {
        let mut group = c.benchmark_group(format!("pick/{count}"));
        for strategy in StrategyName::ALL {
            let pool = pool(count, strategy);
            let requests: Vec<_> = names.iter().map(|name| Request::for_model(name.as_bytes())).collect();
            let mut rng = Xoshiro256PlusPlus::seed_from_u64(1);
            // A thousand requests in flight, spread.
            let busy: Vec<_> = (0..1_000)
                .filter_map(|n| match pool.answer(&requests[n], NOW, &mut rng) {
                    warmroute_core::picker::Answer::Pick(pick) => pool.start(&requests[n], &pick, NOW),
                    _ => None,
                })
                .collect();
            let mut n = 0;
            group.bench_function(strategy.name(), |b| {
                b.iter(|| {
                    n = (n + 1) % requests.len();
                    black_box(pool.answer(black_box(&requests[n]), NOW, &mut rng))
                });
            });
            assert_eq!(busy.len(), 1_000);
        }
        group.finish();
    }
}

fn requests(c: &mut Criterion) {
    let settings = RequestSettings {
        model_headers: ["x-model-id".into(), "model-id".into()].into(),
        type_headers: ["x-request-type".into(), "request-type".into()].into(),
        ..RequestSettings::default()
    };
    let plain: Vec<_> = (0..18).map(|n| (format!("x-header-{n}"), "some value".to_owned())).collect();
    let mut headers: Vec<(&[u8], &[u8])> = plain.iter().map(|(n, v)| (n.as_bytes(), v.as_bytes())).collect();
    headers.push((b":path", b"/v2/models/llama/infer"));
    let mut group = c.benchmark_group("request");
    group.bench_function("20 headers, model in the path", |b| {
        b.iter(|| black_box(Request::from_headers(&settings, black_box(&headers).iter().copied(), None)));
    });
    headers.push((b"x-model-id", b"llama-3-70b"));
    group.bench_function("20 headers, model in a header", |b| {
        b.iter(|| black_box(Request::from_headers(&settings, black_box(&headers).iter().copied(), None)));
    });
    let body =
        format!(r#"{{"messages":[{{"role":"user","content":"{}"}}],"model":"llama"}}"#, "lorem ipsum ".repeat(84));
    group.throughput(Throughput::Bytes(body.len() as u64));
    group.bench_function("a JSON body of one KiB, model at its end", |b| {
        b.iter(|| {
            let mut scanner = BodyScanner::new(BodyHint::Json, &BodySettings { max_bytes: 65_536 }).unwrap();
            black_box(scanner.feed(black_box(body.as_bytes())));
        });
    });
    group.finish();
}

/// One request's whole way through the core: pick, count, end.
fn whole(c: &mut Criterion) {
    let pool = pool(10_000, StrategyName::Homes);
    let names = stream();
    let requests: Vec<_> = names.iter().map(|name| Request::for_model(name.as_bytes())).collect();
    let mut rng = Xoshiro256PlusPlus::seed_from_u64(1);
    let mut n = 0;
    c.bench_function("pick, start and end by homes/10000", |b| {
        b.iter(|| {
            n = (n + 1) % requests.len();
            let warmroute_core::picker::Answer::Pick(pick) = pool.answer(&requests[n], NOW, &mut rng) else { return };
            if let Some(sent) = pool.start(&requests[n], &pick, NOW) {
                let end = warmroute_core::live::End {
                    endpoint: pick.endpoints.first().copied().unwrap_or(EndpointIndex(0)),
                    outcome: warmroute_core::outcome::Outcome::Success,
                    service_time: Duration::from_millis(50),
                    model_unknown: false,
                };
                pool.ended(&sent, &end, NOW);
            }
        });
    });
}

criterion_group!(benches, picks, requests, whole);
criterion_main!(benches);
