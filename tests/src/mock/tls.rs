//! TLS of the listening side: a given certificate or one made for the occasion; HTTP/2 and HTTP/1.1 by ALPN.

use std::net::SocketAddr;
use std::sync::Arc;

use anyhow::{Context, Result};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::rustls::{self, ServerConfig};

/// A certificate chain and its key, both PEM.
#[derive(Clone)]
pub struct Identity {
    pub certificates_pem: String,
    pub key_pem: String,
}

impl std::fmt::Debug for Identity {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.debug_struct("Identity").field("certificates_pem", &self.certificates_pem).finish_non_exhaustive()
    }
}

impl Identity {
    /// A certificate for `localhost`, the loopback addresses and the listening address, signed by itself.
    pub fn self_signed(listen: SocketAddr) -> Result<Self> {
        let names = ["localhost".to_owned(), "127.0.0.1".to_owned(), "::1".to_owned(), listen.ip().to_string()];
        let made = rcgen::generate_simple_self_signed(names).context("making a certificate")?;
        Ok(Self { certificates_pem: made.cert.pem(), key_pem: made.signing_key.serialize_pem() })
    }

    pub(super) fn acceptor(&self) -> Result<TlsAcceptor> {
        let chain = CertificateDer::pem_slice_iter(self.certificates_pem.as_bytes())
            .collect::<Result<Vec<_>, _>>()
            .context("reading the certificate")?;
        let key = PrivateKeyDer::from_pem_slice(self.key_pem.as_bytes()).context("reading the key")?;
        let mut config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()
            .and_then(|builder| builder.with_no_client_auth().with_single_cert(chain, key))
            .map_err(|error: rustls::Error| anyhow::Error::new(error).context("using the certificate"))?;
        config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
        Ok(TlsAcceptor::from(Arc::new(config)))
    }
}
