//! Sees each HTTP request of a client, and its answer: counts them, finds out why one failed, and
//! refuses answers that contradict themselves. What it finds is kept for the attempt that runs.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use http::header::{CONTENT_LENGTH, CONTENT_RANGE, HeaderMap, RANGE, RETRY_AFTER};
use http::{HeaderValue, StatusCode};
use http_body_util::{BodyExt, Full, Limited};
use object_store::ClientOptions;
use object_store::client::{
    HttpClient, HttpConnector, HttpError, HttpErrorKind, HttpRequest, HttpResponse,
    HttpResponseBody, HttpService, ReqwestConnector,
};

use super::gate::Gate;
use super::list;

/// The body of an error is read up to here, to find its code.
const ERROR_BYTES: usize = 64 << 10;
const ERROR_TIME: Duration = Duration::from_secs(2);
/// A page of a listing has at most a few thousand names of at most 1,024 bytes.
const PAGE_BYTES: usize = 64 << 20;

/// What one attempt met.
#[derive(Debug, Default, Clone)]
pub struct Met {
    /// The status of the last answer; 0 before any.
    pub status: u16,
    /// The store's name for an error, such as `SlowDown`.
    pub code: Option<String>,
    /// Where the bucket is, if the store says that it is elsewhere.
    pub region: Option<String>,
    /// How long the store asks to wait.
    pub wait: Option<Duration>,
    /// Who was asked, as "host" or "host:port".
    pub host: String,
    /// Why no answer came.
    pub transport: Option<HttpErrorKind>,
    /// The server showed a certificate that nobody here trusts.
    pub distrusted: bool,
    /// A whole object came where a part was asked for.
    pub unranged: bool,
    /// How the answer contradicts itself.
    pub lie: Option<&'static str>,
}

/// One attempt of one operation.
#[derive(Debug, Default)]
pub struct Probe {
    met: Mutex<Met>,
    /// The answer is a page of a listing.
    pub listing: bool,
}

impl Probe {
    /// Nothing is met yet.
    pub fn new(listing: bool) -> Self {
        Self { met: Mutex::default(), listing }
    }

    fn note(&self) -> MutexGuard<'_, Met> {
        self.met.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What was met so far.
    pub fn met(&self) -> Met {
        self.note().clone()
    }
}

tokio::task_local! {
    /// The attempt that runs.
    pub static PROBE: Arc<Probe>;
}

/// Counts of one store in this process.
#[derive(Debug, Default)]
pub struct Traffic {
    /// HTTP requests.
    pub requests: AtomicU64,
    /// Bytes of objects that came or went.
    pub bytes: AtomicU64,
    /// Attempts after a first one.
    pub retries: AtomicU64,
    /// How long callers waited.
    pub waiting_ns: AtomicU64,
    /// Whether the store ever answered.
    pub answered: AtomicBool,
}

/// Makes clients that are watched.
pub struct Connector {
    /// Where it counts.
    pub traffic: Arc<Traffic>,
    /// What it slows down.
    pub gate: Arc<Gate>,
}

impl std::fmt::Debug for Connector {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Connector")
    }
}

impl HttpConnector for Connector {
    fn connect(&self, options: &ClientOptions) -> object_store::Result<HttpClient> {
        // A machine without certificates of authorities can still read by http, and gets an error about
        // the server's certificate by https.
        let without = || options.clone().with_no_system_certificates(true);
        let inner = ReqwestConnector::default()
            .connect(options)
            .or_else(|_| ReqwestConnector::default().connect(&without()))?;
        let (traffic, gate) = (Arc::clone(&self.traffic), Arc::clone(&self.gate));
        Ok(HttpClient::new(Watched { inner, traffic, gate }))
    }
}

struct Watched {
    inner: HttpClient,
    traffic: Arc<Traffic>,
    gate: Arc<Gate>,
}

impl std::fmt::Debug for Watched {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Watched")
    }
}

#[async_trait]
impl HttpService for Watched {
    async fn call(&self, request: HttpRequest) -> Result<HttpResponse, HttpError> {
        let probe = PROBE.try_with(Arc::clone).unwrap_or_default();
        *probe.note() = Met::default();
        self.traffic.requests.fetch_add(1, Ordering::Relaxed);
        let host = match (request.uri().host(), request.uri().port()) {
            (Some(host), Some(port)) => format!("{host}:{port}"),
            (host, _) => host.unwrap_or("the server").to_owned(),
        };
        let range = request.headers().get(RANGE).and_then(asked);
        let is_head = request.method() == http::Method::HEAD;
        let answer = match self.inner.execute(request).await {
            Ok(answer) => answer,
            Err(error) => {
                let mut met = probe.note();
                (met.host, met.transport) = (host, Some(error.kind()));
                met.distrusted = format!("{error:?}").contains("InvalidCertificate");
                drop(met);
                return Err(error);
            }
        };
        self.traffic.answered.store(true, Ordering::Relaxed);
        let status = answer.status();
        probe.note().status = status.as_u16();
        if matches!(status, StatusCode::SERVICE_UNAVAILABLE | StatusCode::TOO_MANY_REQUESTS) {
            self.gate.slow_down();
        }
        match status.is_success() {
            false if is_head => {
                note_headers(&probe, answer.headers());
                Ok(answer)
            }
            false => Ok(refused(answer, &probe).await),
            true if probe.listing => page(answer, &probe).await,
            true if is_head => Ok(answer),
            true => match range {
                Some(range) => ranged(answer, range, &probe),
                None => Ok(answer),
            },
        }
    }
}

fn lie(probe: &Probe, text: &'static str) -> HttpError {
    probe.note().lie = Some(text);
    HttpError::new(HttpErrorKind::Decode, std::io::Error::other(text))
}

