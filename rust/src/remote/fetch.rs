//! Ranges of one state of one object, fetched by concurrent requests and checked.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use arrow_buffer::Buffer;
use bytes::Bytes;
use chrono::DateTime;
use futures_util::future::{Either, select};
use futures_util::stream::{self, StreamExt, TryStreamExt};
use object_store::path::Path;
use object_store::{GetOptions, GetRange, GetResult, ObjectStoreExt};
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore};
use tokio::time::{Instant, timeout};

use super::client::{Client, state};
use super::course::{Course, Verdict, silence};
use super::gate::MOST;
use super::plan::{Piece, Request, Sorter, plan};
use super::watch::Met;
use super::{Kind, Problem, State};
use crate::kernels::buffer_pool;

/// What was fetched. Its bytes count as in flight until they are taken.
#[derive(Clone)]
pub struct Landed {
    /// The object's state.
    pub state: State,
    /// The ranges, back to back.
    pub bytes: Buffer,
    room: Arc<Mutex<Option<OwnedSemaphorePermit>>>,
}

impl Landed {
    /// The bytes belong to the caller now.
    pub fn take(&self) -> Buffer {
        *self.room.lock().unwrap_or_else(PoisonError::into_inner) = None;
        self.bytes.clone()
    }
}

/// Somebody waits for this fetch, so it no longer waits for room: those who wait must not wait for
/// what others fetched and do not take.
#[derive(Default)]
pub struct Urgency(Notify);

impl Urgency {
    /// Somebody waits.
    pub fn raise(&self) {
        self.0.notify_one();
    }
}

async fn room(client: &Client, num_bytes: u64, urgency: &Urgency) -> Option<OwnedSemaphorePermit> {
    let kib = u32::try_from(num_bytes.div_ceil(1024)).unwrap_or(u32::MAX).min(client.budget_kib);
    let room = std::pin::pin!(Semaphore::acquire_many_owned(Arc::clone(&client.budget), kib));
    let urgent = std::pin::pin!(urgency.0.notified());
    match select(room, urgent).await {
        Either::Left((room, _)) => room.ok(),
        Either::Right(_) => None,
    }
}

fn deadline(client: &Client, num_bytes: u64) -> (Instant, Instant) {
    let now = Instant::now();
    (now, now + client.config.deadline + std::time::Duration::from_millis(num_bytes / 1_000))
}

fn no_memory(key: &str, num_bytes: usize) -> Problem {
    Problem::at_once(Kind::Other, format!("no memory for {num_bytes} bytes"), key)
}

/// Where the bytes of one fetch are put.
struct Target(Mutex<Vec<u8>>);

impl Target {
    fn new(key: &str, num_bytes: usize) -> Result<Self, Problem> {
        match buffer_pool::take_used(num_bytes) {
            Some(bytes) => Ok(Self(Mutex::new(bytes))),
            None => Err(no_memory(key, num_bytes)),
        }
    }

    fn bytes(&self) -> MutexGuard<'_, Vec<u8>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn landed(self, state: State, room: Option<OwnedSemaphorePermit>) -> Landed {
        let bytes = self.0.into_inner().unwrap_or_else(PoisonError::into_inner);
        let bytes = buffer_pool::pooled(bytes);
        Landed { state, bytes, room: Arc::new(Mutex::new(room)) }
    }
}

/// Ranges `(start, length)` of an object in a known state, back to back.
pub async fn ranges(
    client: Arc<Client>,
    key: String,
    path: Path,
    pinned: State,
    wanted: Vec<(u64, u64)>,
    urgency: Arc<Urgency>,
) -> Result<Landed, Problem> {
    let Some((requests, total)) = plan(&wanted) else {
        return Err(no_memory(&key, usize::MAX));
    };
    let room = room(&client, total as u64, &urgency).await;
    let target = Target::new(&key, total)?;
    let job = Job::new(&client, &key, &path, &pinned, total as u64);
    let (job, into) = (&job, &target);
    let work = requests.into_iter().map(|request| async move { job.request(&request, into).await });
    stream::iter(work).buffer_unordered(MOST).try_for_each(|()| std::future::ready(Ok(()))).await?;
    Ok(target.landed(pinned, room))
}

/// What is fetched for one caller.
struct Job<'a> {
    client: &'a Client,
    key: &'a str,
    path: &'a Path,
    pinned: &'a State,
    started: Instant,
    deadline: Instant,
}

/// How far one request has come.
struct Progress<'a> {
    at: u64,
    end: u64,
    request: &'a Request,
    sorter: Sorter<'a>,
}

