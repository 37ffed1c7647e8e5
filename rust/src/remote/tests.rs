//! Against a server in this process that answers as each test wants.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use object_store::GetRange;

use super::client::Remote;
use super::config::{Config, Scheme, shown};
use super::fetch::{self, Landed, Urgency};
use super::gate::{Gate, MOST};
use super::list::rewritten;
use super::pending::Pending;
use super::plan::{GAP, LARGEST, Sorter, plan};
use super::process::{PerProcess, runtime};
use super::{Kind, Problem, State};

/// Small numbers that look random and are the same each time.
struct Draws(u64);

impl Draws {
    fn below(&mut self, end: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % end
    }
}

fn object(size: usize) -> Vec<u8> {
    let mut draws = Draws(99);
    (0..size).map(|_| draws.below(256) as u8).collect()
}

fn wanted(data: &[u8], ranges: &[(u64, u64)]) -> Vec<u8> {
    let part = |&(start, length): &(u64, u64)| &data[start as usize..(start + length) as usize];
    ranges.iter().flat_map(part).copied().collect()
}

#[test]
fn a_plan_brings_every_byte_to_its_place_whatever_the_chunks() {
    let data = object(30 << 20);
    for seed in 1..60 {
        let mut draws = Draws(seed);
        let longest = [10, 5000, 300_000, 20 << 20][draws.below(4) as usize];
        let ranges: Vec<(u64, u64)> = (0..draws.below(12))
            .map(|_| {
                let start = draws.below(data.len() as u64);
                (start, draws.below(longest).min(data.len() as u64 - start))
            })
            .collect();
        let (requests, total) = plan(&ranges).unwrap();
        let mut result = vec![0; total];
        let mut before = None;
        for request in &requests {
            assert!(request.start < request.end && request.end - request.start <= LARGEST);
            assert!(before.is_none_or(|end| end <= request.start), "no byte is asked for twice");
            before = Some(request.end);
            let edges = (
                request.pieces.first().unwrap().start,
                request.pieces.iter().map(|p| p.start + p.length).max(),
            );
            assert_eq!(
                edges,
                (request.start, Some(request.end)),
                "a request does not begin or end in a gap"
            );
            let mut reached = request.start;
            for piece in &request.pieces {
                assert!(piece.start <= reached + GAP);
                reached = reached.max(piece.start + piece.length);
            }
            let mut sorter = Sorter::new(request);
            let mut at = request.start;
            while at < request.end {
                let end = request.end.min(at + 1 + draws.below(200_000));
                sorter.copy(at, &data[at as usize..end as usize], &mut result);
                at = end;
            }
        }
        assert!(result == wanted(&data, &ranges), "seed {seed}");
    }
}

#[test]
fn gaps_decide_what_is_one_request() {
    let count = |gap: u64| plan(&[(0, 10), (10 + gap, 10)]).unwrap().0.len();
    assert_eq!((count(0), count(GAP), count(GAP + 1)), (1, 1, 2));
    assert_eq!(plan(&[(0, 2 * LARGEST + 1)]).unwrap().0.len(), 3);
    assert_eq!(plan(&[]).unwrap(), (vec![], 0));
    assert_eq!(plan(&[(7, 0)]).unwrap(), (vec![], 0));
    assert!(plan(&[(u64::MAX, 1)]).is_none());
    assert!(plan(&[(0, u64::MAX), (0, u64::MAX)]).is_none());
}

#[test]
fn a_gate_lets_in_fewer_after_the_store_asked_for_it() {
    runtime().unwrap().block_on(async {
        let gate = Gate::new();
        let mut passes = Vec::new();
        for _ in 0..MOST {
            passes.push(gate.enter().await);
        }
        let another = tokio::time::timeout(Duration::from_millis(50), gate.enter());
        assert!(another.await.is_err());
        gate.slow_down();
        gate.slow_down();
        assert_eq!(gate.limit(), MOST / 2, "many answers of one moment count once");
        passes.truncate(MOST / 2);
        let another = tokio::time::timeout(Duration::from_millis(50), gate.enter());
        assert!(another.await.is_err());
        passes.pop();
        gate.enter().await;
        tokio::time::sleep(Duration::from_millis(1100)).await;
        passes.pop();
        assert_eq!(gate.limit(), MOST / 2 + 1);
    });
}

