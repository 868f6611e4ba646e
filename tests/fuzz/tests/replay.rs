//! Every target over its corpus and seeded mutations of it, so that each `cargo test` fuzzes a little. What a run under
//! `tools/fuzz.sh` finds is put into the corpus and fails here from then on.

use rand::rngs::Xoshiro256PlusPlus;
use rand::{RngExt, SeedableRng};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use warmroute_fuzz::{Check, target};

const SEED: u64 = 20_260_101;

/// Mutations of one target.
const MUTATIONS: usize = 40_000;

/// The most bytes of a mutation.
const MAX_BYTES: usize = 4_096;

fn corpus(name: &str) -> Vec<Vec<u8>> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus").join(name);
    let files = std::fs::read_dir(&folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
    let mut paths: Vec<_> = files.map(|file| file.expect("a file of the corpus").path()).collect();
    // In whatever order the folder has them, the mutations are the same.
    paths.sort();
    let read = |path: &std::path::PathBuf| std::fs::read(path).expect("a readable file");
    paths.iter().map(read).collect()
}

/// One to four small changes; now and then the end of another input.
fn mutate(input: &[u8], others: &[Vec<u8>], rng: &mut Xoshiro256PlusPlus) -> Vec<u8> {
    let mut bytes = input.to_vec();
    for _ in 0..rng.random_range(1..=4) {
        let at = rng.random_range(0..=bytes.len());
        let to = rng.random_range(at..=bytes.len());
        match rng.random_range(0..7) {
            0 => bytes.insert(at, rng.random()),
            1 => bytes.truncate(at),
            2 => drop(bytes.drain(at..to.min(at + 4))),
            3 => bytes.splice(at..at, bytes[at..to].to_vec()).for_each(drop),
            4 => {
                let other = &others[rng.random_range(0..others.len())];
                bytes.truncate(at);
                bytes.extend(&other[rng.random_range(0..=other.len())..]);
            }
            5 if at < bytes.len() => bytes[at] ^= 1 << rng.random_range(0..8),
            _ if at < bytes.len() => {
                bytes[at] = [0, 1, 0x7F, 0xFF, b'"', b'{', b'}', b'\\', b'%'][rng.random_range(0..9)]
            }
            _ => bytes.push(rng.random()),
        }
    }
    bytes.truncate(MAX_BYTES);
    bytes
}

fn run(check: Check, name: &str, input: &[u8]) {
    if let Err(panic) = catch_unwind(AssertUnwindSafe(|| check(input))) {
        eprintln!("{name}: seed {SEED}, failing input b\"{}\"", input.escape_ascii());
        std::panic::resume_unwind(panic);
    }
}

fn replay(name: &str) {
    let check = target(name).expect("a target");
    let seeds = corpus(name);
    assert!(!seeds.is_empty(), "no corpus for {name}");
    seeds.iter().for_each(|seed| run(check, name, seed));
    run(check, name, b"");
    let mut rng = Xoshiro256PlusPlus::seed_from_u64(SEED);
    for n in 0..MUTATIONS {
        let input = mutate(&seeds[n % seeds.len()], &seeds, &mut rng);
        run(check, name, &input);
    }
}

macro_rules! replays {
    ($($name:ident),*) => {
        $(#[test] fn $name() { replay(stringify!($name)); })*

        #[test]
        fn every_target_is_replayed() {
            let names = [$(stringify!($name)),*];
            assert_eq!(warmroute_fuzz::TARGETS.map(|(name, _)| name).as_slice(), names);
        }
    };
}

replays!(config, grpc_body, headers, json_body, plan, ring_changes, session);
