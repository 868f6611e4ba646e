//! The Open Inference Protocol over gRPC, with Triton's stream and repository calls.
//!
//! The model is the message's `model_name`, else the metadata `x-model-id`.

use std::pin::Pin;
use std::sync::Arc;

use futures_util::{Stream, StreamExt};
use http::HeaderMap;
use tonic::metadata::MetadataValue;
use tonic::service::Routes;
use tonic::{Request, Response, Status, Streaming};

use super::answer::COLD;
use super::app::{App, Refusal};
use super::kserve::{OUTPUT, SERVER_NAME};
use super::proto::grpc_inference_service_server::{GrpcInferenceService, GrpcInferenceServiceServer};
use super::proto::model_infer_response::InferOutputTensor;
use super::proto::model_metadata_response::TensorMetadata;
use super::proto::repository_index_response::ModelIndex;
use super::proto::*;
use super::repository;
use super::ticket::Ticket;

/// As large as the HTTP side's bodies.
pub(super) const MOST_BYTES: usize = 64 << 20;

struct Service {
    app: Arc<App>,
}

/// The inference service and `grpc.health.v1`, which says that both the server and the service are up.
pub(super) async fn routes(app: Arc<App>) -> Routes {
    let (reporter, health) = tonic_health::server::health_reporter();
    reporter.set_serving::<GrpcInferenceServiceServer<Service>>().await;
    let inference = GrpcInferenceServiceServer::new(Service { app }).max_decoding_message_size(MOST_BYTES);
    Routes::new(inference).add_service(health)
}

pub(super) fn infer_response(model_name: String, model_version: String, id: String) -> ModelInferResponse {
    let contents = InferTensorContents { fp32_contents: OUTPUT.to_vec(), ..Default::default() };
    ModelInferResponse {
        model_name,
        model_version: if model_version.is_empty() { "1".to_owned() } else { model_version },
        id,
        outputs: vec![InferOutputTensor {
            name: "OUTPUT0".to_owned(),
            datatype: "FP32".to_owned(),
            shape: vec![1, OUTPUT.len() as i64],
            contents: Some(contents),
            ..Default::default()
        }],
        ..Default::default()
    }
}

fn status(refusal: &Refusal) -> Status {
    let message = refusal.to_string();
    match refusal {
        Refusal::NoModel => Status::invalid_argument(message),
        Refusal::UnknownModel(_) => Status::not_found(message),
        Refusal::Overloaded(_) => Status::resource_exhausted(message),
    }
}

impl Service {
    /// Runs one request; says whether it was cold.
    async fn infer(
        &self,
        ticket: &Ticket,
        headers: &HeaderMap,
        request: ModelInferRequest,
    ) -> Result<(ModelInferResponse, bool), Status> {
        let admitted = self.app.admit(ticket, Some(&request.model_name), headers).await;
        let (model, running) = admitted.map_err(|refusal| status(&refusal))?;
        self.app.work(0).await;
        ticket.succeeded();
        Ok((infer_response(model, request.model_version, request.id), running.cold))
    }

    fn serves(&self, model: &str) -> Result<(), Status> {
        self.app.serves(model).map_err(|refusal| status(&refusal))
    }
}

#[tonic::async_trait]
impl GrpcInferenceService for Service {
    async fn server_live(&self, _request: Request<ServerLiveRequest>) -> Result<Response<ServerLiveResponse>, Status> {
        Ok(Response::new(ServerLiveResponse { live: true }))
    }

    async fn server_ready(
        &self,
        _request: Request<ServerReadyRequest>,
    ) -> Result<Response<ServerReadyResponse>, Status> {
        Ok(Response::new(ServerReadyResponse { ready: true }))
    }

    async fn model_ready(&self, request: Request<ModelReadyRequest>) -> Result<Response<ModelReadyResponse>, Status> {
        let name = request.into_inner().name;
        self.serves(&name)?;
        Ok(Response::new(ModelReadyResponse { ready: self.app.gpu.is_resident(&name) }))
    }

