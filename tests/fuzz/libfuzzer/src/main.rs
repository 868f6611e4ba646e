//! One program for all targets, which `WARMROUTE_FUZZ_TARGET` chooses. Started by tools/fuzz.sh.
#![no_main]

use libfuzzer_sys::fuzz_target;
use std::sync::OnceLock;
use warmroute_fuzz::{Check, target};

static CHECK: OnceLock<Check> = OnceLock::new();

fn chosen() -> Check {
    let name = std::env::var("WARMROUTE_FUZZ_TARGET").expect("WARMROUTE_FUZZ_TARGET names a target");
    target(&name).expect("a target of that name")
}

fuzz_target!(|bytes: &[u8]| CHECK.get_or_init(chosen)(bytes));
