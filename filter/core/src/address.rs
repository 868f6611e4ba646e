//! An endpoint's address, in the spelling that Envoy uses.

use std::fmt;
use std::net::SocketAddr;
use std::str::FromStr;

/// `ip:port`, IPv6 in brackets: exactly the text by which Envoy's override_host policy finds a host and by which
/// `upstream.address` names it. Host names are refused, since Envoy would not find them.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Address {
    text: Box<str>,
}

/// Why a text is no address.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AddressError {
    /// Not `ip:port`; a host name, a missing port, or IPv6 without brackets.
    #[error("must be ip:port, with IPv6 in brackets: \"10.0.0.7:8000\" or \"[fd00::7]:8000\"")]
    NotIpPort,
    /// Port 0 cannot be connected to.
    #[error("port must be 1 to 65535")]
    PortZero,
}

impl Address {
    /// The canonical text, such as `10.0.0.7:8000` or `[fd00::7]:8000`.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.text
    }
}

impl FromStr for Address {
    type Err = AddressError;

    fn from_str(text: &str) -> Result<Self, AddressError> {
        let socket: SocketAddr = text.parse().map_err(|_| AddressError::NotIpPort)?;
        if let SocketAddr::V6(v6) = socket
            && (v6.scope_id() != 0 || v6.flowinfo() != 0)
        {
            return Err(AddressError::NotIpPort);
        }
        if socket.port() == 0 {
            return Err(AddressError::PortZero);
        }
        Ok(Self { text: socket.to_string().into_boxed_str() })
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    #[cfg(target_arch = "wasm32")]
    use wasm_bindgen_test::wasm_bindgen_test as test;

    #[test]
    fn canonical_text_is_envoys() {
        for (given, canonical) in [
            ("10.0.0.7:8000", "10.0.0.7:8000"),
            ("[::1]:80", "[::1]:80"),
            ("[FD00:0:0:0:0:0:0:7]:8000", "[fd00::7]:8000"),
            ("127.0.0.1:65535", "127.0.0.1:65535"),
        ] {
            assert_eq!(given.parse::<Address>().map(|a| a.to_string()), Ok(canonical.to_owned()));
        }
    }

    #[test]
    fn refuses_what_envoy_would_not_find() {
        for given in [
            "",
            "localhost:80",
            "10.0.0.7",
            "10.0.0.7:",
            "10.0.0.7:65536",
            "::1:80",
            "[::1]",
            "[fe80::1%1]:80",
            "10.0.0.7:80,10.0.0.8:80",
            " 10.0.0.7:80",
            "10.0.0.007:80",
            "http://10.0.0.7:80",
        ] {
            assert_eq!(given.parse::<Address>(), Err(AddressError::NotIpPort), "{given:?}");
        }
        assert_eq!("10.0.0.7:0".parse::<Address>(), Err(AddressError::PortZero));
    }
}
