//! A planted bug: a line in which who came last is let in first. The checker must find it.

use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::oneshot;

/// The line of one process.
#[derive(Clone, Debug, Default)]
pub(crate) struct LastFirst(Arc<Mutex<State>>);

#[derive(Debug, Default)]
struct State {
    taken: bool,
    waiting: Vec<oneshot::Sender<Turn>>,
}

/// Ends when dropped; then it is the turn of the one who came last.
#[derive(Debug)]
pub(crate) struct Turn(LastFirst);

impl LastFirst {
    pub(crate) async fn enter(&self) -> Turn {
        let turn = {
            let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            if state.taken {
                let (sender, receiver) = oneshot::channel();
                state.waiting.push(sender);
                receiver
            } else {
                state.taken = true;
                return Turn(self.clone());
            }
        };
        // The sender is only dropped with a turn in it.
        turn.await.unwrap_or_else(|_| Turn(self.clone()))
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        let next = {
            let mut state = self.0.0.lock().unwrap_or_else(PoisonError::into_inner);
            let next = state.waiting.pop();
            state.taken = next.is_some();
            next
        };
        // One that is gone drops the turn that it was sent, which passes it on.
        if let Some(next) = next {
            drop(next.send(Self(self.0.clone())));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn who_came_last_is_let_in_first() {
        let line = LastFirst::default();
        let first = line.enter().await;
        let mut order = Vec::new();
        let (mut second, mut third) = (Box::pin(line.enter()), Box::pin(line.enter()));
        for entered in [&mut second, &mut third] {
            assert!(futures_util::poll!(entered).is_pending());
        }
        drop(first);
        tokio::select! {
            biased;
            turn = &mut second => order.push((2, turn)),
            turn = &mut third => order.push((3, turn)),
        }
        assert_eq!(order.first().map(|(who, _)| *who), Some(3));
        order.clear();
        drop(second.await);
        assert!(!line.0.lock().unwrap().taken);
    }
}
