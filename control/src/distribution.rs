//! `warmroute distribution`: how evenly the ring is shared.

use crate::fault::Fault;
use crate::keys;
use crate::source::Source;
use crate::text::{self, Format, cut, percent, shown};
use crate::view::View;
use clap::Args;
use serde::Serialize;
use std::io::Write;
use std::path::{Path, PathBuf};

/// Columns of a terminal.
const COLUMNS: usize = 80;
/// Columns of an id; longer ones are cut.
const ID_COLUMNS: usize = 24;

/// Show which share of the hash space each endpoint owns.
///
/// With many models, an endpoint is the first for about its share of them. With --keys the models themselves are
/// counted as well. Endpoints that the proxies pass over now own their share all the same: it goes to those that follow
/// on the ring.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLE, after_long_help = format!("{EXAMPLE}\n\n{JSON}"))]
pub struct Arguments {
    #[command(flatten)]
    source: Source,

    /// A file of keys, one a line, or - for stdin: counts for how many lines each endpoint is the first. With --config, an
    /// alias counts as its model.
    #[arg(long, value_name = "FILE")]
    keys: Option<PathBuf>,

    /// How the answer is written.
    #[arg(long, value_enum, default_value_t = Format::Text)]
    format: Format,
}

const EXAMPLE: &str = "Examples:
  warmroute distribution --endpoints gpu-0=10.0.0.1:8000,gpu-1=10.0.0.2:8000*2
  warmroute distribution --config plugin.json --cluster model-servers --keys models.txt";

const JSON: &str = "JSON:
  {\"cluster\": \"model-servers\",        null with --endpoints
   \"virtual_nodes\": 150,
   \"keys\": 1000,                      lines of --keys; null without
   \"max_over_mean\": 1.24,             largest share over the mean of those on the ring
   \"shares\": [{                       in the order given
     \"id\": \"gpu-0\", \"address\": \"10.0.0.1:8000\",
     \"weight\": 1.0,
     \"nodes\": 150,                    points on the ring; 0 is off the ring
     \"share\": 0.3421,                 of the hash space; all add up to 1
     \"keys\": 340,                     lines that it is the first for; null without --keys
     \"skipped\": null}]}               or why the proxies pass over it: \"marked_unhealthy\", \"draining\"
  Fields may be added; these stay.";

/// The whole answer.
#[derive(Debug, Serialize)]
struct Answer<'a> {
    cluster: Option<&'a str>,
    virtual_nodes: u32,
    keys: Option<u64>,
    max_over_mean: f64,
    shares: Vec<Share<'a>>,
}

/// What one endpoint owns.
#[derive(Debug, Serialize)]
struct Share<'a> {
    id: &'a str,
    address: &'a str,
    weight: f64,
    nodes: u32,
    share: f64,
    keys: Option<u64>,
    skipped: Option<&'static str>,
}

impl Arguments {
    /// Answers on `out`.
    ///
    /// # Errors
    /// Bad input, and what cannot be written.
    pub fn run(&self, out: &mut dyn Write) -> Result<(), Fault> {
        let view = self.source.view()?;
        let counted = self.keys.as_deref().map(|file| count(&view, file)).transpose()?;
        let answer = answer(&view, counted);
        match self.format {
            Format::Json => text::json(&answer, out),
            Format::Text => answer.write(out),
        }
    }
}

/// How many keys there are, and for how many each endpoint is the first.
fn count(view: &View, file: &Path) -> Result<(u64, Vec<u64>), Fault> {
    let mut firsts = vec![0; view.endpoints().len()];
    let keys = keys::each(file, |key| {
        let first = view.model(key).and_then(|model| view.first(model.hash));
        if let Some(count) = first.and_then(|first| firsts.get_mut(first.position())) {
            *count += 1;
        }
    })?;
    Ok((keys, firsts))
}

fn answer(view: &View, counted: Option<(u64, Vec<u64>)>) -> Answer<'_> {
    let (keys, mut firsts) = counted.map(|(keys, firsts)| (keys, firsts.into_iter())).unzip();
    let owned = view.shares();
    let max = owned.iter().copied().fold(0.0, f64::max);
    let shares = view.endpoints().iter().zip(owned).map(|(endpoint, share)| Share {
        id: &endpoint.id,
        address: endpoint.address.as_str(),
        weight: endpoint.weight,
        nodes: view.nodes(endpoint),
        share,
        keys: firsts.as_mut().and_then(Iterator::next),
        skipped: view.skipped(endpoint, None),
    });
    Answer {
        cluster: view.cluster.as_deref(),
        virtual_nodes: view.settings().virtual_nodes,
        keys,
        // The shares add up to 1, so their mean is 1 over their number.
        max_over_mean: max * view.on_ring() as f64,
        shares: shares.collect(),
    }
}

/// Widths of the columns, which share a terminal's.
struct Layout {
    id: usize,
    keys: Option<usize>,
    bar: usize,
    /// The largest share, which has the whole bar.
    max: f64,
}

