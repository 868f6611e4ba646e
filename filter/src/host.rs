//! The proxy-wasm host, as far as the filter calls it, and the only file that does.
//!
//! The SDK's own host calls panic on every status that they do not list and on header bytes that are not UTF-8, and a
//! panic takes down every request of the worker. Here each status becomes a value. The SDK still dispatches callbacks.
//! Source: the proxy-wasm ABI 0.2.1, <https://github.com/proxy-wasm/spec>.

use std::ptr;
use std::time::Duration;

/// A status other than Ok, as the host gave it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HostError(u32);

impl HostError {
    /// The host's answer is not what the ABI promises.
    pub const MALFORMED: Self = Self(u32::MAX);
    /// The VM's state is in use: a callback within a callback, which the host does not make.
    pub const BUSY: Self = Self(u32::MAX - 1);
}

impl std::fmt::Display for HostError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match *self {
            Self::MALFORMED => f.write_str("host answer is malformed"),
            Self::BUSY => f.write_str("callback within a callback"),
            Self(status) => write!(f, "host status {status}"),
        }
    }
}

/// A counter or gauge of Envoy's.
#[derive(Clone, Copy, Debug)]
pub struct Metric(u32);

/// Kinds of metrics, with the ABI's numbers.
#[derive(Clone, Copy, Debug)]
#[repr(u32)]
pub enum MetricKind {
    Counter = 0,
    Gauge = 1,
}

/// Log levels, with the ABI's numbers.
#[derive(Clone, Copy, Debug)]
#[repr(u32)]
pub enum Level {
    Warn = 3,
    Error = 4,
    Critical = 5,
}

/// Header maps, with the ABI's numbers.
#[derive(Clone, Copy, Debug)]
#[repr(u32)]
pub enum Map {
    Request = 0,
    Response = 2,
    ResponseTrailers = 3,
}

const OK: u32 = 0;
const NOT_FOUND: u32 = 1;
const CAS_MISMATCH: u32 = 8;
const REQUEST_BODY: u32 = 0;
const PLUGIN_CONFIGURATION: u32 = 7;
const REQUEST_STREAM: u32 = 0;
const MONOTONIC_CLOCK: u32 = 1;

mod raw {
    #[link(wasm_import_module = "env")]
    // SAFETY: the signatures are those of the ABI; pointers and lengths are passed as pairs.
    unsafe extern "C" {
        pub fn proxy_log(level: u32, text: *const u8, length: usize) -> u32;
        pub fn proxy_get_property(path: *const u8, length: usize, value: *mut *mut u8, size: *mut usize) -> u32;
        pub fn proxy_get_buffer_bytes(kind: u32, start: usize, max: usize, data: *mut *mut u8, size: *mut usize)
        -> u32;
        pub fn proxy_get_header_map_pairs(map: u32, data: *mut *mut u8, size: *mut usize) -> u32;
        pub fn proxy_get_header_map_value(
            map: u32,
            name: *const u8,
            length: usize,
            value: *mut *mut u8,
            size: *mut usize,
        ) -> u32;
        pub fn proxy_replace_header_map_value(
            map: u32,
            name: *const u8,
            name_length: usize,
            value: *const u8,
            value_length: usize,
        ) -> u32;
        pub fn proxy_remove_header_map_value(map: u32, name: *const u8, length: usize) -> u32;
        pub fn proxy_send_local_response(
            status: u32,
            details: *const u8,
            details_length: usize,
            body: *const u8,
            body_length: usize,
            headers: *const u8,
            headers_length: usize,
            grpc_status: i32,
        ) -> u32;
        pub fn proxy_define_metric(kind: u32, name: *const u8, length: usize, id: *mut u32) -> u32;
        pub fn proxy_increment_metric(id: u32, by: i64) -> u32;
        pub fn proxy_get_current_time_nanoseconds(time: *mut u64) -> u32;
        pub fn proxy_set_tick_period_milliseconds(period: u32) -> u32;
        pub fn proxy_set_property(path: *const u8, length: usize, value: *const u8, size: usize) -> u32;
        pub fn proxy_get_shared_data(
            key: *const u8,
            length: usize,
            value: *mut *mut u8,
            size: *mut usize,
            cas: *mut u32,
        ) -> u32;
        pub fn proxy_set_shared_data(key: *const u8, length: usize, value: *const u8, size: usize, cas: u32) -> u32;
        pub fn proxy_set_effective_context(context: u32) -> u32;
        pub fn proxy_continue_stream(stream: u32) -> u32;
    }

