//! Interleavings of callers that put requests, and of tasks that gather them: one of them writes each request, and nothing else has to
//! happen for it. Small scenes run in every order, larger ones in random orders, the same in each run.
//!
//! `shuttle` switches at mutexes and atomics, and takes every memory ordering for `SeqCst`: one that is too weak is not found.

#![cfg(test)]

// The library's own file. This crate is its `std`, with the mutexes and atomics of the checker.
extern crate self as std;
#[path = "../../src/instance/redis/conn/gathering.rs"]
mod gathering;

pub(crate) use ::core::{future, mem, task};
pub(crate) use ::shuttle::sync;

use ::shuttle::future::{block_on, spawn};
use ::shuttle::scheduler::{DfsScheduler, PctScheduler, RandomScheduler, Scheduler};
use ::shuttle::{Config, Runner, thread};
use sync::{Arc, Mutex};

type Gathering = gathering::Gathering<Connection>;

#[derive(Default)]
struct Connection(Mutex<Requests>);

#[derive(Default)]
struct Requests {
    queued: usize,
    written: usize,
}

impl Requests {
    fn write(&mut self) {
        self.written += mem::take(&mut self.queued);
    }
}

impl Connection {
    fn begin(gathering: &Gathering) -> Arc<Self> {
        let connection = Arc::default();
        gathering.add(&connection);
        connection
    }

    fn put(&self, gathering: &Gathering) {
        drop(gathering.put(&self.0, |requests| requests.queued += 1, Requests::write));
    }

    /// The same, but it looks before it has the mutex.
    fn look_and_put(&self, gathering: &Gathering) {
        let is_on = gathering.is_on();
        let mut requests = self.0.lock().unwrap();
        requests.queued += 1;
        if !is_on {
            requests.write();
        }
    }

    fn write_all(connections: &[Arc<Self>]) {
        connections.iter().for_each(|connection| connection.0.lock().unwrap().write());
    }

    fn assert_written(&self, written: usize) {
        let requests = self.0.lock().unwrap();
        assert_eq!((requests.queued, requests.written), (0, written), "a request is left");
    }
}

/// What happens at the same time.
#[derive(Clone, Copy)]
struct Scene {
    connections: usize,
    /// Each puts a request on every connection.
    callers: usize,
    /// Each begins a connection and puts a request on it.
    new: usize,
    /// Each puts a request on a connection that ends then.
    ended: usize,
    /// Tasks that gather.
    tasks: usize,
    /// So many of them are aborted: before, in or after their wait.
    aborted: usize,
    put: fn(&Connection, &Gathering),
}

const SMALL: Scene = Scene { connections: 1, callers: 1, new: 0, ended: 0, tasks: 1, aborted: 0, put: Connection::put };
const LARGE: Scene = Scene { connections: 2, callers: 2, new: 1, ended: 1, tasks: 2, aborted: 1, ..SMALL };

impl Scene {
    fn play(self) {
        let gathering = Arc::new(Gathering::default());
        let begin = |_| Connection::begin(&gathering);
        let connections: Vec<_> = (0..self.connections).map(begin).collect();
        let ended: Vec<_> = (0..self.ended).map(begin).collect();

        let tasks: Vec<_> = (0..self.tasks)
            .map(|_| {
                let gathering = Arc::clone(&gathering);
                spawn(async move { gathering.gather(Connection::write_all).await })
            })
            .collect();
        let caller = |connections: Vec<Arc<Connection>>| {
            let gathering = Arc::clone(&gathering);
            thread::spawn(move || connections.iter().for_each(|connection| (self.put)(connection, &gathering)))
        };
        let callers: Vec<_> = (0..self.callers).map(|_| caller(connections.clone())).collect();
        let ended: Vec<_> = ended.into_iter().map(|connection| caller(vec![connection])).collect();
        let new: Vec<_> = (0..self.new)
            .map(|_| {
                let gathering = Arc::clone(&gathering);
                thread::spawn(move || {
                    let connection = Connection::begin(&gathering);
                    (self.put)(&connection, &gathering);
                    connection
                })
            })
            .collect();

        tasks.iter().take(self.aborted).for_each(|task| task.abort());
        callers.into_iter().chain(ended).for_each(|caller| caller.join().unwrap());
        let new: Vec<_> = new.into_iter().map(|caller| caller.join().unwrap()).collect();
        tasks.into_iter().for_each(|task| drop(block_on(task)));
        connections.iter().for_each(|connection| connection.assert_written(self.callers));
        new.iter().for_each(|connection| connection.assert_written(1));
    }

    fn play_in(self, orders: impl Scheduler + 'static) {
        let mut config = Config::new();
        config.silence_warnings = true; // about memory orderings
        let orders = Runner::new(orders, config).run(move || self.play());
        eprintln!("{orders} orders");
    }

    fn play_in_all_orders(self) {
        self.play_in(DfsScheduler::new(None, false));
    }
}

#[test]
fn no_request_is_left_by_a_caller_and_a_task() {
    SMALL.play_in_all_orders();
}

#[test]
fn no_request_is_left_by_a_task_that_is_aborted() {
    Scene { aborted: 1, ..SMALL }.play_in_all_orders();
}

#[test]
fn no_request_is_left_on_either_of_two_connections() {
    Scene { connections: 2, ..SMALL }.play_in_all_orders();
}

#[test]
fn no_request_is_left_on_a_connection_that_begins() {
    Scene { connections: 0, callers: 0, new: 1, ..SMALL }.play_in_all_orders();
}

#[test]
fn no_request_is_left_by_many_in_random_orders() {
    LARGE.play_in(RandomScheduler::new_from_seed(1, 10_000));
}

#[test]
fn no_request_is_left_by_many_where_some_are_paused_for_long() {
    LARGE.play_in(PctScheduler::new_from_seed(1, 4, 10_000));
}

#[test]
#[should_panic(expected = "a request is left")]
fn a_caller_that_looks_before_it_has_the_mutex_is_found() {
    Scene { put: Connection::look_and_put, ..SMALL }.play_in_all_orders();
}
