//! What a server holds, and what it has been asked.

use crate::{Error, Server};

/// Keys that begin so belong to the library itself, not to a lock.
const RESERVED: &str = "redquorum:";

impl Server {
    /// The keys of locks and of everything else but the library's own `redquorum:*`, sorted.
    ///
    /// # Errors
    /// When it does not answer.
    pub fn keys(&self) -> Result<Vec<String>, Error> {
        let mut keys = self.all_keys()?;
        keys.retain(|key| !key.starts_with(RESERVED));
        Ok(keys)
    }

    /// All keys, sorted.
    ///
    /// # Errors
    /// When it does not answer.
    pub fn all_keys(&self) -> Result<Vec<String>, Error> {
        let reply = self.command(&["KEYS", "*"])?;
        let mut keys: Vec<_> = reply.items().iter().filter_map(crate::Reply::text).collect();
        keys.sort_unstable();
        Ok(keys)
    }

    /// A field of `INFO section`; none if the server has no such field.
    ///
    /// # Errors
    /// When it does not answer.
    pub fn info(&self, section: &str, field: &str) -> Result<Option<String>, Error> {
        let text = self.command(&["INFO", section])?.text().unwrap_or_default();
        let mut fields = text.lines().filter_map(|line| line.split_once(':'));
        Ok(fields.find(|(name, _)| *name == field).map(|(_, value)| value.to_owned()))
    }

    /// How often `command` (in lower case, as in `evalsha`) ran since the start or [`Self::reset_stats`].
    ///
    /// What a script calls counts as well, under its own name.
    ///
    /// # Errors
    /// When it does not answer.
    pub fn calls(&self, command: &str) -> Result<u64, Error> {
        Ok(self.stat(command, "calls")?.unwrap_or(0))
    }

    /// The mean time that `command` took inside the server, in microseconds; none if it never ran.
    ///
    /// # Errors
    /// When it does not answer.
    pub fn usec_per_call(&self, command: &str) -> Result<Option<f64>, Error> {
        self.stat(command, "usec_per_call")
    }

    /// Sets the counters to zero.
    ///
    /// # Errors
    /// When it does not answer.
    pub fn reset_stats(&self) -> Result<(), Error> {
        self.command(&["CONFIG", "RESETSTAT"]).map(drop)
    }

    fn stat<T: std::str::FromStr>(&self, command: &str, name: &str) -> Result<Option<T>, Error> {
        let line = self.info("commandstats", &format!("cmdstat_{command}"))?; // calls=1,usec=2,usec_per_call=2.00,..
        let value = line.as_deref().and_then(|line| {
            let mut parts = line.split(',').filter_map(|part| part.split_once('='));
            parts.find(|(key, _)| *key == name).map(|(_, value)| value.to_owned())
        });
        Ok(value.and_then(|value| value.trim().parse().ok()))
    }
}
