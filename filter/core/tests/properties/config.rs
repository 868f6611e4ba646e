//! Configurations that were damaged on their way.

use crate::fixed;
use proptest::prelude::*;
use warmroute_core::config::{Config, ConfigError, limits, parse};

/// Everything that a configuration can say.
const WHOLE: &str = r#"{"pools":[{"cluster":"c","strategy":"homes","virtual_nodes":9,"fallbacks":3,"max_retries":1,
"memory_units":4,"slots":2,"load_cost":7.5,"updates":"pool","panic_threshold_ratio":0.25,
"plan":{"fixed":{"version":7,"models":[{"id":"m","homes":["a","b"]}]}},
"models":[{"id":"n","strategy":"p2c","size_units":2,"load_ms":300}],
"payload_classes":[{"name":"large","above_bytes":1000,"weight":9,"labels":["tier=batch"]}],
"endpoints":[{"address":"10.0.0.1:80","id":"a","models":["m"],"serves":["m","n"],"labels":["tier=batch"],"weight":2},
{"address":"[fd00::7]:80","id":"b","unhealthy":true,"draining":false,"active_nodes":3,"memory_units":8}]}],
"request":{"model_headers":["x-model-id"],"type_headers":["x-request-type"],"destination_header":"x-to",
"aliases":{"chat":"m"},"default_model":"m","trusted":true,"urgency_header":"x-urgency","hash_header":"x-key",
"session":{"header":"x-session","cookie":{"name":"sid","ttl_seconds":60},"address":true},
"body":{"max_bytes":4096}},
"explain":{"header":"x-why","log_ratio":0.5}}"#;

/// An answer says what it must: facts within their ranges, or at least one problem, each with its path.
fn check(answer: Result<Config, ConfigError>) -> Result<(), TestCaseError> {
    match answer {
        Ok(config) => {
            for settings in config.pools.iter().map(|pool| &pool.settings) {
                prop_assert!(limits::VIRTUAL_NODES_RANGE.contains(&settings.virtual_nodes));
                prop_assert!(limits::FALLBACKS_RANGE.contains(&settings.fallbacks.into()));
                prop_assert!(settings.max_retries <= settings.fallbacks);
                prop_assert!(limits::PANIC_RANGE.contains(&settings.panic_threshold));
                prop_assert!(limits::SLOTS_RANGE.contains(&settings.slots));
            }
        }
        Err(error) => {
            prop_assert!(!error.problems.is_empty() && error.problems.len() <= limits::MAX_PROBLEMS);
            for problem in &error.problems {
                prop_assert!(!problem.path.is_empty() && !problem.message.is_empty(), "{:?}", problem);
            }
            let text = error.to_string();
            prop_assert!(!text.contains(char::is_control) && text.len() < 20_000, "{}", text);
        }
    }
    Ok(())
}

#[test]
fn the_whole_configuration_is_taken() {
    let config = parse(WHOLE.as_bytes()).unwrap();
    assert_eq!((config.pools.len(), config.request.aliases.len()), (1, 1));
}

/// The path of a problem is never empty, or a user is told `: unknown field` and nothing of where.
#[test]
fn a_field_without_a_name_is_refused_with_a_path() {
    check(parse(br#"{"": 1}"#)).unwrap();
}

proptest! {
    #![proptest_config(fixed(3_000))]

    #[test]
    fn a_configuration_with_one_byte_changed_is_taken_or_refused_with_a_path(
        at in 0..WHOLE.len(),
        byte in prop_oneof![any::<u8>(), prop::sample::select(b"\"{}[],:0-9e.tfn ".to_vec())],
        how in 0u8..3,
    ) {
        let mut json = WHOLE.as_bytes().to_vec();
        match how {
            0 => json[at] = byte,
            1 => json.insert(at, byte),
            _ => drop(json.remove(at)),
        }
        check(parse(&json))?;
    }

    #[test]
    fn a_configuration_that_was_cut_is_refused_with_a_path(length in 1..WHOLE.len()) {
        let answer = parse(&WHOLE.as_bytes()[..length]);
        prop_assert!(answer.is_err());
        check(answer)?;
    }
}