    #[link(wasm_import_module = "wasi_snapshot_preview1")]
    // SAFETY: the signature is that of WASI preview 1.
    unsafe extern "C" {
        pub fn clock_time_get(clock: u32, precision: u64, time: *mut u64) -> u32;
    }
}

fn checked(status: u32) -> Result<(), HostError> {
    if status == OK { Ok(()) } else { Err(HostError(status)) }
}

/// Runs a call that gives bytes. The host allocates them by the SDK's `proxy_on_memory_allocate`; `None` when there
/// is no such thing.
fn bytes(call: impl FnOnce(*mut *mut u8, *mut usize) -> u32) -> Result<Option<Vec<u8>>, HostError> {
    let (mut data, mut size) = (ptr::null_mut(), 0);
    match call(&raw mut data, &raw mut size) {
        OK if data.is_null() => Ok(Some(Vec::new())),
        // SAFETY: the host wrote `size` bytes at `data`, which `proxy_on_memory_allocate(size)` made as a boxed slice
        // of exactly that length, and nobody else holds it.
        OK => Ok(Some(unsafe { Vec::from_raw_parts(data, size, size) })),
        NOT_FOUND => Ok(None),
        status => Err(HostError(status)),
    }
}

/// Writes to Envoy's log. A log line that the host refuses is lost: there is nobody else to tell.
pub fn log(level: Level, text: &str) {
    // SAFETY: the host reads `text.len()` bytes of `text`.
    let _refused = unsafe { raw::proxy_log(level as u32, text.as_ptr(), text.len()) };
}

/// An attribute of the stream; the parts of `path` are separated by zero bytes.
pub fn property(path: &str) -> Result<Option<Vec<u8>>, HostError> {
    // SAFETY: the host reads `path.len()` bytes of `path` and writes both results.
    bytes(|data, size| unsafe { raw::proxy_get_property(path.as_ptr(), path.len(), data, size) })
}

/// An attribute that is a number: 8 bytes, little endian.
pub fn number(path: &str) -> Result<Option<u64>, HostError> {
    let value = property(path)?;
    Ok(value.and_then(|bytes| Some(u64::from_le_bytes(*bytes.first_chunk()?))))
}

/// The configuration of this plugin.
pub fn plugin_configuration(size: usize) -> Result<Vec<u8>, HostError> {
    // SAFETY: the host writes both results.
    let read = bytes(|data, read| unsafe { raw::proxy_get_buffer_bytes(PLUGIN_CONFIGURATION, 0, size, data, read) });
    Ok(read?.unwrap_or_default())
}

/// All headers in one call, in the ABI's layout.
pub fn headers(map: Map) -> Result<Vec<u8>, HostError> {
    // SAFETY: the host writes both results.
    let read = bytes(|data, size| unsafe { raw::proxy_get_header_map_pairs(map as u32, data, size) });
    Ok(read?.unwrap_or_default())
}

/// One header; `None` where there is none.
pub fn header(map: Map, name: &str) -> Result<Option<Vec<u8>>, HostError> {
    // SAFETY: the host reads `name.len()` bytes of `name` and writes both results.
    bytes(|data, size| unsafe { raw::proxy_get_header_map_value(map as u32, name.as_ptr(), name.len(), data, size) })
}

/// Sets a request header, over every copy of it that is there.
pub fn replace_request_header(name: &str, value: &str) -> Result<(), HostError> {
    // SAFETY: the host reads `name` and `value` by their lengths.
    checked(unsafe {
        raw::proxy_replace_header_map_value(Map::Request as u32, name.as_ptr(), name.len(), value.as_ptr(), value.len())
    })
}

/// Removes every copy of a request header.
pub fn remove_request_header(name: &str) -> Result<(), HostError> {
    // SAFETY: the host reads `name.len()` bytes of `name`.
    checked(unsafe { raw::proxy_remove_header_map_value(Map::Request as u32, name.as_ptr(), name.len()) })
}

/// An answer of our own.
#[derive(Clone, Copy, Debug)]
pub struct LocalResponse<'a> {
    pub status: u16,
    /// Goes into `response.code_details` and Envoy's access log.
    pub details: &'a str,
    pub body: &'a str,
    /// In the ABI's layout.
    pub headers: &'a [u8],
    /// Sent instead of status and body to a gRPC client.
    pub grpc_status: u8,
}

/// Answers the request; the filter must stop it afterwards.
pub fn send_local_response(response: &LocalResponse<'_>) -> Result<(), HostError> {
    let LocalResponse { status, details, body, headers, grpc_status } = *response;
    // SAFETY: the host reads each text by its length.
    checked(unsafe {
        raw::proxy_send_local_response(
            u32::from(status),
            details.as_ptr(),
            details.len(),
            body.as_ptr(),
            body.len(),
            headers.as_ptr(),
            headers.len(),
            i32::from(grpc_status),
        )
    })
}

