//! The same few words for both databases.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tokio_postgres::types::ToSql;
use tokio_postgres::{Config, NoTls};

use super::Address;
use crate::Outcome;

/// A connection; several tasks may use it side by side.
#[derive(Debug)]
pub struct Connection(Kind);

#[derive(Debug)]
enum Kind {
    Postgres(tokio_postgres::Client),
    /// Its calls block, but for a fraction of a millisecond.
    Sqlite(Mutex<rusqlite::Connection>),
}

/// What is put in the place of `$1`, `$2` and so on.
#[derive(Clone, Debug)]
pub enum Param {
    /// For a BIGINT.
    Number(i64),
    /// For a TEXT.
    Text(String),
}

impl From<i64> for Param {
    fn from(number: i64) -> Self {
        Self::Number(number)
    }
}

impl From<&str> for Param {
    fn from(text: &str) -> Self {
        Self::Text(text.to_owned())
    }
}

impl Param {
    fn as_postgres(&self) -> &(dyn ToSql + Sync) {
        match self {
            Self::Number(number) => number,
            Self::Text(text) => text,
        }
    }
}

impl rusqlite::ToSql for Param {
    fn to_sql(&self) -> rusqlite::Result<rusqlite::types::ToSqlOutput<'_>> {
        match self {
            Self::Number(number) => rusqlite::ToSql::to_sql(number),
            Self::Text(text) => rusqlite::ToSql::to_sql(text),
        }
    }
}

impl Connection {
    pub(crate) async fn open(address: &Address) -> Outcome<Self> {
        match address {
            Address::Postgres(dir) => {
                let (client, connection) =
                    Config::new().host_path(dir).user("postgres").dbname("postgres").connect(NoTls).await?;
                tokio::spawn(connection); // ends with the client
                Ok(Self(Kind::Postgres(client)))
            }
            Address::Sqlite(file) => {
                let connection = rusqlite::Connection::open(file)?;
                connection.busy_timeout(Duration::from_secs(30))?;
                connection.execute_batch("PRAGMA journal_mode = WAL; PRAGMA synchronous = OFF")?;
                Ok(Self(Kind::Sqlite(Mutex::new(connection))))
            }
        }
    }

    /// Carries out one statement and gives how many rows it changed.
    ///
    /// # Cancel safety
    /// It may be carried out.
    ///
    /// # Errors
    /// What the database says.
    pub async fn execute(&self, sql: &str, params: &[Param]) -> Outcome<u64> {
        match &self.0 {
            Kind::Postgres(client) => {
                let params: Vec<_> = params.iter().map(Param::as_postgres).collect();
                Ok(client.execute(sql, &params).await?)
            }
            Kind::Sqlite(connection) => {
                let connection = connection.lock().unwrap_or_else(PoisonError::into_inner);
                Ok(connection.execute(sql, rusqlite::params_from_iter(params))?.try_into()?)
            }
        }
    }

    /// The number that a query gives.
    ///
    /// # Cancel safety
    /// Nothing is changed.
    ///
    /// # Errors
    /// What the database says, also if there is no row.
    pub async fn number(&self, sql: &str, params: &[Param]) -> Outcome<i64> {
        match &self.0 {
            Kind::Postgres(client) => {
                let params: Vec<_> = params.iter().map(Param::as_postgres).collect();
                Ok(client.query_one(sql, &params).await?.try_get(0)?)
            }
            Kind::Sqlite(connection) => {
                let connection = connection.lock().unwrap_or_else(PoisonError::into_inner);
                Ok(connection.query_row(sql, rusqlite::params_from_iter(params), |row| row.get(0))?)
            }
        }
    }
}
