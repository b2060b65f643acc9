//! As much of ZooKeeper's protocol as a lock needs: one request at a time, and watches.
//!
//! Numbers are big-endian; each message, text and list has its length before it.

use tokio::io::{AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::TcpStream;

use crate::Outcome;

const CREATE: i32 = 1;
const DELETE: i32 = 2;
const EXISTS: i32 = 3;
const GET_CHILDREN: i32 = 8;

const OK: i32 = 0;
const NO_NODE: i32 = -101;
pub(crate) const NODE_EXISTS: i32 = -110;

/// The number of every message about a watched node.
const OF_WATCH: i32 = -1;

const SESSION_TIMEOUT_MS: i32 = 30_000;
const EPHEMERAL_SEQUENTIAL: i32 = 3;
const ALL_PERMISSIONS: i32 = 31;

pub(crate) struct Connection {
    stream: BufReader<TcpStream>,
    requests: i32,
    /// Messages about watched nodes that nobody has asked for yet.
    events: usize,
}

impl Connection {
    pub(crate) async fn open(port: u16) -> Outcome<Self> {
        let stream = BufReader::new(TcpStream::connect(("127.0.0.1", port)).await?);
        stream.get_ref().set_nodelay(true)?;
        let mut connection = Self { stream, requests: 0, events: 0 };
        let mut hello = Writer::default();
        // The version, the last change seen, a new session without a password, and that a server that only reads will not do.
        hello.int(0).long(0).int(SESSION_TIMEOUT_MS).long(0).text("").byte(0);
        connection.write(hello).await?;
        let mut answer = connection.read().await?;
        let (_version, granted) = (answer.int()?, answer.int()?);
        if granted <= 0 { Err("ZooKeeper gives no session".into()) } else { Ok(connection) }
    }

    /// The path that was made, or why not.
    pub(crate) async fn create(&mut self, path: &str, is_lock: bool) -> Outcome<Result<String, i32>> {
        let mut body = Writer::default();
        body.text(path).text(""); // without data
        body.int(1).int(ALL_PERMISSIONS).text("world").text("anyone");
        body.int(if is_lock { EPHEMERAL_SEQUENTIAL } else { 0 });
        let (code, mut answer) = self.ask(CREATE, body).await?;
        Ok(if code == OK { Ok(answer.text()?) } else { Err(code) })
    }

    pub(crate) async fn delete(&mut self, path: &str) -> Outcome {
        let mut body = Writer::default();
        body.text(path).int(-1); // whatever its version
        match self.ask(DELETE, body).await?.0 {
            OK => Ok(()),
            code => Err(format!("ZooKeeper said {code} of a delete").into()),
        }
    }

    pub(crate) async fn children(&mut self, path: &str) -> Outcome<Vec<String>> {
        let mut body = Writer::default();
        body.text(path).byte(0);
        let (code, mut answer) = self.ask(GET_CHILDREN, body).await?;
        if code != OK {
            return Err(format!("ZooKeeper said {code} of children").into());
        }
        (0..answer.int()?).map(|_| answer.text()).collect()
    }

    /// Waits until a node is gone, or something else has happened to it.
    pub(crate) async fn until_gone(&mut self, path: &str) -> Outcome {
        let mut body = Writer::default();
        body.text(path).byte(1);
        match self.ask(EXISTS, body).await?.0 {
            NO_NODE => return Ok(()), // nothing tells of it: nobody makes this node again
            OK => {}
            code => return Err(format!("ZooKeeper said {code} of a watch").into()),
        }
        while self.events == 0 {
            let mut message = self.read().await?;
            if message.int()? != OF_WATCH {
                return Err("ZooKeeper answered what was not asked".into());
            }
            self.events += 1;
        }
        self.events -= 1;
        Ok(())
    }

    async fn ask(&mut self, what: i32, body: Writer) -> Outcome<(i32, Reader)> {
        self.requests += 1;
        let mut request = Writer::default();
        request.int(self.requests).int(what);
        request.0.extend(body.0);
        self.write(request).await?;
        loop {
            let mut answer = self.read().await?;
            let (number, _change, code) = (answer.int()?, answer.long()?, answer.int()?);
            match number {
                OF_WATCH => self.events += 1,
                _ if number == self.requests => return Ok((code, answer)),
                _ => return Err("ZooKeeper answered what was not asked".into()),
            }
        }
    }

    async fn write(&mut self, message: Writer) -> Outcome {
        let mut framed = u32::try_from(message.0.len())?.to_be_bytes().to_vec();
        framed.extend(message.0);
        Ok(self.stream.write_all(&framed).await?)
    }

    async fn read(&mut self) -> Outcome<Reader> {
        let length = self.stream.read_u32().await?;
        let mut bytes = vec![0; usize::try_from(length)?];
        self.stream.read_exact(&mut bytes).await?;
        Ok(Reader { bytes, at: 0 })
    }
}

#[derive(Default)]
struct Writer(Vec<u8>);

impl Writer {
    fn byte(&mut self, value: u8) -> &mut Self {
        self.0.push(value);
        self
    }

    fn int(&mut self, value: i32) -> &mut Self {
        self.0.extend(value.to_be_bytes());
        self
    }

    fn long(&mut self, value: i64) -> &mut Self {
        self.0.extend(value.to_be_bytes());
        self
    }

    /// Or bytes. None of ours is long.
    fn text(&mut self, value: &str) -> &mut Self {
        self.int(i32::try_from(value.len()).unwrap_or(i32::MAX));
        self.0.extend(value.as_bytes());
        self
    }
}

struct Reader {
    bytes: Vec<u8>,
    at: usize,
}

impl Reader {
    fn take<const N: usize>(&mut self) -> Outcome<[u8; N]> {
        let taken = self.bytes.get(self.at..self.at + N).ok_or("ZooKeeper said too little")?;
        self.at += N;
        Ok(taken.try_into()?)
    }

    fn int(&mut self) -> Outcome<i32> {
        self.take().map(i32::from_be_bytes)
    }

    fn long(&mut self) -> Outcome<i64> {
        self.take().map(i64::from_be_bytes)
    }

    fn text(&mut self) -> Outcome<String> {
        let length = usize::try_from(self.int()?)?;
        let text = self.bytes.get(self.at..self.at + length).ok_or("ZooKeeper said too little")?;
        self.at += length;
        Ok(String::from_utf8(text.to_vec())?)
    }
}
