//! The statements of `docs/fencing.md`, as they stand there, on real databases.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use redquorum_examples::database::{Connection, Database, Param};
use redquorum_examples::mariadb::MariaDb;

const PAGE: &str = include_str!("../../../docs/fencing.md");

/// The statement of the page that follows this comment.
fn statement(name: &str) -> &'static str {
    let (_, rest) = PAGE.split_once(&format!("```sql\n-- {name}\n")).unwrap();
    rest.split_once("```").unwrap().0
}

/// Tokens in the order in which they arrive, and whether each may write.
const WRITES: [(i64, bool); 6] = [(34, true), (34, true), (33, false), (36, true), (35, false), (36, true)];

async fn each_is_decided(database: &Connection, name: &str, params: impl Fn(i64) -> Vec<Param>) {
    for (token, may_write) in WRITES {
        let changed = database.execute(statement(name), &params(token)).await.unwrap();
        assert_eq!(changed, u64::from(may_write), "{name} with {token}");
    }
}

async fn decides(sqlite: bool) {
    let server = if sqlite { Database::sqlite() } else { Database::start().await }.unwrap();
    println!("on {}", server.address());
    let database = server.connect().await.unwrap();
    for table in [
        "CREATE TABLE account (id BIGINT NOT NULL, balance BIGINT NOT NULL, fence BIGINT NOT NULL DEFAULT 0)",
        "INSERT INTO account (id, balance) VALUES (7, 0)",
        "CREATE TABLE setting (name TEXT PRIMARY KEY, value TEXT NOT NULL, fence BIGINT NOT NULL DEFAULT 0)",
        "CREATE TABLE fence (resource TEXT PRIMARY KEY, token BIGINT NOT NULL)",
    ] {
        database.execute(table, &[]).await.unwrap();
    }
    each_is_decided(&database, "update", |token| vec![100.into(), token.into(), 7.into()]).await;
    each_is_decided(&database, "upsert", |token| vec!["colour".into(), "red".into(), token.into()]).await;
    each_is_decided(&database, "first", |token| vec!["account:7".into(), token.into()]).await;
    for (sql, row) in [
        ("SELECT fence FROM account WHERE id = $1", 7.into()),
        ("SELECT fence FROM setting WHERE name = $1", "colour".into()),
        ("SELECT token FROM fence WHERE resource = $1", "account:7".into()),
    ] {
        assert_eq!(database.number(sql, &[row]).await.unwrap(), 36, "{sql}");
    }
}

#[tokio::test]
async fn late_writes_are_refused() {
    decides(false).await;
}

#[tokio::test]
async fn late_writes_are_refused_by_sqlite() {
    decides(true).await;
}

#[test]
fn late_writes_are_refused_by_mariadb() {
    let Some(server) = MariaDb::start().unwrap() else {
        println!("not tested: there is no MariaDB here");
        return;
    };
    server.execute("CREATE TABLE fence (resource VARCHAR(200) PRIMARY KEY, token BIGINT NOT NULL)").unwrap();
    for (token, may_write) in WRITES {
        let first = statement("mariadb first").replacen('?', "'account:7'", 1).replacen('?', &token.to_string(), 1);
        let then = statement("mariadb then").replacen('?', &token.to_string(), 1).replacen('?', "'account:7'", 1);
        let answer = server.execute(&format!("BEGIN; {first}; {then}; COMMIT")).unwrap();
        assert_eq!(answer.trim(), if may_write { "1" } else { "0" }, "{token}");
    }
}
