//! The headers that carry a pick to Envoy.

use crate::endpoint::Endpoint;
use crate::strategy::PickList;

/// Bounds Envoy's attempts. Set on every steered request: the header rules over the route's `num_retries`, and a list
/// that runs out falls to the fallback policy over every host, those that may not serve included.
pub const MAX_RETRIES_HEADER: &str = "x-envoy-max-retries";

/// The list in Envoy's form, `ip:port,ip:port`, written over `text`.
pub fn write_destination(picks: &PickList, endpoints: &[Endpoint], text: &mut String) {
    text.clear();
    for endpoint in picks.iter().filter_map(|pick| endpoints.get(pick.position())) {
        if !text.is_empty() {
            text.push(',');
        }
        text.push_str(endpoint.address.as_str());
    }
}

/// How often Envoy may retry: what the configuration allows, and never past the list's end.
#[must_use]
pub fn max_retries(wanted: u8, picks: &PickList) -> u8 {
    let fallbacks = picks.len().saturating_sub(1);
    wanted.min(u8::try_from(fallbacks).unwrap_or(u8::MAX))
}

/// `number` as a header value, without allocation.
#[must_use]
pub fn retries_text(number: u8) -> &'static str {
    const TEXT: [&str; 8] = ["0", "1", "2", "3", "4", "5", "6", "7"];
    // A list has at most eight endpoints, so at most seven retries.
    TEXT.get(usize::from(number)).copied().unwrap_or("7")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::endpoint::EndpointIndex;
    use crate::endpoint::tests::endpoint;
    use crate::strategy::MAX_PICKS;
    #[cfg(target_arch = "wasm32")]
    use wasm_bindgen_test::wasm_bindgen_test as test;

    fn picks(list: &[u32]) -> PickList {
        list.iter().copied().map(EndpointIndex).collect()
    }

    #[test]
    fn the_list_is_comma_separated_in_order() {
        let pool = [endpoint("a", "10.0.0.1:80"), endpoint("b", "[::1]:80"), endpoint("c", "10.0.0.3:80")];
        let mut text = "left over".to_owned();
        for (list, expected) in [
            (picks(&[2, 0]), "10.0.0.3:80,10.0.0.1:80"),
            (picks(&[1]), "[::1]:80"),
            (picks(&[9, 0]), "10.0.0.1:80"),
            (picks(&[]), ""),
        ] {
            write_destination(&list, &pool, &mut text);
            assert_eq!(text, expected);
        }
    }

    #[test]
    fn retries_never_pass_the_end_of_the_list() {
        for (wanted, list, expected) in [(2, 3, 2), (2, 2, 1), (2, 1, 0), (0, 3, 0), (7, 3, 2), (2, 0, 0)] {
            let list: Vec<u32> = (0..list).collect();
            assert_eq!(max_retries(wanted, &picks(&list)), expected, "{wanted} of {list:?}");
        }
    }

    #[test]
    fn every_possible_number_has_its_text() {
        for number in 0..MAX_PICKS as u8 {
            assert_eq!(retries_text(number), number.to_string());
        }
    }
}
