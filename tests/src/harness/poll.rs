//! Waiting for a state: poll, never sleep and hope.

use std::time::Duration;

use anyhow::{Context, Result, bail};
use tokio::time::{Instant, sleep};

/// Long enough not to be felt by the process that is asked, short enough not to be felt by who waits.
const PAUSE: Duration = Duration::from_millis(20);

/// Asks `check` again and again until it answers `Ok(Some(value))`.
///
/// `Ok(None)` and errors mean "not yet": a process that starts refuses connections for a while.
///
/// # Errors
/// When `within` has passed; the message says what was awaited and why the last attempt failed.
pub async fn eventually<T, F, Fut>(within: Duration, awaited: &str, mut check: F) -> Result<T>
where
    F: FnMut() -> Fut,
    Fut: Future<Output = Result<Option<T>>>,
{
    let deadline = Instant::now() + within;
    loop {
        let outcome = check().await;
        match outcome {
            Ok(Some(value)) => return Ok(value),
            Ok(None) if Instant::now() >= deadline => {
                bail!("not within {within:?}: {awaited}")
            }
            Err(error) if Instant::now() >= deadline => {
                return Err(error).with_context(|| format!("not within {within:?}: {awaited}"));
            }
            Ok(None) | Err(_) => sleep(PAUSE).await,
        }
    }
}
