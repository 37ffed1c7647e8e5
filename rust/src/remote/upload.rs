//! Writing: whole objects, and large ones in parts.

use std::collections::BTreeMap;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use object_store::multipart::{MultipartStore, PartId};
use object_store::path::Path;
use object_store::{ObjectStoreExt, PutMode, PutOptions, PutPayload, PutResult};

use super::client::{Client, quoted};
use super::course::{Course, Verdict};
use super::fetch::head;
use super::pending::Pending;
use super::process::runtime;
use super::{Kind, Problem, State};

/// So many parts of one object are sent at once.
const PARTS: usize = 4;

/// A request that sends so many bytes usually takes less.
fn usual(client: &Client, num_bytes: usize) -> Duration {
    client.config.stall + Duration::from_millis(num_bytes as u64 / 1_000)
}

async fn stored(
    client: &Client,
    key: &str,
    path: &Path,
    result: PutResult,
    size: u64,
) -> Result<State, Problem> {
    match result.e_tag.filter(|etag| !etag.is_empty()).map(quoted) {
        Some(etag) => {
            let version = result.version.filter(|version| !version.is_empty() && version != "null");
            Ok(State { size, etag: Some(etag), version, modified_ms: None })
        }
        None => head(client, key, path).await,
    }
}

/// Write a whole object; with `create`, only if there is none.
pub async fn put(
    client: Arc<Client>,
    key: String,
    path: Path,
    data: Bytes,
    create: bool,
) -> Result<State, Problem> {
    let mut course = Course::new(&client, &key, data.len() as u64);
    let usual = usual(&client, data.len());
    let mode = if create { PutMode::Create } else { PutMode::Overwrite };
    let mut is_sent = false;
    loop {
        let pass = course.enter().await?;
        let options = PutOptions { mode: mode.clone(), ..Default::default() };
        let payload = PutPayload::from(data.clone());
        let work = client.stores.objects.put_opts(&path, payload, options);
        let attempt = course.attempt(usual, false, work).await?;
        drop(pass);
        match attempt.outcome {
            Ok(result) => {
                client.traffic.bytes.fetch_add(data.len() as u64, Ordering::Relaxed);
                return stored(&client, &key, &path, result, data.len() as u64).await;
            }
            // An earlier try may have stored it without our learning of it.
            Err(Verdict::Final(Kind::Exists, _)) if is_sent => {
                return match same(&client, &key, &path, &data).await? {
                    Some(state) => Ok(state),
                    None => Err(course.problem(Kind::Exists, "the object is there already")),
                };
            }
            Err(verdict) => {
                is_sent |= !matches!(verdict, Verdict::Final(..) | Verdict::Unreached(_));
                course.after(verdict, &attempt.met).await?;
            }
        }
    }
}

/// The state of the object if it has exactly these bytes.
async fn same(
    client: &Arc<Client>,
    key: &str,
    path: &Path,
    data: &Bytes,
) -> Result<Option<State>, Problem> {
    let found = head(client, key, path).await?;
    if found.size != data.len() as u64 {
        return Ok(None);
    }
    let (all, urgency) = (vec![(0, found.size)], Arc::default());
    let work = super::fetch::ranges(
        Arc::clone(client),
        key.to_owned(),
        path.clone(),
        found.clone(),
        all,
        urgency,
    );
    let landed = work.await?;
    Ok((landed.take().as_slice() == data.as_ref()).then_some(found))
}

/// Remove an object. One that is not there is no error.
pub async fn delete(client: Arc<Client>, key: String, path: Path) -> Result<(), Problem> {
    let mut course = Course::new(&client, &key, 0);
    let work = || client.stores.objects.delete(&path);
    match course.finish(client.config.stall, false, work).await {
        Err(problem) if problem.kind == Kind::Missing => Ok(()),
        done => done,
    }
}

type Sent = (PartId, u64);
type Parts = BTreeMap<usize, Arc<Pending<Sent>>>;

/// An object that is written in parts. It appears when it is completed.
pub struct Upload {
    client: Arc<Client>,
    key: String,
    path: Path,
    /// The store's name for it.
    pub id: String,
    pid: u32,
    parts: Mutex<Parts>,
}

fn store(client: &Client, key: &str) -> Result<Arc<dyn MultipartStore>, Problem> {
    let text = "a web server takes no uploads in parts";
    let none = || Problem::at_once(Kind::Unsupported, text, key);
    client.stores.uploads.clone().ok_or_else(none)
}

/// Begin an upload.
pub async fn begin(client: Arc<Client>, key: String, path: Path) -> Result<String, Problem> {
    let store = store(&client, &key)?;
    let mut course = Course::new(&client, &key, 0);
    course.finish(client.config.stall, false, || store.create_multipart(&path)).await
}