impl<'a> Progress<'a> {
    fn new(request: &'a Request) -> Self {
        Self { at: request.start, end: request.end, request, sorter: Sorter::new(request) }
    }

    fn back_to(&mut self, at: u64) {
        (self.at, self.sorter) = (at, Sorter::new(self.request));
    }
}

impl<'a> Job<'a> {
    fn new(
        client: &'a Client,
        key: &'a str,
        path: &'a Path,
        pinned: &'a State,
        num_bytes: u64,
    ) -> Self {
        let (started, deadline) = deadline(client, num_bytes);
        Self { client, key, path, pinned, started, deadline }
    }

    fn course(&self, request: &Request) -> Course<'a> {
        Course::until(self.client, self.key, self.started, self.deadline)
            .about(request.start, request.end)
    }

    async fn request(&self, request: &Request, target: &Target) -> Result<(), Problem> {
        let mut progress = Progress::new(request);
        self.complete(&mut self.course(request), &mut progress, target).await
    }

    /// Ask until everything came.
    async fn complete(
        &self,
        course: &mut Course<'_>,
        progress: &mut Progress<'_>,
        target: &Target,
    ) -> Result<(), Problem> {
        while progress.at < progress.end {
            let pass = course.enter().await?;
            let options = self.options(progress.at, progress.end);
            let answer = self.client.stores.objects.get_opts(self.path, options);
            let attempt = course.attempt(self.client.config.stall, false, answer).await?;
            let (before, mut met) = (progress.at, attempt.met);
            let verdict = match attempt.outcome {
                Ok(answer) => match self.contradiction(&answer, progress) {
                    Some(verdict) => Some(verdict),
                    None => {
                        met = Met::default();
                        drain(self.client, course, answer, progress, target).await
                    }
                },
                Err(verdict) => Some(verdict),
            };
            drop(pass);
            if progress.at > before {
                course.progress();
            }
            if let Some(verdict) = verdict {
                course.after(verdict, &met).await?;
            }
        }
        Ok(())
    }

    /// The condition under which the store may answer.
    fn options(&self, start: u64, end: u64) -> GetOptions {
        let mut options =
            GetOptions { range: Some(GetRange::Bounded(start..end)), ..Default::default() };
        match (&self.pinned.version, self.pinned.strong_etag(), self.pinned.modified_ms) {
            (Some(version), _, _) => options.version = Some(version.clone()),
            (None, Some(etag), _) => options.if_match = Some(etag.to_owned()),
            (None, None, Some(time)) => {
                options.if_unmodified_since = DateTime::from_timestamp_millis(time);
            }
            (None, None, None) => {}
        }
        options
    }

    /// How the head of an answer differs from what was asked for.
    fn contradiction(&self, answer: &GetResult, progress: &Progress<'_>) -> Option<Verdict> {
        let found = state(answer.meta.clone());
        let differs = |now: &Option<String>, then: &Option<String>| matches!((now, then), (Some(now), Some(then)) if now != then);
        if found.size != self.pinned.size
            || differs(&found.etag, &self.pinned.etag)
            || differs(&found.version, &self.pinned.version)
        {
            let text = "the object is not the one that was opened: it was replaced since";
            return Some(Verdict::Final(Kind::Changed, text.to_owned()));
        }
        if self.pinned.etag.is_some() && found.etag.is_none() {
            return Some(Verdict::wrong(
                "the answer does not say which state of the object it holds",
            ));
        }
        if answer.range.start != progress.at || answer.range.end != progress.end {
            return Some(Verdict::wrong("the answer holds another range than was asked for"));
        }
        None
    }
}

/// Copy what arrives. None if everything came.
async fn drain(
    client: &Client,
    course: &Course<'_>,
    answer: GetResult,
    progress: &mut Progress<'_>,
    target: &Target,
) -> Option<Verdict> {
    let mut body = answer.into_stream();
    let first = progress.at;
    loop {
        let patience = course.patience(client.config.stall);
        let bytes: Bytes = match timeout(patience, body.next()).await {
            Err(_) => return Some(Verdict::Again(silence(patience))),
            Ok(None) if progress.at == progress.end => return None,
            Ok(None) => {
                return Some(Verdict::wrong(format!(
                    "only {} of {} bytes came",
                    progress.at.saturating_sub(first),
                    progress.end.saturating_sub(first)
                )));
            }
            Ok(Some(Err(_))) => return Some(Verdict::Again("the connection broke".to_owned())),
            Ok(Some(Ok(bytes))) => bytes,
        };
        client.traffic.bytes.fetch_add(bytes.len() as u64, Ordering::Relaxed);
        let after = progress.at.saturating_add(bytes.len() as u64);
        if after > progress.end {
            // Nobody knows which of these bytes are right.
            progress.back_to(first);
            return Some(Verdict::wrong("more bytes came than were asked for"));
        }
        progress.sorter.copy(progress.at, &bytes, &mut target.bytes());
        progress.at = after;
    }
}