fn note_headers(probe: &Probe, headers: &HeaderMap) {
    let text = |name: &str| headers.get(name).and_then(|value| value.to_str().ok());
    let mut met = probe.note();
    met.wait = text(RETRY_AFTER.as_str())
        .and_then(|seconds| seconds.trim().parse().ok())
        .map(|seconds: u64| Duration::from_secs(seconds.min(30)));
    met.region = text("x-amz-bucket-region").and_then(word);
    met.code = met.code.take().or_else(|| text("x-ms-error-code").and_then(word));
}

/// Keep what cannot be a secret: the names of errors and regions are short and have no other signs.
fn word(text: &str) -> Option<String> {
    let is_word = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_';
    (!text.is_empty() && text.len() <= 64 && text.bytes().all(is_word)).then(|| text.to_owned())
}

/// An error: its code is kept, its text is not, because it may repeat what was sent.
async fn refused(answer: HttpResponse, probe: &Probe) -> HttpResponse {
    let (parts, body) = answer.into_parts();
    note_headers(probe, &parts.headers);
    let read = Limited::new(body, ERROR_BYTES).collect();
    if let Ok(Ok(read)) = tokio::time::timeout(ERROR_TIME, read).await {
        let bytes = read.to_bytes();
        let text = String::from_utf8_lossy(&bytes);
        let code = list::between(&text, "<Code>", "</Code>").and_then(word);
        let mut met = probe.note();
        met.code = met.code.take().or(code);
        met.region = met
            .region
            .take()
            .or_else(|| list::between(&text, "<Region>", "</Region>").and_then(word));
    }
    HttpResponse::from_parts(parts, whole(Bytes::new()))
}

fn whole(bytes: Bytes) -> HttpResponseBody {
    HttpResponseBody::new(Full::new(bytes).map_err(|never| match never {}))
}

/// A page of a listing: read whole, checked, and rewritten so that the crate takes every key.
async fn page(answer: HttpResponse, probe: &Probe) -> Result<HttpResponse, HttpError> {
    let (mut parts, body) = answer.into_parts();
    let Ok(read) = Limited::new(body, PAGE_BYTES).collect().await else {
        return Err(lie(probe, "a page of the listing broke off"));
    };
    let bytes = read.to_bytes();
    let Ok(text) = std::str::from_utf8(&bytes) else {
        return Err(lie(probe, "a page of the listing is not UTF-8"));
    };
    let text = list::rewritten(text).map_err(|text| lie(probe, text))?;
    parts.headers.remove(CONTENT_LENGTH);
    Ok(HttpResponse::from_parts(parts, whole(Bytes::from(text))))
}

/// A range that was asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Asked {
    /// From a byte to before another.
    Part(u64, u64),
    /// From a byte to the end.
    Rest(u64),
    /// So many bytes before the end.
    Last(u64),
}

fn asked(value: &HeaderValue) -> Option<Asked> {
    let (start, end) = value.to_str().ok()?.strip_prefix("bytes=")?.split_once('-')?;
    match (start.is_empty(), end.is_empty()) {
        (true, _) => Some(Asked::Last(end.parse().ok()?)),
        (_, true) => Some(Asked::Rest(start.parse().ok()?)),
        _ => Some(Asked::Part(start.parse().ok()?, end.parse::<u64>().ok()?.checked_add(1)?)),
    }
}

impl Asked {
    fn is_all_of(self, size: u64) -> bool {
        match self {
            Self::Part(start, end) => start == 0 && end >= size,
            Self::Rest(start) => start == 0,
            Self::Last(length) => length >= size,
        }
    }
}

fn number(headers: &HeaderMap) -> Option<u64> {
    headers.get(CONTENT_LENGTH)?.to_str().ok()?.trim().parse().ok()
}

/// The first byte, the byte after the last, and the object's size.
fn content_range(headers: &HeaderMap) -> Option<(u64, u64, u64)> {
    let text = headers.get(CONTENT_RANGE)?.to_str().ok()?.trim();
    let (range, size) = text.strip_prefix("bytes ")?.split_once('/')?;
    let (start, last) = range.split_once('-')?;
    let end = last.parse::<u64>().ok()?.checked_add(1)?;
    Some((start.parse().ok()?, end, size.parse().ok()?))
}

/// The answer to a request for a range.
fn ranged(answer: HttpResponse, range: Asked, probe: &Probe) -> Result<HttpResponse, HttpError> {
    let (mut parts, body) = answer.into_parts();
    let length = number(&parts.headers);
    if parts.status != StatusCode::PARTIAL_CONTENT {
        // A server may answer with the whole object, which is right if the whole was asked for.
        match length.filter(|&length| length > 0 && range.is_all_of(length)) {
            Some(length) => {
                let text = format!("bytes 0-{}/{length}", length.saturating_sub(1));
                if let Ok(value) = HeaderValue::from_str(&text) {
                    parts.headers.insert(CONTENT_RANGE, value);
                    parts.status = StatusCode::PARTIAL_CONTENT;
                }
            }
            None => probe.note().unranged = true,
        }
        return Ok(HttpResponse::from_parts(parts, body));
    }
    let Some((start, end, size)) = content_range(&parts.headers) else {
        return Err(lie(probe, "the answer does not say which range it holds"));
    };
    if start >= end || end > size {
        return Err(lie(probe, "the answer names a range that cannot be"));
    }
    match length {
        Some(length) if length > end.saturating_sub(start) => {
            return Err(lie(probe, "the answer is longer than the range that it names"));
        }
        Some(_) => {}
        None => {
            let value = HeaderValue::from(end.saturating_sub(start));
            parts.headers.insert(CONTENT_LENGTH, value);
        }
    }
    Ok(HttpResponse::from_parts(parts, body))
}
