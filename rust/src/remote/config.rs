//! From an address and options to a client of the crate.

use std::collections::BTreeMap;
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use object_store::aws::{AmazonS3Builder, AmazonS3ConfigKey};
use object_store::azure::{AzureConfigKey, MicrosoftAzureBuilder};
use object_store::gcp::{GoogleCloudStorageBuilder, GoogleConfigKey};
use object_store::http::HttpBuilder;
use object_store::{ClientConfigKey, RetryConfig};
use url::Url;

use super::client::{Credentials, Stores};
use super::credentials::{self, Asking, Source};
use super::watch::Connector;

/// Time for one request, which the crate limits to 30 s: stalls and deadlines are found here instead.
const NO_LIMIT: &str = "30 days";
const USER_AGENT: &str = concat!("penstock/", env!("CARGO_PKG_VERSION"));

/// Where a container is, how it is reached, and how patient its reader is.
#[derive(Clone)]
pub struct Config {
    /// The container's address.
    pub url: String,
    /// In the crate's words, over those of the environment.
    pub options: BTreeMap<String, String>,
    /// Where credentials come from, if not from the options and the environment.
    pub source: Option<Source>,
    /// How many bytes may be fetched and not taken.
    pub in_flight_bytes: u64,
    /// How long one piece of work may take; more for many bytes.
    pub deadline: Duration,
    /// How long no byte may come.
    pub stall: Duration,
}

/// Which store it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scheme {
    /// S3 and what speaks like it.
    Aws,
    /// Google Cloud Storage.
    Gcp,
    /// Azure Blob Storage.
    Azure,
    /// A web server.
    Http,
}

/// An address as it may be shown: without user, password, query and fragment.
pub fn shown(url: &str) -> String {
    let Ok(mut parsed) = Url::parse(url) else { return "an address".to_owned() };
    parsed.set_query(None);
    parsed.set_fragment(None);
    let is_container = matches!(parsed.scheme(), "abfs" | "abfss"); // container@account
    if !is_container || parsed.password().is_some() {
        let _ = parsed.set_password(None);
        let _ = parsed.set_username("");
    }
    let text = parsed.to_string();
    text.strip_suffix('/').unwrap_or(&text).to_owned()
}

impl Config {
    /// Which store the address names.
    pub fn scheme(&self) -> Result<Scheme, String> {
        match self.url.split_once("://").map(|(scheme, _)| scheme) {
            Some("s3" | "s3a") => Ok(Scheme::Aws),
            Some("gs") => Ok(Scheme::Gcp),
            Some("az" | "azure" | "adl" | "abfs" | "abfss") => Ok(Scheme::Azure),
            Some("http" | "https") => Ok(Scheme::Http),
            _ => Err(format!("{} names no store: s3, gs, az, abfs or https", shown(&self.url))),
        }
    }

    /// A client, made anew. The text of an error holds no value of an option.
    pub fn build(&self, connector: Connector) -> Result<Stores, String> {
        let _ = rustls::crypto::ring::default_provider().install_default(); // an error if there is one
        match self.scheme()? {
            Scheme::Aws => self.aws(connector),
            Scheme::Gcp => self.gcp(connector),
            Scheme::Azure => self.azure(connector),
            Scheme::Http => self.http(connector),
        }
    }

    /// The options by the crate's keys.
    fn keys<K: FromStr>(&self) -> Result<Vec<(K, &str)>, String> {
        let mut keys = Vec::new();
        for (key, value) in &self.options {
            match K::from_str(&key.to_ascii_lowercase()) {
                Ok(known) => keys.push((known, value.as_str())),
                Err(_) => return Err(format!("{} has no option {key:?}", shown(&self.url))),
            }
        }
        Ok(keys)
    }

    fn aws(&self, connector: Connector) -> Result<Stores, String> {
        use AmazonS3ConfigKey as Key;
        let mut builder = AmazonS3Builder::from_env()
            .with_config(Key::Client(ClientConfigKey::Timeout), NO_LIMIT)
            .with_config(Key::Client(ClientConfigKey::UserAgent), USER_AGENT)
            .with_config(Key::DisableBulkDelete, "true")
            .with_url(&self.url);
        for (key, value) in self.keys()? {
            builder = builder.with_config(key, value);
        }
        let value = |key: &Key| builder.get_config_value(key).unwrap_or_default();
        let is_set = |key: &Key| matches!(value(key).as_str(), "true" | "1" | "yes" | "on");
        let endpoint = match value(&Key::S3Endpoint) {
            general if general.is_empty() => value(&Key::Endpoint),
            special => special,
        };
        let allows_http = is_set(&Key::Client(ClientConfigKey::AllowHttp));
        if endpoint.starts_with("http://") && !allows_http {
            let text = "the endpoint is http and not https: set aws_allow_http=true to allow that";
            return Err(text.to_owned());
        }
        let is_open = is_set(&Key::SkipSignature);
        let mut asking = None;
        if let Some(source) = &self.source {
            let provider = Arc::new(Asking::new(Arc::clone(source), credentials::aws));
            asking = Some(Arc::clone(&provider) as Arc<dyn credentials::Forget>);
            builder = builder.with_credentials(provider);
        }
        let store = builder.with_retry(no_retries()).with_http_connector(connector).build();
        let store = Arc::new(store.map_err(|error| self.unfit(&error))?);
        let credentials = match is_open {
            true => Credentials::None,
            false => Credentials::Aws(Arc::clone(store.credentials())),
        };
        Ok(Stores::cloud(store, credentials, asking))
    }

