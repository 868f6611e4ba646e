//! The Warmroute filter: binds the decisions of `warmroute-core` to Envoy by proxy-wasm. It decides nothing itself.
//!
//! * `host`: the calls to Envoy
//! * `root`: one configuration, shared by its requests
//! * `http`: one request, from its headers to its end
//! * `vm`: what all of them share in one VM
//! * `stats`: what Envoy counts for us

#![deny(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::unreachable,
    clippy::undocumented_unsafe_blocks,
    unsafe_code
)]

mod body;
#[expect(unsafe_code, reason = "the calls to the host")]
mod host;
mod http;
mod lease;
mod root;
mod stats;
mod vm;

proxy_wasm::main! {{
    std::panic::set_hook(Box::new(|panic| host::log(host::Level::Critical, &format!("warmroute: {panic}"))));
    proxy_wasm::set_root_context(|_| Box::new(root::Root::default()));
}}
