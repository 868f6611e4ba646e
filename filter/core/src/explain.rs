//! Why a request went where it went, as one line for a response header or an access log.
//!
//! `strategy=homes reason=model model=llama (header) pick=gpu-3 fallbacks=gpu-1,gpu-7 in_flight=2,0,1 plan=12
//! refused=gpu-0:draining,gpu-5:low_score`
//!
//! Made only when somebody asks for it or the sampling says so: it reads the whole pool. Names come from clients and
//! configurations: what is not plain becomes `%XX`, and long lists end with the number that is left out.

use crate::picker::{Answer, Pick};
use crate::request::{ModelSource, Request};
use crate::strategy::View;
use percent_encoding::{AsciiSet, CONTROLS, percent_encode};
use std::fmt::{self, Display, Write};

/// Refusals that are listed; the rest are counted.
const MAX_REFUSALS: usize = 16;

/// Bytes of a name that are shown.
const MAX_NAME: usize = 128;

/// What would break the line or be taken for its punctuation.
const ESCAPED: &AsciiSet = &CONTROLS.add(b' ').add(b',').add(b':').add(b'=').add(b'%').add(b'"').add(b'(').add(b')');

/// A record of one answer.
#[derive(Debug)]
pub struct Explanation<'a> {
    /// What was asked.
    pub request: &'a Request<'a>,
    /// What was answered.
    pub answer: &'a Answer,
    /// What the strategy saw; `None` when no endpoints are known.
    pub view: Option<View<'a>>,
}

impl Display for Explanation<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.answer {
            Answer::Pick(pick) => write!(f, "strategy={} reason={}", pick.strategy.name(), pick.reason.name())?,
            Answer::Pass(pass) => write!(f, "strategy=none reason={}", pass.name())?,
            Answer::Refuse(refusal) => write!(f, "strategy=none reason={}", refusal.name())?,
        }
        self.model(f)?;
        if let (Answer::Pick(pick), Some(view)) = (self.answer, &self.view) {
            picked(f, pick, view)?;
        }
        self.view.as_ref().map_or(Ok(()), |view| refused(f, view))
    }
}

impl Explanation<'_> {
    fn model(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Some(model) = &self.request.model else { return f.write_str(" model=none") };
        write!(f, " model={} ({})", name(&model.id), source(self.request.model_source))
    }
}

fn source(source: ModelSource) -> &'static str {
    match source {
        ModelSource::Header => "header",
        ModelSource::Path => "path",
        ModelSource::Body => "body",
        ModelSource::Default => "default",
        ModelSource::None => "none",
    }
}

fn picked(f: &mut fmt::Formatter<'_>, pick: &Pick, view: &View<'_>) -> fmt::Result {
    let id = |n: usize| {
        let index = pick.endpoints.get(n)?;
        view.endpoints.get(index.position()).map(|endpoint| name(endpoint.id.as_bytes()))
    };
    write!(f, " pick={}", id(0).unwrap_or_default())?;
    let others: Vec<_> = (1..pick.endpoints.len()).filter_map(id).collect();
    list(f, " fallbacks=", &others)?;
    let in_flight: Vec<_> = pick.endpoints.iter().map(|index| view.load.in_flight(*index).to_string()).collect();
    list(f, " in_flight=", &in_flight)?;
    if view.plan.version() > 0 {
        write!(f, " plan={}", view.plan.version())?;
    }
    if pick.marks_ignored { f.write_str(" unknown_marks=ignored") } else { Ok(()) }
}

fn refused(f: &mut fmt::Formatter<'_>, view: &View<'_>) -> fmt::Result {
    let against = |endpoint| view.check(endpoint).err().map(|reason| (endpoint, reason));
    let mut refused = view.endpoints.iter().filter_map(against);
    let shown: Vec<_> = refused
        .by_ref()
        .take(MAX_REFUSALS)
        .map(|(endpoint, reason)| format!("{}:{}", name(endpoint.id.as_bytes()), reason.name()))
        .collect();
    list(f, " refused=", &shown)?;
    match refused.count() {
        0 => Ok(()),
        more => write!(f, ",and {more} more"),
    }
}

