//! `GET /metrics` under the names of vLLM and of Triton, made from the stats at each scrape.
//!
//! A server that pre-allocates its memory, as vLLM does, tells its load by `vllm:kv_cache_usage_perc` (a share, 0–1,
//! in spite of its name): here, the share of the places that are taken.

use std::sync::Arc;

use axum::extract::State;
use axum::response::{IntoResponse, Response};
use http::{StatusCode, header};
use prometheus::{GaugeVec, IntCounterVec, Opts, Registry, TextEncoder};

use super::app::App;

const ENGINE: &[&str] = &["engine", "model_name"];
const MODEL: &[&str] = &["model", "version"];
const GPU: &[&str] = &["gpu_uuid"];
const UUID: &[&str] = &["GPU-00000000-0000-0000-0000-000000000000"];

pub(super) async fn metrics(State(app): State<Arc<App>>) -> Response {
    match render(&app) {
        Ok(text) => ([(header::CONTENT_TYPE, prometheus::TEXT_FORMAT)], text).into_response(),
        Err(error) => (StatusCode::INTERNAL_SERVER_ERROR, error.to_string()).into_response(),
    }
}

struct Page(Registry);

fn render(app: &App) -> prometheus::Result<String> {
    let page = Page(Registry::new());
    vllm(app, &page)?;
    triton(app, &page)?;
    TextEncoder::new().encode_to_string(&page.0.gather())
}

fn vllm(app: &App, page: &Page) -> prometheus::Result<()> {
    let stats = app.stats();
    let served = &["0", "mock"];
    let gauge = |name, help, value: f64| -> prometheus::Result<()> {
        page.gauge(name, help, ENGINE)?.with_label_values(served).set(value);
        Ok(())
    };
    gauge("vllm:num_requests_running", "Requests that run.", stats.running as f64)?;
    gauge("vllm:num_requests_waiting", "Requests that wait for a place.", stats.queued as f64)?;
    let usage = stats.running as f64 / app.shared.settings.concurrency as f64;
    gauge("vllm:kv_cache_usage_perc", "Share of the places that are taken (0-1).", usage)?;
    let labels = &["engine", "finished_reason", "model_name"];
    let success = page.counter("vllm:request_success_total", "Requests that ended well.", labels)?;
    for (model, counts) in app.shared.stats.models() {
        success.with_label_values(&["0", "stop", model.as_str()]).inc_by(counts.successes);
    }
    Ok(())
}

fn triton(app: &App, page: &Page) -> prometheus::Result<()> {
    let success = page.counter("nv_inference_request_success", "Requests that ended well.", MODEL)?;
    let reason = &["model", "reason", "version"];
    let failure = page.counter("nv_inference_request_failure", "Requests that failed.", reason)?;
    let pending = page.gauge("nv_inference_pending_request_count", "Requests in flight.", MODEL)?;
    for (model, counts) in app.shared.stats.models() {
        success.with_label_values(&[model.as_str(), "1"]).inc_by(counts.successes);
        failure.with_label_values(&[model.as_str(), "OTHER", "1"]).inc_by(counts.failures);
        pending.with_label_values(&[model.as_str(), "1"]).set(counts.pending as f64);
    }
    let bytes = |models: usize| app.shared.settings.model_bytes as f64 * models as f64;
    let used = page.gauge("nv_gpu_memory_used_bytes", "GPU memory in use.", GPU)?;
    used.with_label_values(UUID).set(bytes(app.gpu.resident().len()));
    let total = page.gauge("nv_gpu_memory_total_bytes", "GPU memory.", GPU)?;
    total.with_label_values(UUID).set(bytes(app.shared.settings.capacity));
    Ok(())
}

impl Page {
    fn gauge(&self, name: &str, help: &str, labels: &[&str]) -> prometheus::Result<GaugeVec> {
        let gauge = GaugeVec::new(Opts::new(name, help), labels)?;
        self.0.register(Box::new(gauge.clone()))?;
        Ok(gauge)
    }

    fn counter(&self, name: &str, help: &str, labels: &[&str]) -> prometheus::Result<IntCounterVec> {
        let counter = IntCounterVec::new(Opts::new(name, help), labels)?;
        self.0.register(Box::new(counter.clone()))?;
        Ok(counter)
    }
}
