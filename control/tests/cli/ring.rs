//! `warmroute ring` with a list of endpoints.

use crate::run::{demo, ids, ring, run};

/// The core's own golden ring, which was computed once with another implementation of xxHash.
const GOLDEN: [(&str, [&str; 3]); 4] = [
    ("model-00", ["gpu-7", "gpu-1", "gpu-2"]),
    ("model-01", ["gpu-3", "gpu-6", "gpu-1"]),
    ("qwen-2.5", ["gpu-2", "gpu-3", "gpu-7"]),
    ("bert", ["gpu-7", "gpu-5", "gpu-1"]),
];

#[test]
fn the_demos_models_are_where_the_golden_ring_has_them() {
    let answer = ring(&demo(), &GOLDEN.map(|(key, _)| key), &["--replicas", "3", "--virtual-nodes", "150"]);
    for (n, (key, expected)) in GOLDEN.iter().enumerate() {
        assert_eq!(answer["keys"][n]["key"], *key);
        assert_eq!(ids(&answer, n), expected, "{key}");
    }
    assert_eq!(answer["keys"][0]["endpoints"][0]["address"], "127.0.0.1:8008");
}

/// xxh64("foo") is 3728699739546630719 in Envoy's published vectors; the help shows that of "bert".
#[test]
fn the_hash_is_sixteen_hex_digits_of_xxh64() {
    let answer = ring(&demo(), &["foo"], &[]);
    assert_eq!(answer["keys"][0]["hash"], format!("{:016x}", 3728699739546630719u64));
    assert!(
        run(&["ring", "--help"]).answer().contains(ring(&demo(), &["bert"], &[])["keys"][0]["hash"].as_str().unwrap())
    );
}

#[test]
fn two_endpoints_are_listed_unless_somebody_says_how_many() {
    let answer = ring(&demo(), &["bert"], &[]);
    assert_eq!(ids(&answer, 0), ["gpu-7", "gpu-5"]);
    assert_eq!((&answer["replicas"], &answer["virtual_nodes"]), (&2.into(), &150.into()));
    assert!(answer["cluster"].is_null());
}

#[test]
fn the_order_of_the_endpoints_does_not_matter() {
    let keys = GOLDEN.map(|(key, _)| key);
    let expected = ring(&demo(), &keys, &["--replicas", "8"]);
    for turn in 0..8 {
        let mut turned = demo();
        turned.rotate_left(turn);
        assert_eq!(ring(&turned, &keys, &["--replicas", "8"]), expected);
        turned.reverse();
        assert_eq!(ring(&turned, &keys, &["--replicas", "8"]), expected);
    }
}

#[test]
fn more_replicas_than_endpoints_list_each_once() {
    let answer = ring(&demo(), &["bert", "model-00"], &["--replicas", "100"]);
    assert_eq!(answer["replicas"], 100);
    for n in 0..2 {
        let mut all = ids(&answer, n);
        all.sort();
        assert_eq!(all, (0..8).map(|n| format!("gpu-{n}")).collect::<Vec<_>>());
    }
}

/// A shorter list is the beginning of a longer one.
#[test]
fn replicas_only_cut_the_list() {
    let all = ids(&ring(&demo(), &["qwen-2.5"], &["--replicas", "8"]), 0);
    for replicas in 1..8 {
        assert_eq!(ids(&ring(&demo(), &["qwen-2.5"], &["--replicas", &replicas.to_string()]), 0), all[..replicas]);
    }
}

/// With the address as the id, the spelling of an IPv6 address does not matter, as in the proxies.
#[test]
fn without_an_id_the_address_is_the_id() {
    let named = ["[fd00::1]:80=[fd00::1]:80", "10.0.0.2:80=10.0.0.2:80"].map(String::from);
    let unnamed = ["[FD00:0:0::1]:80", "10.0.0.2:80"].map(String::from);
    let keys: Vec<_> = (0..20).map(|n| format!("model-{n}")).collect();
    let keys: Vec<_> = keys.iter().map(String::as_str).collect();
    assert_eq!(ring(&unnamed, &keys, &[]), ring(&named, &keys, &[]));
}

#[test]
fn one_that_is_off_the_ring_owns_nothing_and_moves_nobody() {
    let mut endpoints = demo();
    let expected = ring(&endpoints, &["bert"], &["--replicas", "9"]);
    endpoints.push("gpu-8=127.0.0.1:8009*0".into());
    assert_eq!(ring(&endpoints, &["bert"], &["--replicas", "9"]), expected);
}

#[test]
fn the_number_of_virtual_nodes_makes_another_ring() {
    let firsts = |nodes| ids(&ring(&demo(), &["bert"], &["--replicas", "8", "--virtual-nodes", nodes]), 0);
    assert_eq!(firsts("150"), ids(&ring(&demo(), &["bert"], &["--replicas", "8"]), 0));
    assert_ne!(firsts("1"), firsts("150"));
}
