//! The simulation.

fn main() {}
