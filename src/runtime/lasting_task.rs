//! Tasks on which all locks of a client depend. They continue after a panic: of an instance, say, or of a log
//! subscriber.

use std::panic::AssertUnwindSafe;
use std::time::Duration;

use futures_util::FutureExt;
use tokio::time::sleep;

/// The pause before a task continues that has panicked: what panics each time must not take a processor.
const AFTER_PANIC: Duration = Duration::from_millis(10);

/// Whether `work` of a task on which all locks of a client depend came to its end. A panic is logged,
/// and the task is to begin it again.
pub(crate) async fn ran_to_its_end(what: &'static str, work: impl Future<Output = ()>) -> bool {
    if AssertUnwindSafe(work).catch_unwind().await.is_ok() {
        return true;
    }
    tracing::error!("the task that {what} has panicked, and goes on");
    sleep(AFTER_PANIC).await;
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn work_that_panics_may_begin_again_until_it_comes_to_its_end() {
        let mut begun = 0;
        let mut work = || {
            begun += 1;
            let ends = begun == 3;
            async move { assert!(ends, "as planned") }
        };
        while !ran_to_its_end("is tested", work()).await {}
        assert_eq!(begun, 3);
    }
}
