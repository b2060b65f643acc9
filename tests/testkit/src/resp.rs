//! A small blocking RESP2 client: enough to look into a server from a test.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::time::Duration;

use crate::Error;

/// What a server answered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reply {
    /// A null bulk string or a null array.
    Nil,
    /// An integer.
    Int(i64),
    /// A simple string such as `OK`.
    Status(String),
    /// A bulk string.
    Bytes(Vec<u8>),
    /// An array.
    Array(Vec<Reply>),
    /// An error inside an array; a whole answer that is an error becomes [`Error::Refused`].
    Error(String),
}

impl Reply {
    /// The integer, also one that came as text.
    #[must_use]
    pub fn int(&self) -> Option<i64> {
        match self {
            Self::Int(value) => Some(*value),
            _ => self.text()?.parse().ok(),
        }
    }

    /// The text of a status or a bulk string, with U+FFFD for what is no UTF-8.
    #[must_use]
    pub fn text(&self) -> Option<String> {
        match self {
            Self::Status(text) => Some(text.clone()),
            Self::Bytes(bytes) => Some(String::from_utf8_lossy(bytes).into_owned()),
            _ => None,
        }
    }

    /// The elements of an array; none for anything else.
    #[must_use]
    pub fn items(&self) -> &[Reply] {
        match self {
            Self::Array(items) => items,
            _ => &[],
        }
    }
}

/// A connection to a server on loopback.
#[derive(Debug)]
pub struct Client {
    stream: BufReader<TcpStream>,
}

impl Client {
    /// Connects; connecting, and every read and write later, may take `timeout`.
    ///
    /// # Errors
    /// When nobody listens there, or not in time.
    pub fn connect(port: u16, timeout: Duration) -> Result<Self, Error> {
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
        let open = || {
            let stream = TcpStream::connect_timeout(&address, timeout)?;
            stream.set_nodelay(true)?;
            stream.set_read_timeout(Some(timeout))?;
            stream.set_write_timeout(Some(timeout))?;
            Ok(stream)
        };
        let stream = open().map_err(Error::io(format!("connect to {address}")))?;
        Ok(Self { stream: BufReader::new(stream) })
    }

    /// Sends one command and waits for its answer.
    ///
    /// # Errors
    /// When the server refuses, does not answer in time or has gone. After a deadline or garbled
    /// bytes the connection is of no more use.
    pub fn command<A: AsRef<[u8]>>(&mut self, args: &[A]) -> Result<Reply, Error> {
        let mut request = format!("*{}\r\n", args.len()).into_bytes();
        for arg in args.iter().map(AsRef::as_ref) {
            request.extend_from_slice(format!("${}\r\n", arg.len()).as_bytes());
            request.extend_from_slice(arg);
            request.extend_from_slice(b"\r\n");
        }
        self.stream.get_mut().write_all(&request).map_err(Error::io("send a command"))?;
        match self.read()? {
            Reply::Error(text) => Err(Error::Refused(text)),
            reply => Ok(reply),
        }
    }

    fn read(&mut self) -> Result<Reply, Error> {
        let mut line = String::new();
        let read = self.stream.read_line(&mut line).map_err(Error::io("read the answer"))?;
        if read == 0 {
            return Err(Error::io("read the answer")(std::io::ErrorKind::UnexpectedEof.into()));
        }
        let line = line.trim_end_matches(['\r', '\n']);
        let garbled = || Error::Garbled(line.to_owned());
        let rest = line.get(1..).ok_or_else(garbled)?;
        let number = || rest.parse::<i64>().map_err(|_| garbled());
        match &line[..1] {
            "+" => Ok(Reply::Status(rest.to_owned())),
            "-" => Ok(Reply::Error(rest.to_owned())),
            ":" => number().map(Reply::Int),
            "$" => match usize::try_from(number()?) {
                Ok(length) => self.bulk(length),
                Err(_) => Ok(Reply::Nil), // -1
            },
            "*" => match usize::try_from(number()?) {
                Ok(length) => (0..length).map(|_| self.read()).collect::<Result<_, _>>().map(Reply::Array),
                Err(_) => Ok(Reply::Nil),
            },
            _ => Err(garbled()),
        }
    }

    fn bulk(&mut self, length: usize) -> Result<Reply, Error> {
        let mut bytes = vec![0; length + 2];
        self.stream.read_exact(&mut bytes).map_err(Error::io("read the answer"))?;
        bytes.truncate(length); // without \r\n
        Ok(Reply::Bytes(bytes))
    }
}
