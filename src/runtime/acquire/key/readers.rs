//! Readers (P33, P34): each asks for itself, and has a lease of its own.

use std::mem::take;
use std::sync::Arc;

use super::{Found, Key, OnKey, Want};
use crate::protocol::Access;
use crate::runtime::acquire::AcquireFailure;
use crate::runtime::acquire::asker::Asker;
use crate::runtime::acquire::attempt::Outcome;
use crate::runtime::acquire::cx::{CallerId, Cx, Deed};

impl Key {
    pub(super) fn advance_readers(&mut self, on: &OnKey<'_>, cx: &mut Cx<'_>) {
        loop {
            let looked_for = if take(&mut self.readers_have_news) {
                self.looked_for.clear();
                let readers = self.beside.values().chain(&self.line).filter(|caller| caller.reader.is_some());
                readers.map(|caller| caller.id).collect()
            } else {
                take(&mut self.looked_for)
            };
            if looked_for.is_empty() {
                return;
            }
            for id in looked_for {
                while self.advance_reader(id, on, cx) {}
            }
        }
    }

    /// Whether only readers stand before this place of the line: they are next together.
    fn is_next(&self, at: usize) -> bool {
        self.readers == self.line.len() || self.line.iter().take(at).all(|caller| caller.is_reader())
    }

    /// One step of a reader; whether another is worth a look.
    fn advance_reader(&mut self, id: CallerId, on: &OnKey<'_>, cx: &mut Cx<'_>) -> bool {
        let place = self.place_of(id);
        let mut left = take(&mut self.left);
        let outcome = self.reader(id).map(|reader| (reader.0.outcome(&mut left, cx), reader.0.has_attempt()));
        self.left = left;
        match outcome {
            None | Some((None, true)) => false,
            Some((None, false)) => self.next_step_of_reader(id, place, on, cx),
            Some((Some(Outcome::Won(held)), _)) => {
                if let Some(reader) = self.reader(id) {
                    reader.0.end(true, cx);
                }
                if let Some(caller) = self.take_out(id, cx) {
                    self.end(caller, Found::Lease(held), cx);
                }
                false
            }
            Some((Some(Outcome::Undecided(failure)), _)) => {
                self.reader_failed(id, |last| failure.note_undecided_in(last), cx);
                false
            }
            Some((Some(Outcome::Lost(failure)), _)) => {
                self.reader_lost(id, place, failure, on, cx);
                true
            }
        }
    }

    pub(super) fn reader(&mut self, id: CallerId) -> Option<&mut Box<(Asker, Option<AcquireFailure>)>> {
        self.caller(id)?.reader.as_mut()
    }

    /// From now on its wait may end.
    fn reader_failed(
        &mut self,
        id: CallerId,
        note: impl FnOnce(&mut Option<AcquireFailure>) -> Option<AcquireFailure>,
        cx: &Cx<'_>,
    ) {
        let end = self.caller(id).and_then(|caller| caller.deadline.at());
        if let Some(reader) = self.reader(id) {
            drop(note(&mut reader.1));
        }
        if let Some(end) = end {
            let end = end.max(cx.now);
            self.next_end = Some(self.next_end.map_or(end, |first| first.min(end)));
        }
    }

    fn reader_lost(
        &mut self,
        id: CallerId,
        place: Option<usize>,
        failure: AcquireFailure,
        on: &OnKey<'_>,
        cx: &mut Cx<'_>,
    ) {
        let is_try = self.caller(id).is_some_and(|caller| caller.want == Want::Try);
        let round = match &failure {
            AcquireFailure::RoundLost(round) if !is_try => round.clone(),
            _ => {
                if is_try && matches!(failure, AcquireFailure::RoundLost(_)) {
                    cx.deeds.push(Deed::TryRefused); // P26
                }
                return self.fail(id, failure, cx); // which does not pass
            }
        };
        let at = match place {
            Some(at) => at,
            None => {
                let Some(mut caller) = self.beside.remove(&id) else { return };
                self.last_caller += 1;
                caller.place = self.last_caller;
                self.places.insert(id, self.last_caller);
                self.push_back(caller);
                self.line.len() - 1
            }
        };
        // Else it stands behind writers of this client, before it waits among other clients.
        if self.is_next(at)
            && let Some(reader) = self.line.get_mut(at).and_then(|caller| caller.reader.as_mut())
        {
            Self::begin_pause(&mut reader.0, Some(id), (on, Access::Read), &round, cx);
        }
        self.reader_failed(id, |last| last.replace(failure), cx);
    }

    /// What a reader does that has no attempt under way; whether another look is worth it.
    fn next_step_of_reader(&mut self, id: CallerId, place: Option<usize>, on: &OnKey<'_>, cx: &mut Cx<'_>) -> bool {
        if place.is_some_and(|at| !self.is_next(at)) {
            return false;
        }
        if let Some(held) = self.held.as_ref().filter(|_| place.is_some()) {
            let remaining = held.remaining(&*cx.client.clock);
            if !remaining.is_zero() || held.is_given_up() {
                let wait = if remaining.is_zero() { cx.client.instance_timeout } else { remaining };
                let until = cx.now.saturating_add(wait);
                if let Some(reader) = self.reader(id) {
                    reader.0.looks_at = Some(until);
                }
                return false;
            }
            cx.deeds.extend(self.held.take().map(Deed::ForgetLease));
        }
        let is_its_turn = self.is_called;
        let Some(caller) = self.caller(id) else { return false };
        let (params, want) = (Arc::clone(&caller.params), caller.want);
        let Some(reader) = &mut caller.reader else { return false };
        let (asker, last) = &mut **reader;
        asker.looks_at = None;
        if asker.still_pauses(cx) {
            return false;
        }
        if let Some(left) = cx.client.backs_off(on.resource) {
            asker.looks_at = Some(cx.now.saturating_add(left));
            return false;
        }
        let is_repeat = want == Want::Lock && matches!(last, Some(AcquireFailure::RoundLost(_)));
        let Some(permit) = cx.permits.take(is_repeat, is_its_turn) else {
            if !std::mem::replace(&mut asker.waits_for_permit, true) {
                cx.deeds.push(Deed::WaitForPermit(is_repeat));
                self.wait_for_permit.push_back(id);
            }
            if is_its_turn {
                self.is_called = false;
                cx.deeds.push(Deed::CallNext);
            }
            return false;
        };
        asker.waits_for_permit = false;
        let mut left = take(&mut self.left);
        let asked = self.reader(id).map_or(Ok(()), |reader| reader.0.ask((&params, false), permit, &mut left, cx));
        (self.left, self.is_called) = (left, false);
        match asked {
            Ok(()) => false,
            Err(failure) => {
                self.fail(id, failure, cx);
                false
            }
        }
    }
}
