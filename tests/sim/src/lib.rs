//! Pools of GPUs in virtual time, routed by the real core.

pub mod arrivals;
pub mod cell;
pub mod cells;
pub mod events;
pub mod gpu;
pub mod grid;
pub mod memory;
pub mod names;
pub mod plot;
pub mod policy;
pub mod promises;
pub mod record;
pub mod table;
pub mod world;
