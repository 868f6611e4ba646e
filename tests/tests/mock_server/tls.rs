use std::sync::Arc;

use bytes::Bytes;
use http_body_util::{BodyExt, Empty};
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::io::AsyncReadExt;
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, ServerName};
use tokio_rustls::rustls::{ClientConfig, RootCertStore};
use warmroute_tests::mock::{Identity, MockServer};

async fn connect(server: &MockServer, protocol: &str) -> TlsStream<TcpStream> {
    let pem = server.certificate_pem().expect("certificate");
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_slice(pem.as_bytes()).expect("certificate")).expect("root");
    let mut config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .expect("versions")
        .with_root_certificates(roots)
        .with_no_client_auth();
    config.alpn_protocols = vec![protocol.as_bytes().to_vec()];
    let stream = TcpStream::connect(server.addr()).await.expect("connection");
    let name = ServerName::from(server.addr().ip());
    TlsConnector::from(Arc::new(config)).connect(name, stream).await.expect("handshake")
}

fn health() -> http::Request<Empty<Bytes>> {
    http::Request::get("https://localhost/health").body(Empty::new()).expect("request")
}

#[tokio::test]
async fn alpn_chooses_between_http1_and_http2() {
    let given = Identity::self_signed(([127, 0, 0, 1], 0).into()).expect("identity");
    for builder in [MockServer::builder().tls_self_signed(), MockServer::builder().tls(given)] {
        let server = builder.start().await.expect("start");
        assert!(server.base_url().starts_with("https://"));

        let stream = connect(&server, "http/1.1").await;
        assert_eq!(stream.get_ref().1.alpn_protocol(), Some(&b"http/1.1"[..]));
        let (mut send, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await.expect("http");
        let driver = tokio::spawn(connection);
        let answer = send.send_request(health()).await.expect("answer");
        assert_eq!((answer.status().as_u16(), answer.version()), (200, http::Version::HTTP_11));
        answer.into_body().collect().await.expect("body");
        driver.abort();

        let stream = connect(&server, "h2").await;
        assert_eq!(stream.get_ref().1.alpn_protocol(), Some(&b"h2"[..]));
        let http2 = hyper::client::conn::http2::handshake(TokioExecutor::new(), TokioIo::new(stream));
        let (mut send, connection) = http2.await.expect("http");
        let driver = tokio::spawn(connection);
        let answer = send.send_request(health()).await.expect("answer");
        assert_eq!((answer.status().as_u16(), answer.version()), (200, http::Version::HTTP_2));
        assert_eq!(answer.headers()["x-served-by"], server.addr().to_string().as_str());
        driver.abort();
    }
}

#[tokio::test]
async fn a_client_that_does_not_speak_tls_is_hung_up_on_and_others_are_served() {
    let server = MockServer::builder().tls_self_signed().start().await.expect("start");
    let mut plain = TcpStream::connect(server.addr()).await.expect("connection");
    tokio::io::AsyncWriteExt::write_all(&mut plain, b"GET /health HTTP/1.1\r\n\r\n").await.expect("write");
    let mut seen = Vec::new();
    // An alert and the end, or a reset: never an answer in plain text.
    if plain.read_to_end(&mut seen).await.is_ok() {
        assert!(!seen.starts_with(b"HTTP"));
    }
    let stream = connect(&server, "http/1.1").await;
    let (mut send, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await.expect("http");
    let driver = tokio::spawn(connection);
    assert_eq!(send.send_request(health()).await.expect("answer").status(), 200);
    driver.abort();
}
