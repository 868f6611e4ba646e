//! Results as text, in Markdown.

use crate::cell::{Cell, Fault};
use crate::cells::Group;
use crate::grid::Row;
use crate::policy::PolicyName;
use std::fmt::Write as _;

/// All tables.
#[must_use]
pub fn tables(rows: &[Row], policies: &[PolicyName]) -> String {
    let mut text = String::new();
    let groups = [
        (Group::Feasible, "Feasible cells, half load and more"),
        (Group::LowLoad, "Low load: 0.05 to 0.3"),
        (Group::Demo, "Size of the demo"),
        (Group::Alone, "As asked"),
    ];
    for (group, title) in groups {
        let rows: Vec<&Row> = rows.iter().filter(|row| row.group == group).collect();
        if !rows.is_empty() {
            sums(&mut text, title, &rows, policies);
            by_cell(&mut text, &rows, policies);
        }
    }
    let faults: Vec<&Row> = rows.iter().filter(|row| row.group == Group::Fault).collect();
    if !faults.is_empty() {
        text.push_str(&fault_table(&faults));
    }
    text
}

/// One line a policy: what it comes to over all cells.
fn sums(text: &mut String, title: &str, rows: &[&Row], policies: &[PolicyName]) {
    let cells = rows.iter().filter(|row| row.policy == rows[0].policy).count();
    line(text, format_args!("\n### {title} (cells: {cells})\n"));
    line(
        text,
        format_args!(
            "| policy | goodput %, mean (worst cell) | cold loads % (first of a model) | p50 ms | p95 ms | p99 ms |"
        ),
    );
    line(text, format_args!("|---|---|---|---|---|---|"));
    for policy in policies {
        let own: Vec<&Row> = rows.iter().copied().filter(|row| row.policy == *policy).collect();
        let goodput = own.iter().map(|row| row.mean(|run| run.goodput));
        let worst = goodput.clone().fold(1.0, f64::min);
        line(
            text,
            format_args!(
                "| {} | {:.1} ({:.1}) | {:.3} ({:.3}) | {:.0} | {:.0} | {:.0} |",
                policy.name(),
                100.0 * mean(goodput),
                100.0 * worst,
                100.0 * mean(own.iter().map(|row| row.mean(|run| run.cold))),
                100.0 * mean(own.iter().map(|row| row.mean(|run| run.first))),
                1e3 * geometric_mean(own.iter().map(|row| row.mean(|run| run.p50))),
                1e3 * geometric_mean(own.iter().map(|row| row.mean(|run| run.p95))),
                1e3 * geometric_mean(own.iter().map(|row| row.mean(|run| run.p99))),
            ),
        );
    }
}

/// One line a cell, the policies side by side.
fn by_cell(text: &mut String, rows: &[&Row], policies: &[PolicyName]) {
    let names: Vec<&str> = policies.iter().map(|policy| policy.name()).collect();
    line(text, format_args!("\n| goodput % · cold loads % · p99 ms | {} |", names.join(" | ")));
    line(text, format_args!("|---|{}", "---|".repeat(names.len())));
    for of_cell in rows.chunks(policies.len()) {
        let figures = of_cell.iter().map(|row| {
            let (goodput, cold) = (row.mean(|run| run.goodput), row.mean(|run| run.cold));
            format!("{:.1} · {:.3} · {:.0}", 100.0 * goodput, 100.0 * cold, 1e3 * row.mean(|run| run.p99))
        });
        line(text, format_args!("| {} | {} |", of_cell[0].name, figures.collect::<Vec<_>>().join(" | ")));
    }
}

fn fault_table(rows: &[&Row]) -> String {
    let mut text = String::new();
    line(&mut text, format_args!("\n### Faults, 20 s into the measured time\n"));
    line(
        &mut text,
        format_args!(
            "| pool | fault | policy | goodput % after | worst second % (mean, worst seed) | at second | errors % |"
        ),
    );
    line(&mut text, format_args!("|---|---|---|---|---|---|---|"));
    for row in rows {
        let after =
            |value: fn(&crate::record::AfterFault) -> f64| row.mean(|run| run.after_fault.as_ref().map_or(0.0, value));
        let worst =
            row.runs.iter().filter_map(|run| run.after_fault).min_by(|a, b| a.worst_second.total_cmp(&b.worst_second));
        line(
            &mut text,
            format_args!(
                "| {} endpoints, {} | {} | {} | {:.2} | {:.1}, {:.1} | {} | {:.3} |",
                row.cell.endpoints,
                row.name,
                fault_name(&row.cell),
                row.policy.name(),
                100.0 * after(|after| after.goodput),
                100.0 * after(|after| after.worst_second),
                100.0 * worst.map_or(0.0, |worst| worst.worst_second),
                worst.map_or(0, |worst| worst.worst_after_seconds),
                100.0 * row.mean(|run| run.failed),
            ),
        );
    }
    text
}

fn fault_name(cell: &Cell) -> &'static str {
    match cell.fault {
        Some(Fault::EndpointDeath) => "endpoint dies",
        Some(Fault::HubDeath) => "hub dies",
        Some(Fault::Nothing) | None => "none",
    }
}

/// What the planner did, one line a cell.
#[must_use]
pub fn churn(rows: &[Row]) -> String {
    let mut text = String::new();
    line(&mut text, format_args!("\n### What the planner did: first seed\n"));
    line(
        &mut text,
        format_args!(
            "| cell | policy | goodput % | moves measured (all) | lane changes | lanes | pinned + tail | most homes | θ | service ms |"
        ),
    );
    line(&mut text, format_args!("|---|---|---|---|---|---|---|---|---|---|"));
    for row in rows.iter().filter(|row| matches!(row.cell.fault, None | Some(Fault::EndpointDeath))) {
        for (run, churn) in row.runs.iter().filter_map(|run| Some((run, run.churn?))).take(1) {
            line(
                &mut text,
                format_args!(
                    "| {} | {} | {:.1} | {} ({}) | {} | {} | {} + {} | {} | {} | {:.1} |",
                    row.name,
                    row.policy.name(),
                    100.0 * run.goodput,
                    churn.moves_measured,
                    churn.moves,
                    churn.lane_changes,
                    churn.lanes,
                    churn.pinned,
                    churn.tail,
                    churn.most_homes,
                    churn.share_target,
                    1e3 * churn.service_seconds
                ),
            );
        }
    }
    text
}

fn line(text: &mut String, arguments: std::fmt::Arguments<'_>) {
    writeln!(text, "{arguments}").expect("a string takes everything");
}

fn mean(values: impl Iterator<Item = f64>) -> f64 {
    let (sum, count) = values.fold((0.0, 0), |(sum, count), value| (sum + value, count + 1));
    sum / f64::from(count.max(1))
}

/// Times of cells differ by factors, so it is the factors that are averaged.
fn geometric_mean(values: impl Iterator<Item = f64>) -> f64 {
    mean(values.map(|value| value.max(1e-9).ln())).exp()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn means_are_what_they_are_called() {
        assert_eq!(mean([1.0, 2.0, 6.0].into_iter()), 3.0);
        assert!((geometric_mean([0.1, 10.0].into_iter()) - 1.0).abs() < 1e-12);
    }
}
