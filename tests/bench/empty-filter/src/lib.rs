//! The smallest filter that the Rust SDK can make: it is called for each request and does nothing.
//! The cost bench takes it as the floor, so that what Warmroute adds is told apart from what any Rust filter costs.

use proxy_wasm::traits::{Context, HttpContext, RootContext};
use proxy_wasm::types::ContextType;

proxy_wasm::main! {{
    proxy_wasm::set_root_context(|_| Box::new(Empty));
}}

struct Empty;

impl Context for Empty {}

impl HttpContext for Empty {}

impl RootContext for Empty {
    fn create_http_context(&self, _context_id: u32) -> Option<Box<dyn HttpContext>> {
        Some(Box::new(Empty))
    }

    fn get_type(&self) -> Option<ContextType> {
        Some(ContextType::HttpContext)
    }
}
