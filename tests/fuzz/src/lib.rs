//! What each fuzz target checks.
