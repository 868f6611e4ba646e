//! The filter in a real Envoy, with the configuration that ships, in front of mock model servers.

mod configuration;
mod ending;
mod input;
mod rig;
mod routing;