#[test]
fn those_who_wait_at_the_gate_are_let_in_one_after_another() {
    runtime().unwrap().block_on(async {
        let gate = Gate::new();
        let (active, done) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
        let tasks: Vec<_> = (0..500)
            .map(|_| {
                let (gate, active, done) =
                    (Arc::clone(&gate), Arc::clone(&active), Arc::clone(&done));
                tokio::spawn(async move {
                    let pass = gate.enter().await;
                    assert!(active.fetch_add(1, Ordering::SeqCst) < MOST);
                    tokio::time::sleep(Duration::from_millis(2)).await;
                    active.fetch_sub(1, Ordering::SeqCst);
                    drop(pass);
                    done.fetch_add(1, Ordering::SeqCst);
                })
            })
            .collect();
        for task in tasks {
            task.await.unwrap();
        }
        assert_eq!(done.load(Ordering::SeqCst), 500);
    });
}

#[test]
fn a_value_is_made_once() {
    let (made, place) = (AtomicUsize::new(0), PerProcess::new());
    let make = || -> Result<usize, ()> { Ok(made.fetch_add(1, Ordering::SeqCst)) };
    assert!(place.get().is_none());
    assert_eq!(place.get_or_make(|| Err("no")).unwrap_err(), "no");
    assert_eq!(place.get_or_make(make), Ok(&0));
    assert_eq!(place.get_or_make(make), Ok(&0));
    assert_eq!((place.get(), made.load(Ordering::SeqCst)), (Some(&0), 1));
}

#[test]
fn work_that_panics_is_an_error_for_who_waits() {
    let pending: Pending<()> = Pending::begin(runtime().unwrap(), async { panic!("on purpose") });
    let outcome = pending.outcome_within(Duration::from_secs(5)).expect("an outcome");
    assert_eq!(outcome.unwrap_err().kind, Kind::Other);
}

#[test]
fn addresses_are_shown_without_what_is_secret() {
    assert_eq!(shown("https://user:word@host:1/a?sig=x#y"), "https://host:1/a");
    assert_eq!(shown("s3://bucket"), "s3://bucket");
    assert_eq!(
        shown("abfs://box@account.dfs.core.windows.net"),
        "abfs://box@account.dfs.core.windows.net"
    );
    assert_eq!(shown("no address with a secret"), "an address");
}

#[test]
fn pages_of_listings_keep_plain_names_and_mark_others() {
    let page = |inside: &str| format!("<ListBucketResult>{inside}</ListBucketResult>\n");
    let plain = page(
        "<Contents><Key>a/b c</Key></Contents><CommonPrefixes><Prefix>a/</Prefix></CommonPrefixes>",
    );
    assert_eq!(rewritten(&plain).unwrap(), plain);
    let marked = rewritten(&page("<Key>a/</Key>")).unwrap();
    assert_eq!(marked, page("<Key>\u{E5F5}612f</Key>"));
    assert!(rewritten("<ListBucketResult><Key>a</Key>").is_err());
    assert!(rewritten(&page("<IsTruncated>true</IsTruncated>")).is_err());
}

type Answer = fn(&Server, &mut TcpStream, (usize, usize)) -> std::io::Result<bool>;

/// Serves one object by ranges. The first answers are what the test gives.
struct Server {
    data: Vec<u8>,
    faults: Mutex<Vec<Answer>>,
    asked: Mutex<Vec<(usize, usize)>>,
}