impl Upload {
    /// An upload that was begun.
    pub fn new(client: Arc<Client>, key: String, path: Path, id: String) -> Self {
        let (pid, parts) = (std::process::id(), Mutex::default());
        Self { client, key, path, id, pid, parts }
    }

    fn parts(&self) -> Result<MutexGuard<'_, Parts>, Problem> {
        if self.pid != std::process::id() {
            let text = "an upload belongs to the process that began it";
            return Err(Problem::at_once(Kind::Unsupported, text, &self.key));
        }
        Ok(self.parts.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// What must be waited for before another part may be sent.
    pub fn oldest(&self) -> Result<Option<Arc<Pending<Sent>>>, Problem> {
        let parts = self.parts()?;
        let mut running = parts.values().filter(|part| !part.is_ready());
        let oldest = running.next().cloned();
        Ok(oldest.filter(|_| running.count() + 1 >= PARTS))
    }

    /// All parts.
    pub fn all(&self) -> Result<Vec<Arc<Pending<Sent>>>, Problem> {
        Ok(self.parts()?.values().cloned().collect())
    }

    /// Begin to send a part. Parts are counted from 0; a part that is sent again replaces the earlier.
    pub fn send(&self, number: usize, data: Bytes) -> Result<(), Problem> {
        let mut parts = self.parts()?;
        let store = store(&self.client, &self.key)?;
        let client = Arc::clone(&self.client);
        let (key, path, id) = (self.key.clone(), self.path.clone(), self.id.clone());
        let work = async move {
            let mut course = Course::new(&client, &key, data.len() as u64);
            let usual = usual(&client, data.len());
            let send = || store.put_part(&path, &id, number, PutPayload::from(data.clone()));
            let part = course.finish(usual, false, send).await?;
            client.traffic.bytes.fetch_add(data.len() as u64, Ordering::Relaxed);
            Ok((part, data.len() as u64))
        };
        parts.insert(number, Arc::new(Pending::begin(runtime()?, work)));
        Ok(())
    }

    /// Make the object of the parts, which were all sent.
    pub async fn complete(self: Arc<Self>) -> Result<State, Problem> {
        let (client, key, path) = (&self.client, &self.key, &self.path);
        let store = store(client, key)?;
        let (ids, size) = self.sent()?;
        let num_parts = ids.len();
        let mut course = Course::new(client, key, 0);
        let usual = client.config.stall.saturating_mul(3); // a store may put the parts together
        let mut is_sent = false;
        loop {
            let pass = course.enter().await?;
            let work = store.complete_multipart(path, &self.id, ids.clone());
            let attempt = course.attempt(usual, false, work).await?;
            drop(pass);
            match attempt.outcome {
                Ok(result) => return stored(client, key, path, result, size).await,
                // An earlier try may have completed it without our learning of it.
                Err(Verdict::Final(Kind::Missing, text)) if is_sent => {
                    let found = head(client, key, path).await?;
                    let ending = format!("-{num_parts}\"");
                    let is_ours = found.size == size
                        && found.etag.as_deref().is_none_or(|etag| etag.ends_with(&ending));
                    return match is_ours {
                        true => Ok(found),
                        false => Err(course.problem(Kind::Missing, text)),
                    };
                }
                Err(verdict) => {
                    is_sent |= !matches!(verdict, Verdict::Final(..) | Verdict::Unreached(_));
                    course.after(verdict, &attempt.met).await?;
                }
            }
        }
    }

    fn sent(&self) -> Result<(Vec<PartId>, u64), Problem> {
        let (mut ids, mut size) = (Vec::new(), 0u64);
        for (&number, part) in self.parts()?.iter() {
            if number != ids.len() {
                let text = format!("part {} of the upload was not sent", ids.len());
                return Err(Problem::at_once(Kind::Other, text, &self.key));
            }
            match part.outcome() {
                Some(outcome) => {
                    let (id, length) = outcome?;
                    ids.push(id);
                    size = size.saturating_add(length);
                }
                None => {
                    let text = format!("part {number} of the upload is still on its way");
                    return Err(Problem::at_once(Kind::Other, text, &self.key));
                }
            }
        }
        Ok((ids, size))
    }

    /// Give the upload up. One that is gone is no error.
    pub async fn abort(self: Arc<Self>) -> Result<(), Problem> {
        self.parts()?.clear();
        let (client, key) = (&self.client, &self.key);
        let store = store(client, key)?;
        let mut course = Course::new(client, key, 0);
        let work = || store.abort_multipart(&self.path, &self.id);
        match course.finish(client.config.stall, false, work).await {
            Err(problem) if problem.kind == Kind::Missing => Ok(()),
            done => done,
        }
    }
}
