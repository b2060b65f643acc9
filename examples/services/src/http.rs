//! As much of an HTTP client as the example needs.

use std::net::SocketAddr;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::Outcome;

/// What a server answered.
#[derive(Debug)]
pub struct Answer {
    /// 200 and the like.
    pub status: u16,
    /// The lines between the status and the body.
    pub head: String,
    /// The body.
    pub body: String,
}

/// Sends one request over a connection of its own.
///
/// # Cancel safety
/// The server may carry the request out.
///
/// # Errors
/// When there is no answer, or it is no HTTP.
pub async fn request(server: SocketAddr, method: &str, path: &str) -> Outcome<Answer> {
    let mut stream = TcpStream::connect(server).await?;
    let request =
        format!("{method} {path} HTTP/1.1\r\nHost: {server}\r\nConnection: close\r\nContent-Length: 0\r\n\r\n");
    stream.write_all(request.as_bytes()).await?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await?;
    let (head, body) = answer.split_once("\r\n\r\n").ok_or("no HTTP")?;
    let status = head.split(' ').nth(1).ok_or("no status")?.parse()?;
    Ok(Answer { status, head: head.to_ascii_lowercase(), body: body.to_owned() })
}