    async fn server_metadata(
        &self,
        _request: Request<ServerMetadataRequest>,
    ) -> Result<Response<ServerMetadataResponse>, Status> {
        Ok(Response::new(ServerMetadataResponse {
            name: SERVER_NAME.to_owned(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            extensions: vec!["model_repository".to_owned()],
        }))
    }

    async fn model_metadata(
        &self,
        request: Request<ModelMetadataRequest>,
    ) -> Result<Response<ModelMetadataResponse>, Status> {
        let name = request.into_inner().name;
        self.serves(&name)?;
        let tensor =
            |name: &str, shape: Vec<i64>| TensorMetadata { name: name.to_owned(), datatype: "FP32".to_owned(), shape };
        Ok(Response::new(ModelMetadataResponse {
            name,
            versions: vec!["1".to_owned()],
            platform: "mock".to_owned(),
            inputs: vec![tensor("INPUT0", vec![-1, -1])],
            outputs: vec![tensor("OUTPUT0", vec![1, OUTPUT.len() as i64])],
        }))
    }

    async fn model_infer(&self, request: Request<ModelInferRequest>) -> Result<Response<ModelInferResponse>, Status> {
        let (metadata, extensions, message) = request.into_parts();
        let ticket = extensions.get::<Arc<Ticket>>().ok_or_else(|| Status::internal("no ticket"))?;
        let (answer, cold) = self.infer(ticket, &metadata.into_headers(), message).await?;
        let mut response = Response::new(answer);
        let cold = MetadataValue::from_static(if cold { "true" } else { "false" });
        response.metadata_mut().insert(COLD, cold);
        Ok(response)
    }

    type ModelStreamInferStream = Pin<Box<dyn Stream<Item = Result<ModelStreamInferResponse, Status>> + Send>>;

    /// Each message is a request of its own; its error is in its answer and does not end the stream.
    async fn model_stream_infer(
        &self,
        request: Request<Streaming<ModelInferRequest>>,
    ) -> Result<Response<Self::ModelStreamInferStream>, Status> {
        let (metadata, _extensions, messages) = request.into_parts();
        let headers = Arc::new(metadata.into_headers());
        let app = Arc::clone(&self.app);
        let answers = messages.then(move |message| {
            let (app, headers) = (Arc::clone(&app), Arc::clone(&headers));
            async move {
                let message = message?;
                let service = Self { app: Arc::clone(&app) };
                let ticket = Ticket::new(app, None);
                let result = service.infer(&ticket, &headers, message).await;
                ticket.end();
                Ok(match result {
                    Ok((answer, _cold)) => {
                        ModelStreamInferResponse { infer_response: Some(answer), error_message: String::new() }
                    }
                    Err(status) => {
                        ModelStreamInferResponse { infer_response: None, error_message: status.message().to_owned() }
                    }
                })
            }
        });
        Ok(Response::new(Box::pin(answers)))
    }

    async fn repository_index(
        &self,
        request: Request<RepositoryIndexRequest>,
    ) -> Result<Response<RepositoryIndexResponse>, Status> {
        let only_ready = request.into_inner().ready;
        let listed = repository::index(&self.app).into_iter().filter(|(_, resident)| *resident || !only_ready);
        let entry = |(name, resident): (String, bool)| ModelIndex {
            name,
            version: "1".to_owned(),
            state: if resident { "READY" } else { "UNAVAILABLE" }.to_owned(),
            reason: if resident { "" } else { "unloaded" }.to_owned(),
        };
        Ok(Response::new(RepositoryIndexResponse { models: listed.map(entry).collect() }))
    }

    async fn repository_model_load(
        &self,
        request: Request<RepositoryModelLoadRequest>,
    ) -> Result<Response<RepositoryModelLoadResponse>, Status> {
        let model = request.into_inner().model_name;
        self.serves(&model)?;
        self.app.gpu.load(&model).await;
        Ok(Response::new(RepositoryModelLoadResponse {}))
    }

    async fn repository_model_unload(
        &self,
        request: Request<RepositoryModelUnloadRequest>,
    ) -> Result<Response<RepositoryModelUnloadResponse>, Status> {
        let model = request.into_inner().model_name;
        self.serves(&model)?;
        self.app.gpu.unload(&model);
        Ok(Response::new(RepositoryModelUnloadResponse {}))
    }
}
