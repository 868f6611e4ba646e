//! The filter in a real Envoy, with the configuration that ships, in front of mock model servers.

mod bodies;
mod configuration;
mod eligibility;
mod ending;
mod explaining;
mod input;
mod large;
mod plans;
mod rig;
mod routing;
mod sessions;
mod strategies;
mod waiting;
