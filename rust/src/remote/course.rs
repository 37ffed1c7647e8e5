//! One piece of work, tried until it is done, cannot be done, or took too long.

use std::future::Future;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use object_store::Error;
use object_store::client::HttpErrorKind;
use tokio::time::{Instant, sleep, timeout, timeout_at};

use super::client::Client;
use super::gate::Pass;
use super::watch::{Met, PROBE, Probe};
use super::{Kind, Problem};

/// The first pause before another try; each is twice the one before.
const FIRST_PAUSE: Duration = Duration::from_millis(100);
const LONGEST_PAUSE: Duration = Duration::from_secs(5);
/// What a store says wrongly is asked for again so often.
const LIES: u32 = 5;
/// A store that never answered is given up after this part of the time: 10 s of 2 minutes.
const SILENCE: u32 = 12;
/// Credentials are asked for so often.
const KNOCKS: u32 = 2;

/// What an attempt came to.
#[derive(Debug, Clone)]
pub enum Verdict {
    /// Another try changes nothing.
    Final(Kind, String),
    /// It may go better.
    Again(String),
    /// Nobody could be reached.
    Unreached(String),
    /// The answer was wrong; if it stays so, this is what it is.
    Wrong(Kind, String),
}

impl Verdict {
    /// A wrong answer of no special kind.
    pub fn wrong(text: impl Into<String>) -> Self {
        Self::Wrong(Kind::Other, text.into())
    }
}

/// A try's outcome, with what was met on its way.
pub struct Attempt<T> {
    /// What the crate returned, judged.
    pub outcome: Result<T, Verdict>,
    /// What was met.
    pub met: Met,
}

/// One piece of work.
pub struct Course<'a> {
    client: &'a Client,
    key: &'a str,
    range: Option<(u64, u64)>,
    started: Instant,
    deadline: Instant,
    tries: u32,
    pauses: u32,
    lies: u32,
    refreshed: bool,
}

impl<'a> Course<'a> {
    /// It may take the client's deadline and a second for each megabyte.
    pub fn new(client: &'a Client, key: &'a str, num_bytes: u64) -> Self {
        let started = Instant::now();
        let more = Duration::from_millis(num_bytes / 1_000);
        let deadline = started + client.config.deadline + more;
        Self::until(client, key, started, deadline)
    }

    /// It may take until a moment.
    pub fn until(client: &'a Client, key: &'a str, started: Instant, deadline: Instant) -> Self {
        let (range, refreshed) = (None, false);
        Self { client, key, range, started, deadline, tries: 0, pauses: 0, lies: 0, refreshed }
    }

    /// It is about these bytes.
    pub fn about(mut self, start: u64, end: u64) -> Self {
        self.range = Some((start, end));
        self
    }

    /// Something came: what follows is not blamed for what was before.
    pub fn progress(&mut self) {
        (self.pauses, self.lies) = (0, 0);
    }

    /// How many tries there were.
    pub fn tries(&self) -> u32 {
        self.tries
    }

    /// A problem of this work.
    pub fn problem(&self, kind: Kind, message: impl Into<String>) -> Problem {
        Problem {
            kind,
            message: message.into(),
            key: self.key.to_owned(),
            range: self.range,
            tries: self.tries,
            seconds: self.started.elapsed().as_secs_f64(),
        }
    }

    /// Wait until the store may get another request.
    pub async fn enter(&self) -> Result<Pass, Problem> {
        match timeout_at(self.deadline, self.client.gate.enter()).await {
            Ok(pass) => Ok(pass),
            Err(_) => {
                Err(self.problem(Kind::Deadline, "other requests to the store took too long"))
            }
        }
    }

    /// How long may be waited for something that usually takes less than this.
    pub fn patience(&self, usual: Duration) -> Duration {
        usual.min(self.deadline.saturating_duration_since(Instant::now()))
    }

    /// Try something once, with credentials.
    pub async fn attempt<T>(
        &mut self,
        usual: Duration,
        listing: bool,
        work: impl Future<Output = object_store::Result<T>>,
    ) -> Result<Attempt<T>, Problem> {
        self.credentials().await?;
        self.tries = self.tries.saturating_add(1);
        if self.tries > 1 {
            self.client.traffic.retries.fetch_add(1, Ordering::Relaxed);
        }
        let probe = Arc::new(Probe::new(listing));
        let patience = self.patience(usual);
        let outcome = PROBE.scope(Arc::clone(&probe), timeout(patience, work)).await;
        let met = probe.met();
        let outcome = match outcome {
            Ok(Ok(value)) => Ok(value),
            Ok(Err(error)) => Err(judge(&error, &met)),
            Err(_) => Err(Verdict::Again(silence(patience))),
        };
        Ok(Attempt { outcome, met })
    }

