//! CPU time of a process.

use std::time::Duration;

use anyhow::{Context, Result, bail};

/// User and system time of all threads of a process so far, from `/proc/PID/stat` (proc_pid_stat(5), fields 14
/// and 15). Its unit is a clock tick, 10 ms nearly everywhere: runs must be long against that.
pub(super) fn cpu_time(process_id: u32) -> Result<Duration> {
    let path = format!("/proc/{process_id}/stat");
    let stat = std::fs::read_to_string(&path).with_context(|| format!("cannot read {path}; the bench needs Linux"))?;
    let ticks = user_and_system_ticks(&stat).with_context(|| format!("{path}: {stat}"))?;
    let per_second = rustix::param::clock_ticks_per_second();
    if per_second == 0 {
        bail!("the system has no clock tick");
    }
    Ok(Duration::from_secs(1) * u32::try_from(ticks)? / u32::try_from(per_second)?)
}

fn user_and_system_ticks(stat: &str) -> Result<u64> {
    // The second field is the program's name in brackets, which may hold spaces and brackets itself.
    let (_, fields) = stat.rsplit_once(')').context("no program name")?;
    let mut fields = fields.split_ascii_whitespace().skip(11);
    let mut next = || -> Result<u64> { Ok(fields.next().context("too few fields")?.parse()?) };
    Ok(next()? + next()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_are_fields_14_and_15_whatever_the_program_is_called() -> Result<()> {
        let stat = "7 (a) b (c) S 1 7 7 0 -1 4194560 100 0 0 0 250 40 9 9 20 0 3 0 100 1000 10";
        assert_eq!(user_and_system_ticks(stat)?, 290);
        Ok(())
    }

    #[test]
    fn a_short_line_is_an_error() {
        assert!(user_and_system_ticks("7 (envoy) S 1 7").is_err());
        assert!(user_and_system_ticks("").is_err());
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn work_shows_in_the_own_cpu_time() -> Result<()> {
        let own = std::process::id();
        let before = cpu_time(own)?;
        let mut sum = 0_u64;
        while cpu_time(own)? < before + Duration::from_millis(50) {
            sum = std::hint::black_box(sum.wrapping_add(1));
        }
        assert!(sum > 0);
        Ok(())
    }
}
