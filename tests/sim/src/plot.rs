//! Goodput and cold loads by load, as a picture.
//!
//! Mean over the popularities, where models need half of the memory and endpoints have one slot: the cells in which
//! every load is feasible.

use crate::cells::Group;
use crate::grid::Row;
use crate::policy::PolicyName;
use crate::record::Summary;
use anyhow::Result;
use plotters::coord::ranged1d::{AsRangedCoord, ValueFormatter};
use plotters::prelude::*;
use std::path::Path;

/// Size in pixels, and what of the width is the legend's.
const SIZE: (u32, u32) = (1_160, 430);
const LEGEND: i32 = 140;

/// Policies that a picture has room for.
const DRAWN: [PolicyName; 7] = [
    PolicyName::Homes,
    PolicyName::HomesSelf,
    PolicyName::Ring,
    PolicyName::Maglev,
    PolicyName::Bounded,
    PolicyName::LeastRequest,
    PolicyName::RoundRobin,
];

/// Cold loads in percent below which a logarithm is drawn no lower.
const FEWEST: f64 = 0.001;

/// One policy's points, by rising load.
type Points = Vec<(f64, f64)>;

/// Draws the picture into a file.
///
/// # Errors
/// When there is nothing to draw, or the file cannot be written.
pub fn draw(rows: &[Row], path: &Path) -> Result<()> {
    let lines = |value: fn(&Summary) -> f64| -> Vec<(PolicyName, Points)> {
        let own = DRAWN.into_iter().map(|policy| (policy, points(rows, policy, value)));
        own.filter(|(_, points)| !points.is_empty()).collect()
    };
    let goodput = lines(|run| 100.0 * run.goodput);
    anyhow::ensure!(!goodput.is_empty(), "none of the cells that the picture is of was run");
    let area = SVGBackend::new(path, SIZE).into_drawing_area();
    area.fill(&WHITE)?;
    let (charts, names) = area.split_horizontally(i32::try_from(SIZE.0)? - LEGEND);
    legend(&names, &goodput)?;
    let (left, right) = charts.split_horizontally((i32::try_from(SIZE.0)? - LEGEND) / 2);
    chart(&left, "Answered within 1 s, %", 0.0..105.0, goodput)?;
    let cold = lines(|run| (100.0 * run.cold).max(FEWEST));
    chart(&right, "Requests that caused a load, % (log)", (FEWEST..100.0).log_scale(), cold)?;
    area.present()?;
    Ok(())
}

type Area<'a> = DrawingArea<SVGBackend<'a>, plotters::coord::Shift>;

fn legend(area: &Area<'_>, lines: &[(PolicyName, Points)]) -> Result<()> {
    for (y, (policy, _)) in (60..).step_by(22).zip(lines) {
        area.draw(&PathElement::new([(0, y), (24, y)], style(*policy)))?;
        area.draw(&Text::new(policy.name(), (30, y - 7), ("sans-serif", 14)))?;
    }
    Ok(())
}

fn chart<Y>(area: &Area<'_>, title: &str, values: Y, lines: Vec<(PolicyName, Points)>) -> Result<()>
where
    Y: AsRangedCoord<Value = f64>,
    Y::CoordDescType: ValueFormatter<f64>,
{
    let mut chart = ChartBuilder::on(area)
        .caption(title, ("sans-serif", 18))
        .margin(12)
        .x_label_area_size(34)
        .y_label_area_size(48)
        .build_cartesian_2d(0.0..0.9, values)?;
    chart.configure_mesh().x_desc("requests ÷ capacity of a warm pool").light_line_style(WHITE).draw()?;
    for (policy, points) in lines {
        chart.draw_series(LineSeries::new(points, style(policy)).point_size(2))?;
    }
    Ok(())
}

fn style(policy: PolicyName) -> ShapeStyle {
    let at = PolicyName::ALL.iter().position(|other| *other == policy).unwrap_or(0);
    let width = if policy == PolicyName::Homes { 3 } else { 1 };
    Palette99::pick(at).filled().stroke_width(width)
}

/// Means over the cells of each load.
fn points(rows: &[Row], policy: PolicyName, value: fn(&Summary) -> f64) -> Points {
    let drawn = |row: &&Row| {
        matches!(row.group, Group::Feasible | Group::LowLoad) && row.cell.slots == 1 && row.cell.fill() <= 0.5
    };
    let own: Vec<&Row> = rows.iter().filter(|row| row.policy == policy).filter(drawn).collect();
    let mut loads: Vec<f64> = own.iter().map(|row| row.cell.load).collect();
    loads.sort_by(f64::total_cmp);
    loads.dedup();
    let mean = |load: f64| {
        let (sum, count) = own
            .iter()
            .filter(|row| row.cell.load == load)
            .fold((0.0, 0.0), |(sum, count), row| (sum + row.mean(value), count + 1.0));
        (load, sum / count)
    };
    loads.into_iter().map(mean).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cell::Cell;

    fn row(load: f64, zipf: f64, slots: usize, goodput: f64) -> Row {
        let cell = Cell { models: 64, load, zipf, slots, ..Cell::default() };
        let run = Summary { goodput, ..Summary::default() };
        Row { group: Group::Feasible, name: cell.name(), cell, policy: PolicyName::Ring, runs: vec![run] }
    }

    #[test]
    fn a_point_is_the_mean_over_popularities() {
        let rows = [row(0.7, 0.0, 1, 0.5), row(0.5, 0.9, 1, 1.0), row(0.7, 0.9, 1, 0.7), row(0.7, 0.0, 4, 0.0)];
        assert_eq!(points(&rows, PolicyName::Ring, |run| run.goodput), [(0.5, 1.0), (0.7, 0.6)]);
        assert_eq!(points(&rows, PolicyName::Maglev, |run| run.goodput), []);
    }
}