    /// The same for what is done by one request, until it is done.
    pub async fn finish<T, W: Future<Output = object_store::Result<T>>>(
        &mut self,
        usual: Duration,
        listing: bool,
        mut work: impl FnMut() -> W,
    ) -> Result<T, Problem> {
        loop {
            let pass = self.enter().await?;
            let attempt = self.attempt(usual, listing, work()).await?;
            drop(pass);
            match attempt.outcome {
                Ok(value) => return Ok(value),
                Err(verdict) => self.after(verdict, &attempt.met).await?,
            }
        }
    }

    async fn credentials(&self) -> Result<(), Problem> {
        let mut knocks = 0;
        loop {
            let found = timeout_at(self.deadline, self.client.stores.credentials.check()).await;
            let text = match found {
                Ok(Ok(())) => return Ok(()),
                Ok(Err(Error::Generic { store: "credentials", source })) => source.to_string(),
                Ok(Err(_)) => "no credentials: the options and the environment have none, and no \
                               metadata service of this machine answers"
                    .to_owned(),
                Err(_) => return Err(self.problem(Kind::Deadline, "no credentials came in time")),
            };
            knocks += 1;
            if knocks >= KNOCKS {
                return Err(self.problem(Kind::Denied, text));
            }
            sleep(self.patience(FIRST_PAUSE)).await;
        }
    }

    /// Wait before the next try, or give up.
    pub async fn after(&mut self, verdict: Verdict, met: &Met) -> Result<(), Problem> {
        let text = match verdict {
            Verdict::Final(Kind::Denied, text) => match &self.client.stores.asking {
                Some(asking) if !self.refreshed => {
                    self.refreshed = true;
                    asking.forget();
                    return Ok(());
                }
                _ => return Err(self.problem(Kind::Denied, text)),
            },
            Verdict::Final(kind, text) => return Err(self.problem(kind, text)),
            Verdict::Unreached(text) => {
                let answered = self.client.traffic.answered.load(Ordering::Relaxed);
                if !answered && self.started.elapsed() >= self.client.config.deadline / SILENCE {
                    return Err(self.problem(Kind::Other, text));
                }
                text
            }
            Verdict::Wrong(kind, text) => {
                self.lies = self.lies.saturating_add(1);
                if self.lies >= LIES {
                    return Err(self.problem(kind, text));
                }
                text
            }
            Verdict::Again(text) => text,
        };
        let factor = 1u32.checked_shl(self.pauses.min(16)).unwrap_or(u32::MAX);
        let longest = FIRST_PAUSE.saturating_mul(factor).min(LONGEST_PAUSE);
        self.pauses = self.pauses.saturating_add(1);
        // Between half and the whole, so that many who failed together do not come back together.
        let pause = longest.mul_f64(0.5 + 0.5 * random()).max(met.wait.unwrap_or_default());
        if Instant::now() + pause >= self.deadline {
            let seconds = self.deadline.saturating_duration_since(self.started).as_secs_f64();
            let message = format!("it was not done within {seconds:.0} s; the last try: {text}");
            return Err(self.problem(Kind::Deadline, message));
        }
        sleep(pause).await;
        Ok(())
    }
}

/// Between 0 and 1.
fn random() -> f64 {
    let bits = RandomState::new().build_hasher().finish() >> 11;
    bits as f64 / (1u64 << 53) as f64
}

/// Nothing came for this long.
pub fn silence(time: Duration) -> String {
    format!("nothing came for {:.0} s", time.as_secs_f64().max(1.0))
}

fn answered(met: &Met) -> String {
    match &met.code {
        Some(code) => format!("{} {code}", met.status),
        None => met.status.to_string(),
    }
}

