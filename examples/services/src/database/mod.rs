//! A database for an example: PostgreSQL where it is installed, SQLite elsewhere.

mod connection;
mod postgres;

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

pub use connection::{Connection, Param};
use postgres::Postgres;
pub(crate) use postgres::{new_dir, user_of};

use crate::Outcome;

/// `REDQUORUM_EXAMPLES=sqlite` selects SQLite, also where PostgreSQL is.
const CHOICE: &str = "REDQUORUM_EXAMPLES";

/// How to reach a database.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Address {
    /// The directory of its socket.
    Postgres(PathBuf),
    /// The file.
    Sqlite(PathBuf),
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Postgres(dir) => write!(f, "PostgreSQL:{}", dir.display()),
            Self::Sqlite(file) => write!(f, "SQLite:{}", file.display()),
        }
    }
}

impl FromStr for Address {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text.split_once(':') {
            Some(("PostgreSQL", dir)) => Ok(Self::Postgres(dir.into())),
            Some(("SQLite", file)) => Ok(Self::Sqlite(file.into())),
            _ => Err(format!("no address of a database: {text}")),
        }
    }
}

/// A database of its own in a new directory; both end with the value.
#[derive(Debug)]
pub struct Database {
    address: Address,
    dir: PathBuf,
    server: Option<Postgres>,
}

impl Database {
    /// Starts one.
    ///
    /// # Cancel safety
    /// What was started ends.
    ///
    /// # Errors
    /// When the system refuses, or PostgreSQL is installed and does not come up.
    pub async fn start() -> Outcome<Self> {
        if std::env::var(CHOICE).is_ok_and(|choice| choice == "sqlite") {
            return Self::sqlite();
        }
        let Some(programs) = postgres::programs() else {
            println!("No PostgreSQL is installed here: SQLite takes its place.");
            return Self::sqlite();
        };
        let dir = new_dir()?;
        let server = Postgres::start(&programs, &dir).await?;
        Ok(Self { address: Address::Postgres(dir.clone()), dir, server: Some(server) })
    }

    /// SQLite in any case.
    ///
    /// # Errors
    /// When the system refuses.
    pub fn sqlite() -> Outcome<Self> {
        let dir = new_dir()?;
        Ok(Self { address: Address::Sqlite(dir.join("example.db")), dir, server: None })
    }

    /// A new connection.
    ///
    /// # Cancel safety
    /// Nothing is left.
    ///
    /// # Errors
    /// When it does not answer.
    pub async fn connect(&self) -> Outcome<Connection> {
        Connection::open(&self.address).await
    }

    /// Where it is.
    #[must_use]
    pub const fn address(&self) -> &Address {
        &self.address
    }
}

impl Drop for Database {
    fn drop(&mut self) {
        drop(self.server.take());
        drop(std::fs::remove_dir_all(&self.dir)); // no caller can handle it
    }
}
