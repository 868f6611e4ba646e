use std::time::Duration;

use futures_util::stream;
use tonic::transport::Channel;
use tonic::{Code, Request};
use tonic_health::pb::health_client::HealthClient;
use tonic_health::pb::{HealthCheckRequest, health_check_response::ServingStatus};
use warmroute_tests::mock::proto::grpc_inference_service_client::GrpcInferenceServiceClient;
use warmroute_tests::mock::proto::{
    ModelInferRequest, ModelMetadataRequest, ModelReadyRequest, RepositoryIndexRequest, RepositoryModelLoadRequest,
    RepositoryModelUnloadRequest, ServerLiveRequest, ServerMetadataRequest, ServerReadyRequest,
};
use warmroute_tests::mock::{MockServer, MockServerBuilder};

use crate::client::{FOR_EVER, chat, eventually, faults, http2, open_stream};

pub async fn start(builder: MockServerBuilder) -> (MockServer, Channel) {
    let server = builder.start().await.expect("start");
    let channel = Channel::from_shared(server.base_url()).expect("address").connect().await.expect("connection");
    (server, channel)
}

pub fn infer(model: &str) -> ModelInferRequest {
    ModelInferRequest { model_name: model.to_owned(), id: "7".to_owned(), ..Default::default() }
}

#[tokio::test]
async fn inference_takes_its_model_from_the_message_or_the_metadata() {
    let (server, channel) = start(MockServer::builder().resident(["m"])).await;
    let mut client = GrpcInferenceServiceClient::new(channel);
    let answer = client.model_infer(infer("m")).await.expect("answer");
    assert_eq!(answer.metadata().get("x-mock-cold").expect("cold"), "false");
    assert_eq!(answer.metadata().get("x-served-by").expect("address"), server.addr().to_string().as_str());
    let answer = answer.into_inner();
    assert_eq!((answer.model_name.as_str(), answer.id.as_str()), ("m", "7"));
    assert_eq!(answer.outputs[0].shape, [1, 4]);

    let mut request = Request::new(infer(""));
    request.metadata_mut().insert("x-model-id", "n".parse().expect("value"));
    let answer = client.model_infer(request).await.expect("answer");
    assert_eq!(answer.metadata().get("x-mock-cold").expect("cold"), "true");
    assert_eq!(answer.into_inner().model_name, "n");
    assert_eq!((server.stats().requests, server.stats().cold_loads), (2, 1));
}

#[tokio::test]
async fn refusals_have_their_grpc_status_and_say_who_refused() {
    let builder = MockServer::builder().resident(["m"]).models(["m"]).queue(0).token(FOR_EVER);
    let (server, channel) = start(builder).await;
    let mut client = GrpcInferenceServiceClient::new(channel);
    let address = server.addr().to_string();
    for (model, code) in [("x", Code::NotFound), ("", Code::InvalidArgument)] {
        let status = client.model_infer(infer(model)).await.expect_err("refusal");
        assert_eq!(status.code(), code);
        assert_eq!(status.metadata().get("x-served-by").expect("address"), address.as_str());
    }
    let _stream = open_stream(&http2(), &server, "m").await;
    let status = client.model_infer(infer("m")).await.expect_err("refusal");
    assert_eq!(status.code(), Code::ResourceExhausted);
}

