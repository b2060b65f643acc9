//! A child of this process by `fork()`.

use std::any::Any;
use std::io::{self, Read, Write, pipe};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use fork::{Fork, fork};
use rustix::process::{Pid, Signal, WaitOptions, getpid, kill_process, waitpid};

use crate::Error;

/// What the child says once its work has ended.
const DONE: &str = "done";

/// Does `work` in a child of this process, which has copies of all that this one has, and none of its threads. The child ends with it, and
/// drops nothing.
///
/// # Errors
/// What the work panicked with, or that it did not end within `limit`.
pub fn in_a_child(limit: Duration, work: impl FnOnce()) -> Result<(), Error> {
    let doing = "do the work of a child";
    let (mut said, mut says) = pipe().map_err(Error::io(doing))?;
    let child = match fork().map_err(Error::io(doing))? {
        Fork::Child => {
            let ended = catch_unwind(AssertUnwindSafe(work));
            let words = ended.map_or_else(|panic| words(&*panic), |()| DONE.to_owned());
            let _ = says.write_all(words.as_bytes());
            loop {
                let _ = kill_process(getpid(), Signal::KILL); // no handler runs, and no destructor
            }
        }
        Fork::Parent(child) => Pid::from_raw(child).ok_or_else(|| Error::io(doing)(io::ErrorKind::NotFound.into()))?,
    };
    drop(says);
    let (hears, heard) = mpsc::channel();
    thread::spawn(move || {
        let mut words = String::new();
        let read = said.read_to_string(&mut words).map(|_| words);
        let _ = hears.send(read);
    });
    let heard = heard.recv_timeout(limit);
    let killed = kill_process(child, Signal::KILL).and_then(|()| waitpid(Some(child), WaitOptions::empty()));
    killed.map_err(|error| Error::io("end a child")(error.into()))?;
    let failed = |words: String| Err(Error::io(doing)(io::Error::other(words)));
    match heard {
        Ok(Ok(words)) if words == DONE => Ok(()),
        Ok(words) => failed(words.map_err(Error::io(doing))?),
        Err(_) => failed(format!("it did not end within {limit:?}")),
    }
}

fn words(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<String>().map(String::as_str).or_else(|| panic.downcast_ref::<&str>().copied());
    text.unwrap_or("a panic without words").to_owned()
}
