//! A runtime that ends before its client.

use redquorum_testkit::Program;

use crate::support::{beside_others, builder_of, client_of, fleet_of, held, ms, ready};

/// More than wait in one line, so that many batches follow on each other.
const TASKS: usize = 12_000;

/// Counter-example: at the end of the runtime each batch, dropped, sent the next one, which was
/// dropped as well, one inside the other until the stack was used up.
#[test]
fn a_runtime_that_ends_drops_a_long_line_of_requests() {
    let _shared = beside_others();
    for program in Program::all_required().unwrap() {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(2)
            .thread_stack_size(256 * 1024) // so that a test of moderate size shows it
            .enable_all()
            .build()
            .unwrap();
        let fleet = fleet_of(&program, 1);
        runtime.block_on(async {
            let redlock = ready(builder_of(&fleet)).await;
            fleet[0].hang().unwrap();
            for index in 0..TASKS {
                let redlock = redlock.clone();
                tokio::spawn(async move { drop(redlock.lock(format!("a:{index}")).try_acquire().await) });
            }
            tokio::time::sleep(ms(100)).await;
        });
        runtime.shutdown_timeout(ms(1_000));
    }
}

/// The connections were told to be there for good: `connected` was content, and a lock waited for ever
/// on broken pipes.
#[test]
fn a_client_whose_runtime_has_ended_is_not_connected() {
    let _shared = beside_others();
    let runtime = || tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    for program in Program::all_required().unwrap() {
        let fleet = fleet_of(&program, 3);
        let first = runtime();
        let (redlock, extended, released) = first.block_on(async {
            let redlock = client_of(&fleet).await;
            let (extended, released) = (held(&redlock, "b").await, held(&redlock, "c").await);
            (redlock, extended, released)
        });
        drop(first);
        runtime().block_on(async {
            let ended =
                [extended.extend().await.unwrap_err().to_string(), released.release().await.unwrap_err().to_string()];
            assert!(ended.iter().all(|error| error.contains("has ended") && !error.contains("continues")), "{ended:?}");
            let error = redlock.wait_connected(ms(100)).await.unwrap_err();
            assert!(error.to_string().contains("has ended"), "{error}");
            assert!(redlock.instances().iter().all(|status| !status.connected), "{:?}", redlock.instances());
            let error = redlock.lock("a").try_acquire().await.unwrap_err();
            assert!(error.to_string().contains("has ended"), "{error}");
        });
    }
}
