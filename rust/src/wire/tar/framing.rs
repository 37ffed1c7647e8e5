//! Records of a tar archive as frames.

use super::*;
use crate::wire::frames::{Candidate, Framing, Skim, Skip, Step};

/// Tar as in WebDataset: a frame is a record, which is a run of members with the same key.
///
/// Members that do not belong to a record are added to the frame before them, or to the first frame. So are
/// the zeros that end an archive. If a second archive follows, its first member begins a new record.
#[derive(Clone, Copy, Debug)]
pub struct Tar;

impl Framing for Tar {
    #[inline]
    fn next(self, window: &[u8], last: bool) -> Step {
        let mut key: Option<Vec<u8>> = None;
        let mut at = 0usize;
        let mut ended = false;
        let found = |at| Step::Frame { payload: 0, length: at, total: at };
        loop {
            let rest = window.get(at..).unwrap_or_default();
            if rest.is_empty() && last {
                return if key.is_some() { found(at) } else { Step::Blank(at) };
            }
            let total = match head(rest) {
                Head::Zeros => {
                    ended = true;
                    BLOCK as u64
                }
                Head::Member(_) | Head::Broken(_) if ended && key.is_some() => return found(at),
                Head::Member(member) => {
                    if let Some(name) = split(&member.name).filter(|_| member.is_file) {
                        match &key {
                            None => key = Some(name.key.to_vec()),
                            Some(known) if known == name.key => {}
                            Some(_) => return found(at),
                        }
                    }
                    member.total
                }
                Head::Need(need) => return more(window, last, (at as u64).saturating_add(need)),
                Head::Broken(fault) => return Step::Broken(fault.shifted(at as u64)),
            };
            let end = (at as u64).saturating_add(total);
            match usize::try_from(end) {
                Ok(end) if end <= window.len() => at = end,
                // The next header decides whether the record ends here.
                _ => return more(window, last, end.saturating_add(if last { 0 } else { 512 })),
            }
        }
    }

    fn skim(self, state: &mut Skim, window: &[u8], last: bool) -> Skip {
        let mut at = 0usize;
        loop {
            let rest = window.get(at..).unwrap_or_default();
            if rest.is_empty() && last {
                return Skip::End(at as u64);
            }
            let total = match head(rest) {
                Head::Zeros => {
                    state.ended = true;
                    BLOCK as u64
                }
                Head::Member(_) | Head::Broken(_) if state.ended && state.key.is_some() => {
                    return Skip::End(at as u64);
                }
                Head::Member(member) => {
                    if let Some(name) = split(&member.name).filter(|_| member.is_file) {
                        match &state.key {
                            None => state.key = Some(name.key.to_vec()),
                            Some(known) if known == name.key => {}
                            Some(_) => return Skip::End(at as u64),
                        }
                    }
                    member.total
                }
                Head::Need(_) if at > 0 => return Skip::On(at as u64),
                Head::Need(need) => return Skip::More(usize::try_from(need).unwrap_or(usize::MAX)),
                Head::Broken(fault) => return Skip::Broken(fault.shifted(at as u64)),
            };
            let end = (at as u64).saturating_add(total);
            match usize::try_from(end) {
                Ok(end) if end < window.len() => at = end,
                _ => return Skip::On(end),
            }
        }
    }

    /// The members after damage may be the rest of a record, so the candidate is the next change of the
    /// key.
    fn find(self, window: &[u8], from: usize) -> Option<Candidate> {
        let mut at = from;
        loop {
            let rest = window.get(at..)?;
            let magic = rest.windows(262).position(|header| header.ends_with(b"ustar"))?;
            at = at.checked_add(magic)?;
            let rest = window.get(at..)?;
            let passed = match self.next(rest, false) {
                Step::Frame { total, .. } => {
                    let at = at.checked_add(total)?;
                    let total = match self.next(window.get(at..)?, false) {
                        Step::Frame { total, .. } => total as u64,
                        Step::Need(total) => total,
                        _ => BLOCK as u64,
                    };
                    return Some(Candidate { at, total });
                }
                Step::Broken(fault) => usize::try_from(fault.byte).unwrap_or(usize::MAX),
                Step::Need(_) | Step::Blank(_) => return None,
            };
            at = at.checked_add(passed.max(1))?;
        }
    }
}

#[cold]
fn more(window: &[u8], last: bool, need: u64) -> Step {
    if !last {
        return Step::Need(need);
    }
    let message = "the archive ends inside a member";
    let fault = Fault::new(FaultKind::Truncated, window.len() as u64, message);
    Step::Broken(fault.values(need, window.len() as u64))
}
