//! Data in object stores (S3, GCS, Azure) and behind HTTP, without Python.
//!
//! `config` makes the client of the crate `object_store`; `watch` sees each HTTP request that it sends;
//! `course` repeats what may be repeated; `fetch`, `list` and `upload` are the work. Errors are a
//! `Problem`, whose text is always our own: the crate's may show addresses with signatures.

pub mod client;
pub mod config;
pub mod course;
pub mod credentials;
pub mod fetch;
pub mod gate;
pub mod list;
pub mod pending;
pub mod plan;
pub mod process;
pub mod upload;
pub mod watch;

#[cfg(test)]
mod tests;

/// What identifies one state of an object.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub struct State {
    /// In bytes.
    pub size: u64,
    /// As the store sent it, with its quotes.
    pub etag: Option<String>,
    /// Of a store that keeps versions.
    pub version: Option<String>,
    /// Milliseconds since 1970.
    pub modified_ms: Option<i64>,
}

impl State {
    /// The ETag, if it stands for the bytes and not only for the meaning.
    pub fn strong_etag(&self) -> Option<&str> {
        self.etag.as_deref().filter(|tag| !tag.starts_with("W/"))
    }
}

/// What went wrong, for the caller to tell apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// There is no such object.
    Missing,
    /// The object is another than the one that was opened.
    Changed,
    /// The store refused access.
    Denied,
    /// The object is there already.
    Exists,
    /// It took too long.
    Deadline,
    /// The store or the server cannot do this.
    Unsupported,
    /// Anything else.
    Other,
}

impl Kind {
    /// As Python sees it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Missing => "missing",
            Self::Changed => "changed",
            Self::Denied => "denied",
            Self::Exists => "exists",
            Self::Deadline => "deadline",
            Self::Unsupported => "unsupported",
            Self::Other => "other",
        }
    }
}

/// Why something could not be done. It never holds a query string, a header or a secret.
#[derive(Debug, Clone)]
pub struct Problem {
    /// What kind of problem.
    pub kind: Kind,
    /// One sentence without a full stop.
    pub message: String,
    /// The object.
    pub key: String,
    /// The bytes that were asked for.
    pub range: Option<(u64, u64)>,
    /// How often it was tried.
    pub tries: u32,
    /// How long it took.
    pub seconds: f64,
}

impl Problem {
    /// A problem that was found without asking the store.
    pub fn at_once(kind: Kind, message: impl Into<String>, key: &str) -> Self {
        let (message, key) = (message.into(), key.to_owned());
        Self { kind, message, key, range: None, tries: 0, seconds: 0.0 }
    }
}