    fn gcp(&self, connector: Connector) -> Result<Stores, String> {
        use GoogleConfigKey as Key;
        let mut builder = GoogleCloudStorageBuilder::from_env()
            .with_config(Key::Client(ClientConfigKey::Timeout), NO_LIMIT)
            .with_config(Key::Client(ClientConfigKey::UserAgent), USER_AGENT)
            .with_url(&self.url);
        for (key, value) in self.keys()? {
            builder = builder.with_config(key, value);
        }
        let skip = builder.get_config_value(&Key::SkipSignature).unwrap_or_default();
        let is_open = matches!(skip.as_str(), "true" | "1" | "yes" | "on");
        let mut asking = None;
        if let Some(source) = &self.source {
            let provider = Arc::new(Asking::new(Arc::clone(source), credentials::gcp));
            asking = Some(Arc::clone(&provider) as Arc<dyn credentials::Forget>);
            builder = builder.with_credentials(provider);
        }
        let store = builder.with_retry(no_retries()).with_http_connector(connector).build();
        let store = Arc::new(store.map_err(|error| self.unfit(&error))?);
        let credentials = match is_open {
            true => Credentials::None,
            false => Credentials::Gcp(Arc::clone(store.credentials())),
        };
        Ok(Stores::cloud(store, credentials, asking))
    }

    fn azure(&self, connector: Connector) -> Result<Stores, String> {
        use AzureConfigKey as Key;
        let mut builder = MicrosoftAzureBuilder::from_env()
            .with_config(Key::Client(ClientConfigKey::Timeout), NO_LIMIT)
            .with_config(Key::Client(ClientConfigKey::UserAgent), USER_AGENT)
            .with_url(&self.url);
        for (key, value) in self.keys()? {
            builder = builder.with_config(key, value);
        }
        let skip = builder.get_config_value(&Key::SkipSignature).unwrap_or_default();
        let is_open = matches!(skip.as_str(), "true" | "1" | "yes" | "on");
        let mut asking = None;
        if let Some(source) = &self.source {
            let provider = Arc::new(Asking::new(Arc::clone(source), credentials::azure));
            asking = Some(Arc::clone(&provider) as Arc<dyn credentials::Forget>);
            builder = builder.with_credentials(provider);
        }
        let store = builder.with_retry(no_retries()).with_http_connector(connector).build();
        let store = Arc::new(store.map_err(|error| self.unfit(&error))?);
        let credentials = match is_open {
            true => Credentials::None,
            false => Credentials::Azure(Arc::clone(store.credentials())),
        };
        Ok(Stores::cloud(store, credentials, asking))
    }

    fn http(&self, connector: Connector) -> Result<Stores, String> {
        let mut builder = HttpBuilder::new()
            .with_config(ClientConfigKey::Timeout, NO_LIMIT)
            .with_config(ClientConfigKey::UserAgent, USER_AGENT)
            .with_url(&self.url);
        if self.url.starts_with("http://") {
            builder = builder.with_config(ClientConfigKey::AllowHttp, "true");
        }
        for (key, value) in self.keys()? {
            builder = builder.with_config(key, value);
        }
        let store = builder.with_retry(no_retries()).with_http_connector(connector).build();
        Ok(Stores::web(Arc::new(store.map_err(|error| self.unfit(&error))?)))
    }

    /// What the crate says about options that do not fit, without their values.
    fn unfit(&self, error: &object_store::Error) -> String {
        let place = shown(&self.url);
        let mut text = error.to_string().replace(&self.url, &place);
        let of_a_store = |name: &str| {
            ["AWS_", "GOOGLE_", "AZURE_"].iter().any(|prefix| name.starts_with(prefix))
        };
        let environment = std::env::vars_os()
            .filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)))
            .filter(|(name, _)| of_a_store(name));
        let mut values: Vec<String> = environment.map(|(_, value)| value).collect();
        values.extend(self.options.values().cloned());
        values.sort_by_key(|value| std::cmp::Reverse(value.len()));
        for value in values.iter().filter(|value| !value.is_empty()) {
            text = match value.len() >= 4 {
                true => text.replace(value.as_str(), "…"),
                false => text.replace(&format!("\"{value}\""), "…"),
            };
        }
        format!("the options for {place} do not fit: {text}")
    }
}

/// The crate repeats nothing: what may be repeated, and for how long, is decided here.
fn no_retries() -> RetryConfig {
    RetryConfig { max_retries: 0, ..Default::default() }
}
