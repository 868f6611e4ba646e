//! Which process an id means: ids are used again, and nobody may be ended because of an old note.

use std::time::Duration;

use anyhow::{Result, bail};
use rustix::process::Signal;
use serde::{Deserialize, Serialize};

use crate::harness::{eventually, process};

const PATIENCE: Duration = Duration::from_secs(5);

/// A process, whoever started it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Identity {
    pub pid: u32,
    /// When it started, in whatever form the system tells; the same id with another start is another process.
    pub started: String,
}

impl Identity {
    /// The process that has this id now.
    pub fn of(pid: u32) -> Result<Self> {
        match started(pid) {
            Some(started) => Ok(Self { pid, started }),
            None => bail!("there is no process {pid}"),
        }
    }

    pub fn alive(&self) -> bool {
        started(self.pid).as_ref() == Some(&self.started)
    }

    /// Ends it, gently first; does nothing when it has ended already.
    pub async fn end(&self) -> Result<()> {
        for signal in [Signal::TERM, Signal::KILL] {
            if !self.alive() {
                return Ok(());
            }
            // It may end between the two: then the signal fails, which is as good.
            let sent = process::send(self.pid, signal);
            let ended = || async { Ok((!self.alive()).then_some(())) };
            if eventually(PATIENCE, "the process ends", ended).await.is_ok() {
                return Ok(());
            }
            sent?;
        }
        bail!("process {} does not end", self.pid)
    }
}

/// When the process started, counted by the kernel; none for one that has ended, be it awaited by its parent or not.
#[cfg(target_os = "linux")]
fn started(pid: u32) -> Option<String> {
    let boot = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").ok()?;
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The second field is the name in parentheses, which may contain anything; proc(5) counts fields from 1.
    let mut fields = stat.rsplit_once(") ")?.1.split(' ');
    let state = fields.next()?;
    let start_ticks = fields.nth(22 - 3 - 1)?;
    (!matches!(state, "Z" | "X")).then(|| format!("{} {start_ticks}", boot.trim()))
}

#[cfg(not(target_os = "linux"))]
fn started(pid: u32) -> Option<String> {
    let asked = std::process::Command::new("ps").args(["-o", "stat=,lstart=", "-p", &pid.to_string()]).output();
    let text = String::from_utf8(asked.ok()?.stdout).ok()?;
    let (state, start) = text.trim().split_once(' ')?;
    (!state.starts_with('Z')).then(|| start.trim().to_owned())
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    #[test]
    fn the_same_id_with_another_start_is_another_process() -> Result<()> {
        let own = Identity::of(std::process::id())?;
        assert!(own.alive());
        let stranger = Identity { started: "another boot 1".to_owned(), ..own };
        assert!(!stranger.alive());
        Ok(())
    }

    #[tokio::test]
    async fn ending_ends_the_process_and_spares_a_stranger_with_its_id() -> Result<()> {
        let mut child = Command::new("sleep").arg("1000").spawn()?;
        let identity = Identity::of(child.id())?;
        Identity { started: "another boot 1".to_owned(), ..identity.clone() }.end().await?;
        assert!(identity.alive());
        identity.end().await?;
        assert!(!identity.alive());
        child.wait()?;
        Ok(())
    }
}
