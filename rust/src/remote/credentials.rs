//! Credentials that a function of the caller gives, asked for again before they expire.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use async_trait::async_trait;
use object_store::aws::AwsCredential;
use object_store::azure::AzureCredential;
use object_store::gcp::GcpCredential;
use object_store::{CredentialProvider, Error, Result};

/// What the function gives: keys as in options, and `expires_at` in seconds since 1970.
pub type Given = BTreeMap<String, String>;
/// The function. Its error is told to the user, so it must hold no secret.
pub type Source = Arc<dyn Fn() -> std::result::Result<Given, String> + Send + Sync>;

/// How long credentials without `expires_at` are used.
const USUAL: Duration = Duration::from_secs(15 * 60);
/// They are renewed so long before they expire.
const MARGIN: Duration = Duration::from_secs(60);

struct Kept<C> {
    value: Arc<C>,
    until: Instant,
}

/// Asks the function and keeps the answer.
pub struct Asking<C> {
    source: Source,
    make: fn(&Given) -> Option<C>,
    kept: Arc<Mutex<Option<Kept<C>>>>,
    one: tokio::sync::Mutex<()>,
}

impl<C> std::fmt::Debug for Asking<C> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Asking")
    }
}

/// What the store refused is asked for anew.
pub trait Forget: Send + Sync {
    /// Forget what the function gave.
    fn forget(&self);
}

impl<C: Send + Sync> Forget for Asking<C> {
    fn forget(&self) {
        *self.kept.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }
}

impl<C> Asking<C> {
    /// With a function, and what makes a credential of its answer.
    pub fn new(source: Source, make: fn(&Given) -> Option<C>) -> Self {
        Self { source, make, kept: Arc::new(Mutex::new(None)), one: tokio::sync::Mutex::new(()) }
    }

    fn kept(&self) -> Option<Arc<C>> {
        let kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        kept.as_ref().filter(|kept| Instant::now() < kept.until).map(|kept| Arc::clone(&kept.value))
    }
}

fn failed(text: String) -> Error {
    Error::Generic { store: "credentials", source: text.into() }
}

fn lifetime(given: &Given) -> Duration {
    let Some(at) = given.get("expires_at").and_then(|text| text.trim().parse::<f64>().ok()) else {
        return USUAL;
    };
    let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0.0, |time| time.as_secs_f64());
    let left = Duration::try_from_secs_f64(at - now).unwrap_or_default();
    // What lives shorter than the margin is used for half of its life.
    left.checked_sub(MARGIN).filter(|rest| !rest.is_zero()).unwrap_or(left / 2)
}

#[async_trait]
impl<C: Send + Sync + 'static> CredentialProvider for Asking<C> {
    type Credential = C;

    async fn get_credential(&self) -> Result<Arc<C>> {
        if let Some(value) = self.kept() {
            return Ok(value);
        }
        let _one = self.one.lock().await;
        if let Some(value) = self.kept() {
            return Ok(value);
        }
        let (source, make, kept) = (Arc::clone(&self.source), self.make, Arc::clone(&self.kept));
        // It may wait for a person or a network, and it may need the interpreter's lock.
        let asked = tokio::task::spawn_blocking(move || {
            let given = source().map_err(failed)?;
            let Some(value) = make(&given) else {
                return Err(failed("the function for credentials gave none that fit".to_owned()));
            };
            let (value, until) = (Arc::new(value), Instant::now() + lifetime(&given));
            let fresh = Kept { value: Arc::clone(&value), until };
            *kept.lock().unwrap_or_else(PoisonError::into_inner) = Some(fresh);
            Ok(value)
        });
        asked.await.unwrap_or_else(|_| Err(failed("the function for credentials broke off".into())))
    }
}

fn value(given: &Given, names: &[&str]) -> Option<String> {
    names.iter().find_map(|&name| given.get(name)).cloned()
}

/// Keys of S3.
pub fn aws(given: &Given) -> Option<AwsCredential> {
    Some(AwsCredential {
        key_id: value(given, &["aws_access_key_id", "access_key_id"])?,
        secret_key: value(given, &["aws_secret_access_key", "secret_access_key"])?,
        token: value(given, &["aws_session_token", "session_token"]),
    })
}

/// A token of GCS.
pub fn gcp(given: &Given) -> Option<GcpCredential> {
    Some(GcpCredential { bearer: value(given, &["google_bearer_token", "bearer_token"])? })
}

/// A token of Azure.
pub fn azure(given: &Given) -> Option<AzureCredential> {
    let token = value(given, &["azure_storage_token", "bearer_token", "token"])?;
    Some(AzureCredential::BearerToken(token))
}
