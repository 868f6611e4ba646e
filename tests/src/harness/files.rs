//! Where the things are that a run needs.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};

/// The repository's root: the parent of this crate's folder.
pub fn repository_root() -> PathBuf {
    let crate_folder = Path::new(env!("CARGO_MANIFEST_DIR"));
    crate_folder.parent().unwrap_or(crate_folder).to_path_buf()
}

/// The Envoy to run: the path in the environment variable `ENVOY`.
///
/// # Errors
/// When it is not set or names no file; the message says what to do.
pub fn envoy_binary() -> Result<PathBuf> {
    let hint = "run `tools/setup.sh` once, then `. tools/env.sh` (`make` does both)";
    let path = std::env::var_os("ENVOY")
        .map(PathBuf::from)
        .with_context(|| format!("ENVOY is not set to the path of an Envoy binary: {hint}"))?;
    if !path.is_file() {
        bail!("ENVOY={} is not a file: {hint}", path.display());
    }
    Ok(path)
}

/// The filter as `tools/build-wasm.sh` leaves it.
///
/// # Errors
/// When it has not been built; the message names the command.
pub fn filter_wasm() -> Result<PathBuf> {
    let path = repository_root().join("target/wasm/warmroute_filter.wasm");
    if !path.is_file() {
        bail!("{} does not exist: build it with `tools/build-wasm.sh`", path.display());
    }
    Ok(path)
}