/// Codes that S3 sends with 400 or 409 and that mean: try again.
fn is_passing(met: &Met) -> bool {
    let passing = [
        "RequestTimeout",
        "SlowDown",
        "OperationAborted",
        "ConditionalRequestConflict",
        "InternalError",
    ];
    matches!(met.status, 408 | 429 | 500..=599)
        || met.code.as_deref().is_some_and(|code| passing.contains(&code))
}

/// What an error of the crate means.
pub fn judge(error: &Error, met: &Met) -> Verdict {
    if let Some(text) = met.lie {
        return Verdict::wrong(text);
    }
    if met.unranged {
        let text = "the server sent the whole object where a part was asked for";
        return Verdict::Wrong(Kind::Unsupported, text.to_owned());
    }
    let answer = answered(met);
    if met.status >= 400 && is_passing(met) {
        return Verdict::Again(format!("the store answered {answer}"));
    }
    if met.distrusted {
        let text = "the server's certificate is not trusted: SSL_CERT_FILE may name others";
        return Verdict::Final(Kind::Other, text.to_owned());
    }
    // Not every call of the crate makes these errors of these answers.
    match met.status {
        401 | 403 => {
            return Verdict::Final(Kind::Denied, format!("the store refused access ({answer})"));
        }
        404 if met.code.as_deref().is_some_and(is_about_containers) => {
            let text = format!("there is no such bucket or container ({answer})");
            return Verdict::Final(Kind::Missing, text);
        }
        404 => return Verdict::Final(Kind::Missing, format!("there is no such object ({answer})")),
        _ => {}
    }
    match error {
        Error::NotFound { .. } => {
            Verdict::Final(Kind::Missing, format!("there is no such object ({answer})"))
        }
        Error::Precondition { .. } | Error::NotModified { .. } => Verdict::Final(
            Kind::Changed,
            "the object is not the one that was opened: it was replaced since".to_owned(),
        ),
        Error::AlreadyExists { .. } => {
            Verdict::Final(Kind::Exists, "the object is there already".to_owned())
        }
        Error::PermissionDenied { .. } | Error::Unauthenticated { .. } => {
            Verdict::Final(Kind::Denied, format!("the store refused access ({answer})"))
        }
        Error::NotSupported { .. } | Error::NotImplemented { .. } => {
            Verdict::Final(Kind::Unsupported, "the store cannot do this".to_owned())
        }
        Error::Generic { .. } => unnamed(met, &answer),
        _ => Verdict::Final(Kind::Other, "the store's client failed".to_owned()),
    }
}

fn unnamed(met: &Met, answer: &str) -> Verdict {
    match met.status {
        0 => match met.transport {
            Some(HttpErrorKind::Connect) => {
                Verdict::Unreached(format!("nobody answers at {}", met.host))
            }
            Some(HttpErrorKind::Timeout) => Verdict::Again("no answer came in time".to_owned()),
            Some(HttpErrorKind::Interrupted | HttpErrorKind::Request) => {
                Verdict::Again("the connection broke".to_owned())
            }
            _ => Verdict::wrong("the request or its answer broke off"),
        },
        301 | 302 | 303 | 307 | 308 => Verdict::Final(
            Kind::Other,
            match &met.region {
                Some(region) => format!("the bucket is in the region {region}: set aws_region"),
                None => format!("the store answered {answer} and does not say where to go"),
            },
        ),
        400 if met.code.as_deref().is_some_and(is_about_credentials) => {
            Verdict::Final(Kind::Denied, format!("the store refused access ({answer})"))
        }
        401 | 403 => Verdict::Final(Kind::Denied, format!("the store refused access ({answer})")),
        501 | 405 => Verdict::Final(Kind::Unsupported, format!("the store answered {answer}")),
        1..=299 => Verdict::wrong("the answer is not what was asked for"),
        _ => match (&met.region, met.code.as_deref()) {
            (Some(region), Some("AuthorizationHeaderMalformed")) => Verdict::Final(
                Kind::Other,
                format!("the bucket is in the region {region}: set aws_region"),
            ),
            _ => Verdict::Final(Kind::Other, format!("the store answered {answer}")),
        },
    }
}

fn is_about_containers(code: &str) -> bool {
    matches!(code, "NoSuchBucket" | "ContainerNotFound")
}

fn is_about_credentials(code: &str) -> bool {
    matches!(
        code,
        "ExpiredToken" | "TokenRefreshRequired" | "InvalidToken" | "ExpiredTokenException"
    )
}
