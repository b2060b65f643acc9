//! How each act is carried out.

use std::time::Duration;

use futures_util::future::try_join_all;

use super::{INSTANCE, REPLICA, Stage, client_name, host, instance_name};
use crate::Outcome;
use crate::client::strike::{PROCESS_FILE, STRIKE_FILE, Strike};
use crate::docker::wait_until;
use crate::event::EventKind;
use crate::proxy::DELAY_FILE;
use crate::scenario::{Action, CutKind, Number};

impl Stage<'_> {
    pub(super) async fn act(&mut self, action: &Action) -> Outcome {
        if *action != Action::Heal {
            self.note(EventKind::Step { text: action.text() });
        }
        let engine = self.engine;
        match *action {
            Action::Kill(who) => {
                self.state(who, "down");
                each(who, |name| async move { engine.kill(&name).await }).await
            }
            Action::Start(who) => {
                each(who, |name| async move { engine.start(&name).await }).await?;
                self.state(who, "up");
                Ok(())
            }
            Action::Restart(who) => {
                self.state(who, "down");
                each(who, |name| async move {
                    engine.kill(&name).await?;
                    engine.start(&name).await
                })
                .await?;
                self.state(who, "up");
                Ok(())
            }
            Action::Pause(who) => {
                each(who, |name| async move { engine.pause(&name).await }).await?;
                self.state(who, "hung");
                Ok(())
            }
            Action::Resume(who) => {
                self.state(who, "up");
                each(who, |name| async move { engine.unpause(&name).await }).await
            }
            Action::Flush(who) => self.tell_each(who, "flushall").await,
            Action::Clock(who, by) => self.shell_each(who, &format!("echo {by} > /dev/shm/clock")).await,
            Action::Fill(who) => {
                self.state(who, "full");
                self.tell_each(who, "config set maxmemory 1").await
            }
            Action::Drain(who) => {
                self.state(who, "up");
                self.tell_each(who, "config set maxmemory 0").await
            }
            _ => self.act_on_links_and_clients(action).await,
        }
    }

    async fn act_on_links_and_clients(&mut self, action: &Action) -> Outcome {
        let engine = self.engine;
        match *action {
            Action::Cut(clients, who, way) => {
                self.state(who, "cut");
                self.cut(clients, who, way).await
            }
            Action::Mend(clients) => {
                let mend = "iptables -F";
                try_join_all(clients.iter().map(|client| self.in_client(*client, mend.to_owned()))).await?;
                self.state(&[1, 2, 3, 4, 5], "mended");
                Ok(())
            }
            Action::Slow(who, millis) => {
                self.state(who, if millis == 0 { "up" } else { "slow" });
                let command = format!("echo {millis} > {DELAY_FILE}");
                let command = command.as_str();
                let slow = |number: &Number| {
                    let proxy = format!("p{number}");
                    async move { engine.shell(&proxy, command).await }
                };
                try_join_all_silently(who.iter().map(slow)).await
            }
            Action::Stale => self.shell("replica", format!("iptables -A INPUT -s {} -j DROP", self.master())).await,
            Action::Promote(clients) => self.promote(clients).await,
            Action::PauseClient(client) => {
                engine.pause(&client_name(client)).await?;
                self.client(client, "hung");
                Ok(())
            }
            Action::ResumeClient(client) => {
                self.client(client, "up");
                engine.unpause(&client_name(client)).await
            }
            Action::KillClient(client) => {
                self.client(client, "down");
                engine.kill(&client_name(client)).await
            }
            Action::RestartClient(client) => {
                self.client(client, "down");
                engine.kill(&client_name(client)).await?;
                engine.start(&client_name(client)).await
            }
            Action::Strike(client, blow, moment) => {
                let strike = serde_json::to_string(&Strike { blow, moment })?;
                self.in_client(client, format!("echo '{strike}' > {STRIKE_FILE}")).await?;
                // The next step comes after it. In a container that ended there is nobody to ask.
                let taken = || async { self.in_client(client, format!("! [ -e {STRIKE_FILE} ]")).await.is_ok() };
                let ended = || async { !engine.is_running(&client_name(client)).await };
                wait_until(Duration::from_secs(5), || async { taken().await || ended().await }).await;
                Ok(())
            }
            Action::ContinueClient(client) => {
                self.client(client, "up");
                self.in_client(client, format!("busybox kill -CONT $(cat {PROCESS_FILE})")).await.map(drop)
            }
            _ => Ok(()), // the others are above
        }
    }

    /// The links are cut in the clients' own packet filters.
    async fn cut(&self, clients: &[Number], who: &[Number], way: CutKind) -> Outcome {
        let rules: Vec<String> = who.iter().flat_map(|number| self.rules(*number, way)).collect();
        let command = rules.join(" && ");
        try_join_all_silently(clients.iter().map(|client| self.in_client(*client, command.clone()))).await
    }

    fn rules(&self, number: Number, way: CutKind) -> Vec<String> {
        let base = if self.scenario.setup == crate::scenario::Setup::Proxies { super::PROXY } else { INSTANCE };
        let address = self.engine.address(host(base, number));
        let (to, from) = (format!("iptables -A OUTPUT -d {address}"), format!("iptables -A INPUT -s {address}"));
        let some = "-m statistic --mode random --probability 0.2 -j DROP";
        match way {
            CutKind::Lost => vec![format!("{to} -j DROP"), format!("{from} -j DROP")],
            CutKind::Refused => vec![format!("{to} -p tcp -j REJECT --reject-with tcp-reset")],
            CutKind::Requests => vec![format!("{to} -j DROP")],
            CutKind::Replies => vec![format!("{from} -j DROP")],
            CutKind::Lossy => vec![format!("{to} {some}"), format!("{from} {some}")],
        }
    }

    /// Makes the replica a master and lets the name of instance 3 lead to it. Where the old master lives on, its
    /// connections to these clients end, as after a change of a name or of a virtual address.
    async fn promote(&self, clients: &[Number]) -> Outcome {
        self.shell("replica", "redis-cli replicaof no one".to_owned()).await?;
        let (old, new) = (self.master(), self.engine.address(REPLICA));
        let command = format!(
            "sed 's/^{old}/{new}/' /etc/hosts > /tmp/hosts && cat /tmp/hosts > /etc/hosts && \
             iptables -A OUTPUT -d {old} -p tcp -j REJECT --reject-with tcp-reset"
        );
        try_join_all_silently(clients.iter().map(|client| self.in_client(*client, command.clone()))).await
    }

    fn master(&self) -> String {
        self.engine.address(host(INSTANCE, 3))
    }

    async fn in_client(&self, client: Number, command: String) -> Outcome<String> {
        self.engine.shell(&client_name(client), &command).await
    }

    async fn shell(&self, name: &str, command: String) -> Outcome {
        self.engine.shell(name, &command).await.map(drop)
    }

    /// Gives the servers a command. One that was started just before may take a while until it hears.
    async fn tell_each(&self, who: &[Number], command: &str) -> Outcome {
        let is_up = "i=0; until redis-cli ping > /dev/null 2>&1 || [ $i -ge 200 ]; do i=$((i + 1)); sleep 0.1; done";
        self.shell_each(who, &format!("{is_up}; redis-cli {command}")).await
    }

    async fn shell_each(&self, who: &[Number], command: &str) -> Outcome {
        let engine = self.engine;
        each(who, |name| async move { engine.shell(&name, command).await.map(drop) }).await
    }

    pub(super) fn state(&mut self, who: &[Number], state: &str) {
        for instance in who {
            self.note(EventKind::Instance { instance: instance - 1, state: state.to_owned() });
        }
    }

    fn client(&mut self, client: Number, state: &str) {
        self.note(EventKind::Client { client: client_name(client), state: state.to_owned() });
    }
}

/// Does the same to several instances at once.
async fn each<F: Future<Output = Outcome>>(who: &[Number], act: impl Fn(String) -> F) -> Outcome {
    try_join_all_silently(who.iter().map(|number| act(instance_name(*number)))).await
}

async fn try_join_all_silently<T, F: Future<Output = Outcome<T>>>(all: impl Iterator<Item = F>) -> Outcome {
    try_join_all(all).await.map(drop)
}
