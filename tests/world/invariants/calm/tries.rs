//! Of all clients that try a free lock at the same moment one gets it, also beside a minority that is hung (P31).

use futures_util::future::join_all;
use redquorum::{AcquireError, Redlock};
use tokio::time::sleep;

use crate::world::World;

const ALL_UP: [&str; 4] = ["tried 0", "tried 1", "tried 2", "tried 3"];
const SOME_HUNG: [&str; 4] = ["tried 4", "tried 5", "tried 6", "tried 7"];

impl World {
    pub(super) async fn check_tries(&self, clients: &[(usize, Redlock)]) {
        for name in ALL_UP {
            self.check_one_gets_it(clients, name).await;
        }
        let minority = self.servers.len() - self.scenario.quorum;
        self.servers.iter().take(minority).for_each(|server| server.hang());
        for name in SOME_HUNG {
            self.check_one_gets_it(clients, name).await;
        }
        self.servers.iter().take(minority).for_each(|server| server.go_on());
        sleep(super::LONG / 5).await; // what was in doubt is settled
    }

    async fn check_one_gets_it(&self, clients: &[(usize, Redlock)], name: &'static str) {
        let tried = join_all(clients.iter().map(|(_, client)| client.lock(name).try_acquire())).await;
        let won = tried.iter().filter(|tried| tried.is_ok()).count();
        let told = tried.iter().filter_map(|tried| tried.as_ref().err()).all(AcquireError::is_contended);
        if won != 1 || !told {
            self.violate("of several that try a free lock one gets it", format!("{won} for {name}: {tried:?}"));
        }
    }
}
