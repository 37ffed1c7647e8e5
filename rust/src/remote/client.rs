//! The client of one store in one process.

use std::sync::Arc;

use object_store::aws::AwsCredentialProvider;
use object_store::azure::AzureCredentialProvider;
use object_store::gcp::GcpCredentialProvider;
use object_store::http::HttpStore;
use object_store::list::PaginatedListStore;
use object_store::multipart::MultipartStore;
use object_store::path::Path;
use object_store::{ObjectMeta, ObjectStore};
use tokio::sync::Semaphore;

use super::config::{Config, Scheme, shown};
use super::credentials::Forget;
use super::gate::Gate;
use super::process::PerProcess;
use super::watch::{Connector, Traffic};
use super::{Kind, Problem, State};

/// Where a client's credentials come from.
pub enum Credentials {
    /// It needs none.
    None,
    /// For S3.
    Aws(AwsCredentialProvider),
    /// For GCS.
    Gcp(GcpCredentialProvider),
    /// For Azure.
    Azure(AzureCredentialProvider),
}

impl Credentials {
    /// Get them, or find that there are none.
    pub async fn check(&self) -> object_store::Result<()> {
        match self {
            Self::None => Ok(()),
            Self::Aws(provider) => provider.get_credential().await.map(drop),
            Self::Gcp(provider) => provider.get_credential().await.map(drop),
            Self::Azure(provider) => provider.get_credential().await.map(drop),
        }
    }
}

/// What the crate offers for one store.
pub struct Stores {
    /// Objects.
    pub objects: Arc<dyn ObjectStore>,
    /// Listings, page by page.
    pub lists: Option<Arc<dyn PaginatedListStore>>,
    /// Uploads in parts.
    pub uploads: Option<Arc<dyn MultipartStore>>,
    /// Asked for before each attempt.
    pub credentials: Credentials,
    /// The caller's function, if it gives the credentials.
    pub asking: Option<Arc<dyn Forget>>,
}

impl Stores {
    /// One of the clouds.
    pub fn cloud<S: ObjectStore + PaginatedListStore + MultipartStore>(
        store: Arc<S>,
        credentials: Credentials,
        asking: Option<Arc<dyn Forget>>,
    ) -> Self {
        Self {
            objects: Arc::clone(&store) as Arc<dyn ObjectStore>,
            lists: Some(Arc::clone(&store) as Arc<dyn PaginatedListStore>),
            uploads: Some(store),
            credentials,
            asking,
        }
    }

    /// A web server.
    pub fn web(store: Arc<HttpStore>) -> Self {
        let credentials = Credentials::None;
        Self { objects: store, lists: None, uploads: None, credentials, asking: None }
    }
}

/// The client of one store in one process.
pub struct Client {
    /// What the crate offers.
    pub stores: Stores,
    /// How many requests run at once.
    pub gate: Arc<Gate>,
    /// In KiB: what may be fetched and not taken.
    pub budget: Arc<Semaphore>,
    /// The size of the budget.
    pub budget_kib: u32,
    /// Counts.
    pub traffic: Arc<Traffic>,
    /// How it was made.
    pub config: Config,
}

/// A store as its users keep it: the client is made in each process that uses it.
pub struct Remote {
    config: Config,
    scheme: Scheme,
    client: PerProcess<Arc<Client>>,
}

impl Remote {
    /// A store. The client is made at once, so that options that do not fit are found.
    pub fn new(config: Config) -> Result<Self, String> {
        let remote = Self { scheme: config.scheme()?, config, client: PerProcess::new() };
        remote.client.get_or_make(|| remote.make())?;
        Ok(remote)
    }

    fn make(&self) -> Result<Arc<Client>, String> {
        let (traffic, gate) = (Arc::new(Traffic::default()), Gate::new());
        let connector = Connector { traffic: Arc::clone(&traffic), gate: Arc::clone(&gate) };
        let budget_kib =
            u32::try_from(self.config.in_flight_bytes >> 10).unwrap_or(u32::MAX).max(1);
        let budget = Arc::new(Semaphore::new(budget_kib as usize));
        let (stores, config) = (self.config.build(connector)?, self.config.clone());
        Ok(Arc::new(Client { stores, gate, budget, budget_kib, traffic, config }))
    }

    /// This process's client.
    pub fn client(&self) -> Result<Arc<Client>, Problem> {
        let made = self.client.get_or_make(|| self.make());
        made.map(Arc::clone).map_err(|text| Problem::at_once(Kind::Other, text, ""))
    }

    /// The address without what is secret.
    pub fn address(&self) -> String {
        shown(&self.config.url)
    }

    /// Which store it is.
    pub fn scheme(&self) -> Scheme {
        self.scheme
    }

    /// A key as the crate takes it. It has no word for some names, and must not read another object.
    pub fn path(&self, key: &str) -> Result<Path, Problem> {
        let of_web = self.scheme == Scheme::Http;
        let shown = if of_web { key.split(['?', '#']).next().unwrap_or_default() } else { key };
        if shown.len() < key.len() {
            let text = "? and # in names of a web server cannot be read";
            return Err(Problem::at_once(Kind::Unsupported, text, shown));
        }
        match Path::parse(key) {
            Ok(path) if path.as_ref() == key && (of_web || !key.is_empty()) => Ok(path),
            _ => Err(Problem::at_once(
                Kind::Unsupported,
                "names that are empty, begin or end with /, or contain //, /./, /../ or control \
                 characters cannot be read",
                shown,
            )),
        }
    }
}

/// ETags with quotes: some listings leave them out.
pub fn quoted(etag: String) -> String {
    match etag.starts_with('"') || etag.starts_with("W/") || etag == "*" {
        true => etag,
        false => format!("\"{etag}\""),
    }
}

/// The state that the crate's answer describes.
pub fn state(meta: ObjectMeta) -> State {
    let modified_ms = meta.last_modified.timestamp_millis();
    State {
        size: meta.size,
        etag: meta.e_tag.filter(|etag| !etag.is_empty()).map(quoted),
        // S3's version "null" is whatever was written last without a version.
        version: meta.version.filter(|version| !version.is_empty() && version != "null"),
        modified_ms: (modified_ms != 0).then_some(modified_ms),
    }
}