fn list(f: &mut fmt::Formatter<'_>, label: &str, items: &[String]) -> fmt::Result {
    if items.is_empty() {
        return Ok(());
    }
    f.write_str(label)?;
    for (n, item) in items.iter().enumerate() {
        if n > 0 {
            f.write_char(',')?;
        }
        f.write_str(item)?;
    }
    Ok(())
}

fn name(bytes: &[u8]) -> String {
    let shown = bytes.get(..MAX_NAME).unwrap_or(bytes);
    let more = if shown.len() < bytes.len() { "..." } else { "" };
    format!("{}{more}", percent_encode(shown, ESCAPED))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::endpoint::tests::endpoint;
    use crate::endpoint::{Endpoint, Score};
    use crate::live::LivePool;
    use crate::load::Registry;
    use crate::pool::Pool;
    use crate::settings::PoolSettings;
    use crate::strategy::StrategyName;
    use rand::SeedableRng;
    use rand::rngs::Xoshiro256PlusPlus;
    use std::time::Duration;
    #[cfg(target_arch = "wasm32")]
    use wasm_bindgen_test::wasm_bindgen_test as test;

    fn explain(endpoints: Option<Vec<Endpoint>>, request: &Request<'_>) -> String {
        let mut pool = Pool::new(PoolSettings { strategy: StrategyName::LeastRequest, ..PoolSettings::default() });
        if let Some(endpoints) = endpoints {
            pool.update(endpoints);
        }
        let live = LivePool::new(pool, &mut Registry::default());
        let now = Duration::from_secs(1);
        let answer = live.answer(request, now, &mut Xoshiro256PlusPlus::seed_from_u64(1));
        live.explain(request, &answer, now)
    }

    fn gpus(count: usize) -> Vec<Endpoint> {
        (0..count).map(|n| endpoint(&format!("gpu-{n}"), &format!("10.0.0.{}:80", n + 1))).collect()
    }

    #[test]
    fn a_pick_is_told_with_everything_against_the_others() {
        let mut pool = gpus(4);
        pool[0].draining = true;
        pool[2].score = Score::new(0.1).unwrap();
        pool[3].marked_unhealthy = true;
        let request = Request { model_source: ModelSource::Header, ..Request::for_model(b"llama") };
        assert_eq!(
            explain(Some(pool), &request),
            "strategy=least_request reason=model model=llama (header) pick=gpu-1 in_flight=0 \
             refused=gpu-0:draining,gpu-2:low_score,gpu-3:marked_unhealthy"
        );
    }

    #[test]
    fn refusals_and_unknown_endpoints_are_told_too() {
        let request = Request::for_model(b"");
        assert_eq!(explain(None, &request), "strategy=none reason=no_snapshot model=none");
        assert_eq!(explain(Some(vec![]), &request), "strategy=none reason=no_healthy_endpoint model=none");
    }

    /// A header's value must stay one line of visible characters, whatever a client calls its model.
    #[test]
    fn no_name_can_break_the_line_or_forge_a_field() {
        let request = Request::for_model(b"a b\r\nx=1,\xff\"%");
        let text = explain(Some(gpus(1)), &request);
        assert!(text.contains("model=a%20b%0D%0Ax%3D1%2C%FF%22%25 "), "{text}");
        assert!(text.bytes().all(|byte| (b' '..=b'~').contains(&byte)), "{text}");
    }

    #[test]
    fn long_names_and_long_lists_are_cut() {
        let mut pool = gpus(30);
        pool.iter_mut().skip(1).for_each(|endpoint| endpoint.draining = true);
        let text = explain(Some(pool), &Request::for_model(&[b'm'; 300]));
        assert!(text.contains(&format!("model={}... (", "m".repeat(128))), "{text}");
        assert!(text.ends_with("gpu-16:draining,and 13 more"), "{text}");
    }
}
