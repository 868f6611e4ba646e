use serde_json::{Value, json};
use warmroute_tests::mock::MockServer;

use crate::client::{chat, header, http1, is_cold, post};

fn tensors() -> Value {
    json!({ "id": "7", "inputs": [{ "name": "INPUT0", "shape": [1, 1], "datatype": "FP32", "data": [1.0] }] })
}

#[tokio::test]
async fn inference_takes_its_model_from_the_path() {
    let server = MockServer::builder().resident(["m"]).start().await.expect("start");
    let client = http1();
    let answer = post(&client, &server, "/v2/models/m/infer", &tensors()).await.expect("answer");
    assert!(!is_cold(&answer));
    let body: Value = answer.json().await.expect("json");
    assert_eq!((&body["model_name"], &body["id"]), (&json!("m"), &json!("7")));
    assert_eq!(body["outputs"][0]["shape"], json!([1, 4]));

    let path = "/v2/models/org%2Fmodel/versions/3/infer";
    let answer = post(&client, &server, path, &tensors()).await.expect("answer");
    assert!(is_cold(&answer));
    let body: Value = answer.json().await.expect("json");
    assert_eq!((&body["model_name"], &body["model_version"]), (&json!("org/model"), &json!("3")));
    assert_eq!(server.stats().requests_by_model.get("org/model"), Some(&1));
}

#[tokio::test]
async fn binary_tensors_may_follow_the_json() {
    let server = MockServer::builder().start().await.expect("start");
    let client = http1();
    let head = tensors().to_string();
    let url = format!("{}/v2/models/m/infer", server.base_url());
    let ask = |length: usize| {
        let body = [head.as_bytes(), &[0, 255, 1]].concat();
        client.post(&url).header("inference-header-content-length", length).body(body).send()
    };
    assert_eq!(ask(head.len()).await.expect("answer").status(), 200);
    assert_eq!(ask(head.len() + 4).await.expect("answer").status(), 400);
    assert_eq!(ask(head.len() + 3).await.expect("answer").status(), 400);
}

#[tokio::test]
async fn a_malformed_inference_is_refused() {
    let server = MockServer::builder().models(["m"]).start().await.expect("start");
    let client = http1();
    for (path, body, status) in [
        ("/v2/models/m/infer", "{", 400),
        ("/v2/models/m/infer", "{}", 400),
        ("/v2/models/m/infer", r#"{"inputs": []}"#, 400),
        ("/v2/models/m/infer", r#"{"inputs": [{"name": 1}]}"#, 400),
        ("/v2/models/x/infer", &tensors().to_string(), 404),
        ("/v2/nothing", "{}", 404),
    ] {
        let answer = client.post(format!("{}{path}", server.base_url())).body(body.to_owned()).send().await;
        let answer = answer.expect("answer");
        assert_eq!(answer.status(), status, "{path} {body}");
        assert_eq!(header(&answer, "x-served-by"), server.addr().to_string());
        let error: Value = answer.json().await.expect("json");
        assert!(error["error"].is_string(), "{error}");
    }
    assert_eq!(server.stats().in_flight, 0);
}

#[tokio::test]
async fn readiness_and_the_repository_follow_the_memory() {
    let server = MockServer::builder().capacity(1).models(["a", "b"]).resident(["a"]).start().await.expect("start");
    let client = http1();
    let get = |path: &'static str| client.get(format!("{}{path}", server.base_url())).send();
    for (path, status) in [
        ("/health", 200),
        ("/v2", 200),
        ("/v2/health/live", 200),
        ("/v2/health/ready", 200),
        ("/v2/models/a", 200),
        ("/v2/models/a/ready", 200),
        ("/v2/models/b/ready", 400),
        ("/v2/models/x/ready", 404),
    ] {
        assert_eq!(get(path).await.expect("answer").status(), status, "{path}");
    }
    let index = async || {
        let answer = post(&client, &server, "/v2/repository/index", &json!({})).await.expect("answer");
        let listed: Value = answer.json().await.expect("json");
        let state = |n: usize| listed[n]["state"].as_str().expect("state").to_owned();
        (state(0), state(1))
    };
    assert_eq!(index().await, ("READY".to_owned(), "UNAVAILABLE".to_owned()));
    let answer = post(&client, &server, "/v2/repository/models/b/load", &json!({})).await.expect("answer");
    assert_eq!(answer.status(), 200);
    assert_eq!(index().await, ("UNAVAILABLE".to_owned(), "READY".to_owned()));
    let answer = post(&client, &server, "/v2/repository/models/b/unload", &json!({})).await.expect("answer");
    assert_eq!(answer.status(), 200);
    assert_eq!(server.stats().resident_models, [""; 0]);
    assert_eq!((server.stats().explicit_loads, server.stats().cold_loads), (1, 0));
    let answer = post(&client, &server, "/v2/repository/models/x/load", &json!({})).await.expect("answer");
    assert_eq!(answer.status(), 404);
}

#[tokio::test]
async fn metrics_have_the_names_of_vllm_and_triton() {
    let server = MockServer::builder().capacity(2).models(["m"]).start().await.expect("start");
    let client = http1();
    assert_eq!(chat(&client, &server, "m").await.status(), 200);
    assert_eq!(chat(&client, &server, "x").await.status(), 404);
    let answer = client.get(format!("{}/metrics", server.base_url())).send().await.expect("answer");
    let text = answer.text().await.expect("text");
    for line in [
        r#"vllm:num_requests_running{engine="0",model_name="mock"} 0"#,
        r#"vllm:num_requests_waiting{engine="0",model_name="mock"} 0"#,
        r#"vllm:kv_cache_usage_perc{engine="0",model_name="mock"} 0"#,
        r#"vllm:request_success_total{engine="0",finished_reason="stop",model_name="m"} 1"#,
        r#"nv_inference_request_success{model="m",version="1"} 1"#,
        r#"nv_inference_request_failure{model="x",reason="OTHER",version="1"} 1"#,
        r#"nv_inference_pending_request_count{model="m",version="1"} 0"#,
        r#"nv_gpu_memory_used_bytes{gpu_uuid="GPU-00000000-0000-0000-0000-000000000000"} 8589934592"#,
        r#"nv_gpu_memory_total_bytes{gpu_uuid="GPU-00000000-0000-0000-0000-000000000000"} 17179869184"#,
        "# TYPE nv_inference_request_success counter",
        "# TYPE vllm:num_requests_running gauge",
    ] {
        assert!(text.lines().any(|found| found == line), "no {line} in\n{text}");
    }
}