/// Names a metric; one name is one metric in the whole Envoy, whichever VM defines it.
pub fn define_metric(kind: MetricKind, name: &str) -> Result<Metric, HostError> {
    let mut id = 0;
    // SAFETY: the host reads `name.len()` bytes of `name` and writes the id.
    checked(unsafe { raw::proxy_define_metric(kind as u32, name.as_ptr(), name.len(), &raw mut id) })?;
    Ok(Metric(id))
}

/// Adds to a counter (`by` > 0) or a gauge (either sign).
pub fn increment(metric: Metric, by: i64) -> Result<(), HostError> {
    // SAFETY: no memory is passed.
    checked(unsafe { raw::proxy_increment_metric(metric.0, by) })
}

/// Asks for `on_tick` at this interval.
pub fn set_tick_period(period: Duration) -> Result<(), HostError> {
    let milliseconds = u32::try_from(period.as_millis()).unwrap_or(u32::MAX);
    // SAFETY: no memory is passed.
    checked(unsafe { raw::proxy_set_tick_period_milliseconds(milliseconds) })
}

/// The monotonic clock. One for the whole process, so that times that VMs tell each other compare; the SDK's own time is
/// the wall clock. The host does not refuse it; if it did, no time would pass.
pub fn now() -> Duration {
    let mut nanoseconds = 0;
    // SAFETY: the host writes the result.
    let _status = unsafe { raw::clock_time_get(MONOTONIC_CLOCK, 0, &raw mut nanoseconds) };
    Duration::from_nanos(nanoseconds)
}

/// Sets an attribute of the stream, which Envoy's formats read as `%FILTER_STATE(wasm.{name}:PLAIN)%`.
pub fn set_property(name: &str, value: &str) -> Result<(), HostError> {
    // SAFETY: the host reads `name` and `value` by their lengths.
    checked(unsafe { raw::proxy_set_property(name.as_ptr(), name.len(), value.as_ptr(), value.len()) })
}

/// The part of the request's body that is buffered, from `start`, at most `max` bytes of it.
pub fn request_body(start: usize, max: usize) -> Result<Vec<u8>, HostError> {
    // SAFETY: the host writes both results.
    let read = bytes(|data, size| unsafe { raw::proxy_get_buffer_bytes(REQUEST_BODY, start, max, data, size) });
    Ok(read?.unwrap_or_default())
}

/// Lets a request go on that was stopped at its headers, from outside of its own callbacks.
pub fn continue_request(context: u32) -> Result<(), HostError> {
    select(context)?;
    // SAFETY: no memory is passed.
    checked(unsafe { raw::proxy_continue_stream(REQUEST_STREAM) })
}

/// Makes the calls that follow concern that context.
pub fn select(context: u32) -> Result<(), HostError> {
    // SAFETY: no memory is passed.
    checked(unsafe { raw::proxy_set_effective_context(context) })
}

/// A value that all VMs share, and its version; `None` where there is none.
pub fn shared(key: &str) -> Result<Option<(Vec<u8>, u32)>, HostError> {
    let mut version = 0;
    // SAFETY: the host reads `key.len()` bytes of `key` and writes the results.
    let value = bytes(|data, size| unsafe {
        raw::proxy_get_shared_data(key.as_ptr(), key.len(), data, size, &raw mut version)
    })?;
    Ok(value.map(|value| (value, version)))
}

/// Writes a shared value if it is still the one of that version; false when somebody else was faster. A version that is
/// not 0 writes a value that is not there.
pub fn set_shared(key: &str, value: &[u8], version: u32) -> Result<bool, HostError> {
    // SAFETY: the host reads `key` and `value` by their lengths.
    match unsafe { raw::proxy_set_shared_data(key.as_ptr(), key.len(), value.as_ptr(), value.len(), version) } {
        CAS_MISMATCH => Ok(false),
        status => checked(status).map(|()| true),
    }
}

/// A seed for this VM's generator: random, so that the workers of one Envoy do not draw alike. Where randomness is
/// refused, the time at which the VM asks has to do.
pub fn seed() -> u64 {
    getrandom::u64().unwrap_or_else(|_| {
        let mut nanoseconds = 0;
        // SAFETY: the host writes the result; if it does not, 0 is a seed as well.
        let _refused = unsafe { raw::proxy_get_current_time_nanoseconds(&raw mut nanoseconds) };
        nanoseconds
    })
}
