//! Child processes that do not outlive their purpose.

use std::os::unix::process::CommandExt;
use std::process::{Child, Command, ExitStatus};
use std::sync::{OnceLock, mpsc};
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, anyhow};
use rustix::process::{Pid, Signal, kill_process};

use super::eventually;

/// What ends a child besides its own will.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Lifetime {
    /// The kernel ends it when this process ends, even by SIGKILL (Linux; elsewhere only dropping the guard does).
    WithParent,
    /// A session of its own: it stays when this process and its terminal have gone.
    Detached,
}

/// A child process; dropping the guard kills it.
#[derive(Debug)]
pub struct Process {
    child: Child,
}

impl Process {
    /// Starts `command` so that it ends with this process.
    pub fn spawn(command: Command) -> Result<Self> {
        let child = spawn(command, Lifetime::WithParent)?;
        Ok(Self { child })
    }

    pub fn id(&self) -> u32 {
        self.child.id()
    }

    pub(crate) fn child_mut(&mut self) -> &mut Child {
        &mut self.child
    }

    /// How it ended, if it has.
    pub fn exited(&mut self) -> Result<Option<ExitStatus>> {
        self.child.try_wait().context("cannot ask for a child's state")
    }

    /// Asks it to end (SIGTERM) and kills it when it has not after `patience`.
    pub async fn stop(mut self, patience: Duration) -> Result<()> {
        send(self.id(), Signal::TERM)?;
        let child = &mut self.child;
        let ended = eventually(patience, "the process ends", || {
            let state = child.try_wait();
            async move { Ok(state?) }
        });
        // Not ended in time: dropping the guard kills it.
        ended.await.map(drop)
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // Both fail only when the child has been reaped already, which is what they are for.
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

/// Sends `signal` to one process.
pub fn send(id: u32, signal: Signal) -> Result<()> {
    let pid = i32::try_from(id).ok().and_then(Pid::from_raw);
    let pid = pid.with_context(|| format!("{id} is no process id"))?;
    kill_process(pid, signal).with_context(|| format!("cannot send {signal:?} to process {id}"))
}

type Job = (Command, mpsc::Sender<std::io::Result<Child>>);

/// Starts `command` with the given lifetime.
///
/// One thread, which lives as long as this process, starts all children: Linux counts the *thread* that started a
/// child as its parent, and a runtime's worker threads come and go.
pub fn spawn(mut command: Command, lifetime: Lifetime) -> Result<Child> {
    static STARTER: OnceLock<mpsc::Sender<Job>> = OnceLock::new();
    let starter = STARTER.get_or_init(|| {
        let (jobs, queue) = mpsc::channel::<Job>();
        thread::spawn(move || {
            for (mut command, reply) in queue {
                // Nobody waits for the reply any more only if the process is ending.
                drop(reply.send(command.spawn()));
            }
        });
        jobs
    });

    let parent = rustix::process::getpid();
    // SAFETY: between fork and exec the closure only makes system calls; it takes no lock and allocates nothing.
    unsafe {
        command.pre_exec(move || prepare(lifetime, parent));
    }
    let program = command.get_program().to_string_lossy().into_owned();
    let (reply, answer) = mpsc::channel();
    starter.send((command, reply)).map_err(|_| anyhow!("the starter thread has ended"))?;
    let child = answer.recv().context("the starter thread has ended")?;
    child.with_context(|| format!("cannot start {program}"))
}

/// Runs in the child before it becomes the new program.
fn prepare(lifetime: Lifetime, parent: Pid) -> std::io::Result<()> {
    match lifetime {
        Lifetime::Detached => {
            rustix::process::setsid()?;
        }
        Lifetime::WithParent => end_with(parent)?,
    }
    Ok(())
}

#[cfg(target_os = "linux")]
fn end_with(parent: Pid) -> std::io::Result<()> {
    rustix::process::set_parent_process_death_signal(Some(Signal::KILL))?;
    // The parent may have died before the line above took effect.
    if rustix::process::getppid() != Some(parent) {
        return Err(std::io::ErrorKind::BrokenPipe.into());
    }
    Ok(())
}

#[cfg(not(target_os = "linux"))]
fn end_with(_parent: Pid) -> std::io::Result<()> {
    Ok(())
}