impl Server {
    fn start(faults: Vec<Answer>) -> (Arc<Self>, Remote) {
        let server =
            Self { data: object(20 << 20), faults: Mutex::new(faults), asked: Mutex::default() };
        let (server, listener) = (Arc::new(server), TcpListener::bind("127.0.0.1:0").unwrap());
        let url = format!("http://{}", listener.local_addr().unwrap());
        let serving = Arc::clone(&server);
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let serving = Arc::clone(&serving);
                std::thread::spawn(move || serving.serve(stream.unwrap()));
            }
        });
        let config = Config {
            url,
            options: BTreeMap::new(),
            source: None,
            in_flight_bytes: 96 << 20,
            deadline: Duration::from_secs(20),
            stall: Duration::from_millis(500),
        };
        assert_eq!(config.scheme(), Ok(Scheme::Http));
        (server, Remote::new(config).unwrap())
    }

    fn serve(&self, mut stream: TcpStream) -> std::io::Result<()> {
        let mut lines = BufReader::new(stream.try_clone()?);
        loop {
            let (mut line, mut range) = (String::new(), (0, 0));
            while lines.read_line(&mut line)? > 2 {
                if let Some(text) = line.to_lowercase().strip_prefix("range: bytes=") {
                    let (start, last) = text.trim().split_once('-').unwrap();
                    range = (start.parse().unwrap(), last.parse::<usize>().unwrap() + 1);
                }
                line.clear();
            }
            range.1 = range.1.min(self.data.len());
            self.asked.lock().unwrap().push(range);
            let fault = self.faults.lock().unwrap().pop();
            if !fault.unwrap_or(rightly)(self, &mut stream, range)? {
                return Ok(());
            }
        }
    }

    fn answer(
        &self,
        stream: &mut TcpStream,
        (start, end): (usize, usize),
        sent: usize,
        tag: &str,
    ) -> std::io::Result<()> {
        let (length, size) = (end - start, self.data.len());
        write!(
            stream,
            "HTTP/1.1 206 Partial Content\r\nContent-Length: {length}\r\nETag: \"{tag}\"\r\n\
             Content-Range: bytes {start}-{}/{size}\r\n\r\n",
            end - 1
        )?;
        stream.write_all(&self.data[start..start + sent])
    }
}

fn rightly(
    server: &Server,
    stream: &mut TcpStream,
    range: (usize, usize),
) -> std::io::Result<bool> {
    server.answer(stream, range, range.1 - range.0, "one").map(|()| true)
}

fn cut(server: &Server, stream: &mut TcpStream, range: (usize, usize)) -> std::io::Result<bool> {
    server.answer(stream, range, (range.1 - range.0) / 2, "one").map(|()| false)
}

fn stalled(
    server: &Server,
    stream: &mut TcpStream,
    range: (usize, usize),
) -> std::io::Result<bool> {
    server.answer(stream, range, (range.1 - range.0) / 2, "one")?;
    std::thread::sleep(Duration::from_secs(5));
    Ok(false)
}

fn replaced(
    server: &Server,
    stream: &mut TcpStream,
    range: (usize, usize),
) -> std::io::Result<bool> {
    server.answer(stream, range, range.1 - range.0, "two").map(|()| true)
}

fn fetched(remote: &Remote, pinned: &State, ranges: &[(u64, u64)]) -> Result<Landed, Problem> {
    let (key, path) = ("x".to_owned(), remote.path("x")?);
    let urgency = Arc::new(Urgency::default());
    let work = fetch::ranges(remote.client()?, key, path, pinned.clone(), ranges.to_vec(), urgency);
    runtime()?.block_on(work)
}

fn first(remote: &Remote, range: GetRange) -> Result<Landed, Problem> {
    let (key, path) = ("x".to_owned(), remote.path("x")?);
    runtime()?.block_on(fetch::first(remote.client()?, key, path, range, Arc::default()))
}

#[test]
fn ranges_come_right_through_broken_and_stalled_answers() {
    let (server, remote) = Server::start(vec![cut, stalled, cut, rightly]);
    let opened = first(&remote, GetRange::Bounded(10..5000)).unwrap();
    assert_eq!(opened.take().as_slice(), &server.data[10..5000]);
    assert_eq!(opened.state.size, server.data.len() as u64);
    let ranges = [(5, 18 << 20), (19 << 20, 700), (3, 4), (19 << 20, 0)];
    let landed = fetched(&remote, &opened.state, &ranges).unwrap();
    assert!(landed.take().as_slice() == wanted(&server.data, &ranges));
    assert_eq!(remote.client().unwrap().traffic.retries.load(Ordering::Relaxed), 3);
}

#[test]
fn an_object_that_is_replaced_is_never_mixed() {
    let (_server, remote) = Server::start(vec![replaced, cut, rightly]);
    let opened = first(&remote, GetRange::Bounded(0..10)).unwrap();
    let problem = fetched(&remote, &opened.state, &[(100, 1000)]).err().expect("a problem");
    assert_eq!((problem.kind, problem.range), (Kind::Changed, Some((100, 1100))));
}

#[test]
fn a_state_of_another_size_is_another_object() {
    let (server, remote) = Server::start(vec![]);
    let state = State { size: server.data.len() as u64 - 1, ..State::default() };
    assert_eq!(fetched(&remote, &state, &[(0, 1)]).err().expect("a problem").kind, Kind::Changed);
}