/// The first bytes of an object, or its last ones, without knowing anything about it.
pub async fn first(
    client: Arc<Client>,
    key: String,
    path: Path,
    range: GetRange,
    urgency: Arc<Urgency>,
) -> Result<Landed, Problem> {
    let most = match &range {
        GetRange::Bounded(range) => range.end.saturating_sub(range.start),
        GetRange::Suffix(length) => *length,
        GetRange::Offset(_) => u64::MAX,
    };
    let room = room(&client, most, &urgency).await;
    let (started, until) = deadline(&client, most);
    let mut course = Course::until(&client, &key, started, until);
    if let GetRange::Bounded(range) = &range {
        course = course.about(range.start, range.end);
    }
    if most == 0 {
        return by_head(&client, &key, &path, &range, room).await;
    }
    loop {
        let pass = course.enter().await?;
        let options = GetOptions { range: Some(range.clone()), ..Default::default() };
        let answer = client.stores.objects.get_opts(&path, options);
        let attempt = course.attempt(client.config.stall, false, answer).await?;
        let verdict = match attempt.outcome {
            Ok(answer) => {
                let pinned = state(answer.meta.clone());
                let (start, end) = (answer.range.start, answer.range.end);
                if end.saturating_sub(start) > most {
                    Verdict::wrong("the answer holds another range than was asked for")
                } else {
                    return opened(&client, &key, &path, course, answer, pinned, room, pass).await;
                }
            }
            Err(verdict) => {
                drop(pass);
                let is_beyond = attempt.met.status == 416;
                let is_unable = attempt.met.status == 0
                    && matches!(verdict, Verdict::Final(Kind::Unsupported, _));
                // An empty object has no ranges, and Azure has no last bytes.
                if is_beyond || is_unable || attempt.met.unranged {
                    let landed = by_head(&client, &key, &path, &range, None).await?;
                    if !landed.bytes.is_empty() || is_beyond || landed.state.size == 0 {
                        return Ok(landed);
                    }
                }
                verdict
            }
        };
        course.after(verdict, &attempt.met).await?;
    }
}

/// The rest of a first request: from now on the object's state is known.
#[expect(clippy::too_many_arguments, reason = "what `first` has at hand")]
async fn opened(
    client: &Client,
    key: &str,
    path: &Path,
    mut course: Course<'_>,
    answer: GetResult,
    pinned: State,
    room: Option<OwnedSemaphorePermit>,
    pass: super::gate::Pass,
) -> Result<Landed, Problem> {
    let (start, end) = (answer.range.start, answer.range.end);
    let length = end.saturating_sub(start);
    let request = Request { start, end, pieces: vec![Piece { start, length, place: 0 }] };
    let target = Target::new(key, usize::try_from(length).unwrap_or(usize::MAX))?;
    let mut progress = Progress::new(&request);
    let verdict = drain(client, &course, answer, &mut progress, &target).await;
    drop(pass);
    if let Some(verdict) = verdict {
        course.after(verdict, &Met::default()).await?;
        let job = Job::new(client, key, path, &pinned, length);
        job.complete(&mut course, &mut progress, &target).await?;
    }
    Ok(target.landed(pinned, room))
}

/// The same by asking for the state, then for what is there of the range.
async fn by_head(
    client: &Client,
    key: &str,
    path: &Path,
    range: &GetRange,
    room: Option<OwnedSemaphorePermit>,
) -> Result<Landed, Problem> {
    let pinned = head(client, key, path).await?;
    let (start, end) = match range {
        GetRange::Bounded(range) => (range.start, range.end.min(pinned.size)),
        GetRange::Suffix(length) => (pinned.size.saturating_sub(*length), pinned.size),
        GetRange::Offset(start) => (*start, pinned.size),
    };
    let length = end.saturating_sub(start);
    let target = Target::new(key, usize::try_from(length).unwrap_or(usize::MAX))?;
    if length > 0 {
        let request = Request { start, end, pieces: vec![Piece { start, length, place: 0 }] };
        Job::new(client, key, path, &pinned, length).request(&request, &target).await?;
    }
    Ok(target.landed(pinned, room))
}

/// An object's state.
pub async fn head(client: &Client, key: &str, path: &Path) -> Result<State, Problem> {
    let mut course = Course::new(client, key, 0);
    let meta =
        course.finish(client.config.stall, false, || client.stores.objects.head(path)).await?;
    Ok(state(meta))
}