#[tokio::test]
async fn the_other_calls_answer() {
    let (server, channel) = start(MockServer::builder().models(["a", "b"]).resident(["a"])).await;
    let mut client = GrpcInferenceServiceClient::new(channel.clone());
    assert!(client.server_live(ServerLiveRequest {}).await.expect("answer").into_inner().live);
    assert!(client.server_ready(ServerReadyRequest {}).await.expect("answer").into_inner().ready);
    let about = client.server_metadata(ServerMetadataRequest {}).await.expect("answer").into_inner();
    assert_eq!(about.name, "mock-model-server");
    let name = ModelMetadataRequest { name: "a".to_owned(), version: String::new() };
    assert_eq!(client.model_metadata(name).await.expect("answer").into_inner().name, "a");

    let ready = async |client: &mut GrpcInferenceServiceClient<Channel>, name: &str| {
        let request = ModelReadyRequest { name: name.to_owned(), version: String::new() };
        client.model_ready(request).await.map(|answer| answer.into_inner().ready).map_err(|status| status.code())
    };
    assert_eq!(ready(&mut client, "a").await, Ok(true));
    assert_eq!(ready(&mut client, "b").await, Ok(false));
    assert_eq!(ready(&mut client, "x").await, Err(Code::NotFound));
    let load = RepositoryModelLoadRequest { model_name: "b".to_owned(), ..Default::default() };
    client.repository_model_load(load).await.expect("answer");
    let unload = RepositoryModelUnloadRequest { model_name: "a".to_owned(), ..Default::default() };
    client.repository_model_unload(unload).await.expect("answer");
    let index = RepositoryIndexRequest { ready: true, ..Default::default() };
    let listed = client.repository_index(index).await.expect("answer").into_inner().models;
    assert_eq!(listed.iter().map(|m| m.name.as_str()).collect::<Vec<_>>(), ["b"]);

    let mut health = HealthClient::new(channel);
    for service in ["", "inference.GRPCInferenceService"] {
        let answer = health.check(HealthCheckRequest { service: service.to_owned() }).await.expect("answer");
        assert_eq!(answer.into_inner().status(), ServingStatus::Serving);
    }
    assert_eq!(server.stats().requests, 0);
}

#[tokio::test]
async fn each_message_of_a_stream_is_a_request_with_its_own_result() {
    let (server, channel) = start(MockServer::builder().models(["a"])).await;
    let mut client = GrpcInferenceServiceClient::new(channel);
    let messages = stream::iter([infer("a"), infer("x"), infer("a")]);
    let mut answers = client.model_stream_infer(messages).await.expect("stream").into_inner();
    let mut seen = Vec::new();
    while let Some(answer) = answers.message().await.expect("message") {
        seen.push((answer.infer_response.is_some(), answer.error_message.is_empty()));
    }
    assert_eq!(seen, [(true, true), (false, false), (true, true)]);
    let stats = server.stats();
    assert_eq!((stats.requests, stats.cold_loads, stats.in_flight, stats.cancelled), (3, 1, 0, 0));
}

#[tokio::test]
async fn a_grpc_client_that_leaves_frees_its_place() {
    let (server, channel) = start(MockServer::builder().resident(["m"]).service(FOR_EVER)).await;
    let mut client = GrpcInferenceServiceClient::new(channel);
    let left = tokio::time::timeout(FOR_EVER, async {
        tokio::select! {
            _ = client.model_infer(infer("m")) => panic!("an answer"),
            () = eventually(&server, "the running request", |s| s.running == 1) => {}
        }
    });
    left.await.expect("left");
    eventually(&server, "the free place", |s| s.running == 0 && s.in_flight == 0).await;
    assert_eq!(server.stats().cancelled, 1);
}

#[tokio::test]
async fn a_grpc_status_comes_in_trailers_after_a_message_or_alone() {
    let (server, channel) = start(MockServer::builder().resident(["m"])).await;
    let mut client = GrpcInferenceServiceClient::new(channel);
    for trailers_only in [false, true] {
        let fault = serde_json::json!({ "grpc_status": 14, "grpc_trailers_only": trailers_only });
        server.set_faults(faults(fault)).await.expect("faults");
        let status = client.model_infer(infer("m")).await.expect_err("failure");
        assert_eq!(status.code(), Code::Unavailable, "trailers only: {trailers_only}");
        // Other protocols are not touched.
        assert_eq!(chat(&http2(), &server, "m").await.status(), 200);
        assert_eq!(raw_infer_head(&server).await, trailers_only);
    }
    server.clear_faults();
    client.model_infer(infer("m")).await.expect("answer");
}

/// Whether the head of a gRPC answer already carries the status.
async fn raw_infer_head(server: &MockServer) -> bool {
    let url = format!("{}/inference.GRPCInferenceService/ModelInfer", server.base_url());
    let request = http2().post(url).header("content-type", "application/grpc").body(vec![0_u8; 5]);
    let answer = request.timeout(Duration::from_secs(20)).send().await.expect("head");
    assert_eq!(answer.status(), 200);
    answer.headers().contains_key("grpc-status")
}
