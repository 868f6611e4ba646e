//! Whether Envoy did what the filter asked for, by Envoy's own access log.

use anyhow::{Result, ensure};
use serde_json::Value;

use crate::harness::config;

/// Checks the requests that went through the filter, of which `answered` succeeded. All must have a pick, and at least
/// 99 % must have been served by its first entry: picks that Envoy skips or replaces make the comparison worthless.
pub(super) fn require_obeyed(access_log: &[Value], answered: usize) -> Result<()> {
    let routed: Vec<_> = access_log.iter().filter(|line| line["cluster"] == config::CLUSTER).collect();
    let sent = routed.len();
    ensure!(sent >= answered, "Envoy's access log has {sent} of {answered} requests");
    let picks: Vec<_> = routed.iter().filter_map(|line| Some((*line, line["pick"].as_str()?))).collect();
    ensure!(picks.len() == sent, "Warmroute picked no endpoint for {} of {sent} requests", sent - picks.len());
    let first = |pick: &str| pick.split(',').next().map(str::to_owned);
    let obeyed = picks.iter().filter(|(line, pick)| line["endpoint"].as_str() == first(pick).as_deref()).count();
    ensure!(obeyed * 100 >= sent * 99, "Envoy obeyed the first pick in only {obeyed} of {sent} requests");
    Ok(())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn line(pick: Option<&str>, endpoint: &str) -> Value {
        json!({"cluster": config::CLUSTER, "pick": pick, "endpoint": endpoint})
    }

    fn refusal(log: &[Value], sent: usize) -> String {
        require_obeyed(log, sent).expect_err("accepted").to_string()
    }

    #[test]
    fn first_entries_that_served_are_obeyed_picks() {
        let log = vec![line(Some("127.0.0.1:1,127.0.0.1:2"), "127.0.0.1:1"); 3];
        require_obeyed(&log, 3).expect("refused");
    }

    #[test]
    fn missing_picks_missing_lines_and_other_endpoints_are_told_apart() {
        let good = line(Some("127.0.0.1:1"), "127.0.0.1:1");
        assert!(refusal(&[good.clone(), line(None, "127.0.0.1:1")], 2).contains("picked no endpoint for 1"));
        assert!(refusal(std::slice::from_ref(&good), 2).contains("has 1 of 2"));
        assert!(refusal(&[good, line(Some("127.0.0.1:1"), "127.0.0.1:2")], 2).contains("only 1 of 2"));
    }
}
