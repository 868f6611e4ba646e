//! The mock model server over real sockets: what it promises to every other test.

mod cancel;
mod client;
mod crash;
mod faults;
mod grpc;
mod kserve;
mod openai;
mod program;
mod queueing;
mod residency;
mod tls;
