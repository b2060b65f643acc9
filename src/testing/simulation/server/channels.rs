//! SUBSCRIBE and PUBLISH. Messages are pushed to the connections that are subscribed when they are sent, and not stored.

use super::State;
use super::resp::Answer;
use super::session::Session;

impl State {
    /// PUBLISH: to how many connections it was pushed.
    pub(super) fn publish(&mut self, channel: &[u8], message: &[u8]) -> u64 {
        let parts = || vec![Answer::bytes("message"), Answer::bytes(channel), Answer::bytes(message)];
        let mut reached = 0;
        for session in self.sessions.values_mut().filter(|session| session.channels.contains(channel)) {
            session.push(parts());
            reached += 1;
        }
        reached
    }
}

/// SUBSCRIBE and UNSUBSCRIBE: for each channel a push is the answer. `channels` is empty for all of them.
pub(super) fn change(session: &mut Session, subscribes: bool, channels: &[&[u8]]) -> Answer {
    let subscribed = || session.channels.iter().cloned().collect();
    let named: Vec<Vec<u8>> =
        if channels.is_empty() { subscribed() } else { channels.iter().map(|channel| channel.to_vec()).collect() };
    let mut confirm = |channel: Vec<u8>| {
        let name = Answer::bytes(&channel);
        let kind = if subscribes {
            session.channels.insert(channel);
            "subscribe"
        } else {
            session.channels.remove(&channel);
            "unsubscribe"
        };
        Answer::Push(vec![Answer::bytes(kind), name, Answer::number(session.channels.len() as u64)])
    };
    let mut confirmed: Vec<Answer> = named.into_iter().map(&mut confirm).collect();
    if confirmed.is_empty() {
        confirmed.push(Answer::Push(vec![Answer::bytes("unsubscribe"), Answer::Nothing, Answer::Number(0)]));
    }
    Answer::Several(confirmed)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream, duplex};

    use crate::testing::simulation::{MachineClock, Server};

    #[expect(clippy::disallowed_methods, reason = "the runtime's clock is the true time here")]
    fn server() -> Server {
        Server::new(0, Arc::new(MachineClock::new(tokio::time::Instant::now(), 0, 0)))
    }

    fn connect(server: &Server) -> DuplexStream {
        let (ours, theirs) = duplex(4096);
        let server = server.clone();
        tokio::spawn(async move { server.serve(theirs).await });
        ours
    }

    /// Sends words, and reads what comes back, which must be this.
    async fn ask(stream: &mut DuplexStream, words: &str, expected: &str) {
        let words: Vec<&str> = words.split(' ').filter(|word| !word.is_empty()).collect();
        let parts = words.iter().map(|word| format!("${}\r\n{word}\r\n", word.len()));
        let command = format!("*{}\r\n{}", words.len(), parts.collect::<String>());
        stream.write_all(command.as_bytes()).await.unwrap();
        hear(stream, expected).await;
    }

    async fn hear(stream: &mut DuplexStream, expected: &str) {
        let expected = expected.replace(' ', "\r\n");
        let mut came = vec![0; expected.len()];
        stream.read_exact(&mut came).await.unwrap();
        assert_eq!(String::from_utf8(came).unwrap(), expected);
    }

    #[tokio::test(start_paused = true)]
    async fn a_message_reaches_those_who_are_subscribed_to_its_channel_when_it_is_sent() {
        let server = server();
        let (mut hears, mut says) = (connect(&server), connect(&server));
        ask(&mut says, "PUBLISH a 1", ":0 ").await;
        ask(&mut hears, "HELLO 3", "%7 ").await;
        let mut rest = [0; 1024];
        let size = hears.read(&mut rest).await.unwrap();
        assert!(rest[..size].ends_with(b"modules\r\n*0\r\n"));
        ask(&mut hears, "SUBSCRIBE a b", ">3 $9 subscribe $1 a :1 >3 $9 subscribe $1 b :2 ").await;
        ask(&mut says, "PUBLISH a 2", ":1 ").await;
        hear(&mut hears, ">3 $7 message $1 a $1 2 ").await;
        ask(&mut hears, "UNSUBSCRIBE a", ">3 $11 unsubscribe $1 a :1 ").await;
        ask(&mut says, "PUBLISH a 3", ":0 ").await;
        ask(&mut hears, "UNSUBSCRIBE", ">3 $11 unsubscribe $1 b :0 ").await;
        ask(&mut hears, "UNSUBSCRIBE", ">3 $11 unsubscribe _ :0 ").await;
        drop(hears);
        tokio::task::yield_now().await;
        assert_eq!(server.odd_commands(), [""; 0]);
    }
}
