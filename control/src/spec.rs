//! One endpoint as a command line writes it: `[id=]address[*weight]`.
//!
//! The id ends at the last `=` and the weight begins at the last `*` after that; neither can stand in an address, so an
//! id may hold both. Only a comma, which separates endpoints, it may not.

use warmroute_core::address::Address;
use warmroute_core::config::limits;
use warmroute_core::endpoint::Endpoint;

/// Reads an endpoint.
///
/// # Errors
/// What is wrong with it and what is allowed.
pub fn endpoint(text: &str) -> Result<Endpoint, String> {
    if text.is_empty() {
        return Err("an endpoint is empty, must be [id=]ip:port[*weight]".into());
    }
    let (id, rest) = text.rsplit_once('=').map_or((None, text), |(id, rest)| (Some(id), rest));
    let (address, weight) = rest.rsplit_once('*').map_or((rest, None), |(address, weight)| (address, Some(weight)));
    let address: Address = address.parse().map_err(|error| format!("address {address:?}: {error}"))?;
    let weight = weight.map_or(Ok(limits::WEIGHT), read_weight)?;
    let id = id.map_or(Ok(address.as_str()), check_id)?.to_owned();
    Ok(Endpoint { weight, ..Endpoint::new(id, address) })
}

fn check_id(id: &str) -> Result<&str, String> {
    if id.is_empty() || id.len() > limits::MAX_NAME_BYTES {
        return Err(format!("the id is {} bytes long, allowed are 1 to {}", id.len(), limits::MAX_NAME_BYTES));
    }
    // "a=…, b=…" would else put " b" on the ring, which is somewhere else than "b".
    if id.trim() != id {
        return Err(format!("the id {id:?} begins or ends with white space, which is not allowed here"));
    }
    Ok(id)
}

fn read_weight(text: &str) -> Result<f64, String> {
    let range = limits::WEIGHT_RANGE;
    let weight = text.parse().ok().filter(|weight| range.contains(weight));
    weight.ok_or_else(|| format!("weight {text:?}: must be a number from {} to {}", range.start(), range.end()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn id_and_weight_may_be_left_out() {
        for (text, id, address, weight) in [
            ("10.0.0.1:80", "10.0.0.1:80", "10.0.0.1:80", 1.0),
            ("gpu-0=10.0.0.1:80", "gpu-0", "10.0.0.1:80", 1.0),
            ("10.0.0.1:80*2.5", "10.0.0.1:80", "10.0.0.1:80", 2.5),
            ("gpu-0=10.0.0.1:80*0", "gpu-0", "10.0.0.1:80", 0.0),
            ("gpu-0=[FD00:0::7]:80*10", "gpu-0", "[fd00::7]:80", 10.0),
            ("[FD00:0::7]:80", "[fd00::7]:80", "[fd00::7]:80", 1.0),
            ("a=b*2=10.0.0.1:80", "a=b*2", "10.0.0.1:80", 1.0),
        ] {
            let read = endpoint(text).unwrap();
            assert_eq!((&*read.id, read.address.as_str(), read.weight), (id, address, weight), "{text}");
        }
    }

    #[test]
    fn a_mistake_is_told_with_its_value_and_what_is_allowed() {
        let long = format!("{}=10.0.0.1:80", "x".repeat(257));
        for (text, message) in [
            ("", "an endpoint is empty, must be [id=]ip:port[*weight]"),
            ("gpu-0", "address \"gpu-0\": must be ip:port, with IPv6 in brackets"),
            ("gpu-0=localhost:80", "address \"localhost:80\": must be ip:port"),
            ("gpu-0=10.0.0.1:0", "address \"10.0.0.1:0\": port must be 1 to 65535"),
            ("=10.0.0.1:80", "the id is 0 bytes long, allowed are 1 to 256"),
            (&long, "the id is 257 bytes long"),
            (" gpu-1=10.0.0.1:80", "the id \" gpu-1\" begins or ends with white space"),
            ("10.0.0.1:80*-1", "weight \"-1\": must be a number from 0 to 10"),
            ("10.0.0.1:80*NaN", "weight \"NaN\": must be"),
            ("10.0.0.1:80*inf", "weight \"inf\": must be"),
            ("10.0.0.1:80*10.5", "weight \"10.5\": must be"),
            ("10.0.0.1:80*", "weight \"\": must be"),
            ("10.0.0.1:80*2*2", "address \"10.0.0.1:80*2\": must be ip:port"),
        ] {
            let error = endpoint(text).unwrap_err();
            assert!(error.starts_with(message), "{text:?}: {error}");
        }
    }
}
