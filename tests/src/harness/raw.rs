//! HTTP/1.1 by hand, for requests that no client library agrees to send.

use std::net::SocketAddr;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// An answer as it came.
#[derive(Debug, Clone)]
pub struct RawReply {
    pub status: u16,
    pub headers: Vec<(String, Vec<u8>)>,
    /// Undecoded: with `transfer-encoding: chunked` the chunks' frames are still in it.
    pub body: Vec<u8>,
}

impl RawReply {
    /// The first header of this name, whatever its case.
    pub fn header(&self, name: &str) -> Option<&[u8]> {
        let found = self.headers.iter().find(|(key, _)| key.eq_ignore_ascii_case(name));
        found.map(|(_, value)| value.as_slice())
    }
}

/// Writes `request` as it is and reads until the other side closes, so it should say `connection: close`.
pub async fn raw_exchange(to: SocketAddr, request: &[u8], within: Duration) -> Result<RawReply> {
    let exchange = async {
        let mut stream = TcpStream::connect(to).await.with_context(|| format!("cannot connect to {to}"))?;
        stream.write_all(request).await.context("cannot send")?;
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).await.context("cannot read the answer")?;
        parse(&answer)
    };
    let ended = tokio::time::timeout(within, exchange).await;
    ended.with_context(|| format!("{to} did not answer and close within {within:?}"))?
}

fn parse(answer: &[u8]) -> Result<RawReply> {
    let mut headers = [httparse::EMPTY_HEADER; 128];
    let mut head = httparse::Response::new(&mut headers);
    let length = match head.parse(answer).context("the answer is not HTTP/1.1")? {
        httparse::Status::Complete(length) => length,
        httparse::Status::Partial => bail!("the answer broke off after {} bytes", answer.len()),
    };
    let headers = head.headers.iter().map(|header| (header.name.to_owned(), header.value.to_vec())).collect();
    let status = head.code.context("the answer has no status")?;
    Ok(RawReply { status, headers, body: answer[length..].to_vec() })
}