impl Answer<'_> {
    fn write(&self, out: &mut dyn Write) -> Result<(), Fault> {
        let layout = self.layout();
        writeln!(out, "{}", layout.head())?;
        for share in &self.shares {
            writeln!(out, "{}", layout.row(share))?;
        }
        let largest = self.shares.iter().max_by(|a, b| a.share.total_cmp(&b.share));
        let id = largest.map(|share| cut(&shown(share.id), ID_COLUMNS)).unwrap_or_default();
        let on_ring = self.shares.iter().filter(|share| share.nodes > 0).count();
        let (max, mean) = (percent(layout.max), percent(1.0 / on_ring as f64));
        let (max, mean) = (max.trim_start(), mean.trim_start());
        writeln!(out, "max/mean {:.2}: max {max} ({id}), mean {mean} of {on_ring}", self.max_over_mean)?;
        Ok(())
    }

    fn layout(&self) -> Layout {
        let widest = |widths: &mut dyn Iterator<Item = usize>| widths.max().unwrap_or(0);
        let id = widest(&mut self.shares.iter().map(|share| shown(share.id).chars().count()).chain([HEAD.len()]));
        let id = id.min(ID_COLUMNS);
        let keys = self.keys.map(|keys| keys.to_string().len().max(KEYS.len()));
        let tail = widest(&mut self.shares.iter().map(|share| share.tail().len()));
        let others = id + GAP.len() + percent(0.0).len() + keys.map_or(0, |keys| GAP.len() + keys) + GAP.len() + tail;
        let max = self.shares.iter().map(|share| share.share).fold(0.0, f64::max);
        Layout { id, keys, bar: COLUMNS.saturating_sub(others), max }
    }
}

const HEAD: &str = "endpoint";
const KEYS: &str = "keys";
const GAP: &str = "  ";

impl Layout {
    fn head(&self) -> String {
        let keys = self.keys.map(|width| format!("{GAP}{KEYS:>width$}")).unwrap_or_default();
        format!("{HEAD:<width$}{GAP}   share{keys}", width = self.id)
    }

    fn row(&self, share: &Share<'_>) -> String {
        let keys = self.keys.zip(share.keys).map(|(width, keys)| format!("{GAP}{keys:>width$}")).unwrap_or_default();
        let (id, bar) = (cut(&shown(share.id), self.id), "#".repeat(self.bar(share.share)));
        let row = format!("{id:<width$}{GAP}{}{keys}{GAP}{bar}{}", percent(share.share), share.tail(), width = self.id);
        row.trim_end().to_owned()
    }

    /// Characters of a share's bar; what is there at all is seen.
    fn bar(&self, share: f64) -> usize {
        let length = (share / self.max * self.bar as f64).round() as usize;
        if share > 0.0 { length.max(1) } else { 0 }
    }
}

impl Share<'_> {
    /// What is particular about the endpoint.
    fn tail(&self) -> String {
        match (self.nodes, self.skipped) {
            (0, _) => "(off the ring)".to_owned(),
            (_, Some(reason)) => format!(" (skipped: {reason})"),
            (_, None) => String::new(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::spec::endpoint;

    fn view(specs: &[String]) -> View {
        View::of_endpoints(specs.iter().map(|spec| endpoint(spec).unwrap()).collect(), 150).unwrap()
    }

    fn written(answer: &Answer<'_>) -> String {
        let mut out = Vec::new();
        answer.write(&mut out).unwrap();
        String::from_utf8(out).unwrap()
    }

    /// The longest ids, the largest counts, and somebody off the ring.
    #[test]
    fn no_line_is_wider_than_a_terminal_and_the_largest_bar_fills_it() {
        let specs: Vec<_> = (0..9).map(|n| format!("{}{n}=10.0.0.{n}:80*{}", "ü".repeat(100), n % 3)).collect();
        let view = view(&specs);
        let answer = answer(&view, Some((u64::MAX, vec![u64::MAX; 9])));
        let text = written(&answer);
        let widest = text.lines().map(|line| line.chars().count()).max();
        assert!(widest.is_some_and(|widest| widest <= COLUMNS), "{text}");
        assert!(text.contains("(off the ring)") && text.contains("üüü…"), "{text}");
        let plain = super::answer(&view, None);
        let layout = plain.layout();
        assert_eq!((layout.bar(layout.max), layout.bar(1e-9), layout.bar(0.0)), (layout.bar, 1, 0));
    }

    /// Three on the ring: the mean is a third, whoever is off it.
    #[test]
    fn the_mean_is_of_those_on_the_ring() {
        let view = view(&["10.0.0.1:80", "10.0.0.2:80", "10.0.0.3:80", "10.0.0.4:80*0"].map(String::from));
        let answer = answer(&view, None);
        let max = answer.shares.iter().map(|share| share.share).fold(0.0, f64::max);
        assert!((answer.max_over_mean - max / (1.0 / 3.0)).abs() < 1e-12);
        assert!(written(&answer).contains("mean 33.33 % of 3"), "{}", written(&answer));
    }
}
