//! What the tests, the demo and the benchmarks share: a real Envoy, a model server to stand in for GPUs, load.

pub mod bench;
pub mod config_reference;
pub mod demo;
pub mod harness;
pub mod mock;
