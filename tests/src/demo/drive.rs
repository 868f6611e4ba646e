//! An open-loop client: requests go out when they are due, whatever became of those before.

use std::time::Duration;

use anyhow::{Context, Result};
use serde_json::json;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep_until};

use super::{Traffic, model_name};
use crate::harness::Client;

/// What became of one request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sample {
    /// The model's rank.
    pub model: usize,
    /// From when the request was due to the end of the answer.
    pub latency: Duration,
    /// The endpoint that served (`x-served-by`), or why none did.
    pub served_by: Result<String, String>,
    /// Whether it was due after the warm-up.
    pub counted: bool,
}

/// Sends all of `traffic` to `url`, from `start` on; answers when the last request has ended.
pub async fn drive(url: &str, traffic: &Traffic, start: Instant) -> Result<Vec<Sample>> {
    let client = Client::http1();
    let url = format!("{url}/v1/chat/completions");
    let mut requests = JoinSet::new();
    for arrival in traffic.arrivals.iter().copied() {
        let due = start + arrival.at;
        sleep_until(due).await;
        let (client, url) = (client.clone(), url.clone());
        let counted = arrival.at >= traffic.counted_from;
        requests.spawn(async move {
            let served_by = ask(&client, &url, arrival.model).await.map_err(|error| format!("{error:#}"));
            Sample { model: arrival.model, latency: due.elapsed(), served_by, counted }
        });
    }
    let mut samples = Vec::with_capacity(traffic.arrivals.len());
    while let Some(sample) = requests.join_next().await {
        samples.push(sample.context("a request's task failed")?);
    }
    Ok(samples)
}

/// One chat completion as an OpenAI client sends it, with the model named in a header as well.
async fn ask(client: &Client, url: &str, model: usize) -> Result<String> {
    let model = model_name(model);
    let body = json!({"model": model, "messages": [{"role": "user", "content": "Which GPU are you on?"}]});
    let reply = client.post(url, &[("x-model-id", &model)], &body).await?;
    anyhow::ensure!(reply.status == 200, "status {}: {}", reply.status, reply.text());
    let served_by = reply.header("x-served-by").context("an answer without x-served-by")?;
    Ok(served_by.to_owned())
}
