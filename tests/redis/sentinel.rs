//! Whom Sentinels name, and what is told when they name nobody.

use redquorum::{Admission, Credentials, Instance, Redlock};
use redquorum_testkit::{Program, Server};

use crate::support::{PATIENCE, TIMEOUT, eventually, on_each_kind, pair, secs, timed};
use crate::words::told;

const GROUP: &str = "mymaster";

/// A Sentinel that watches over a server, which has failed over so often.
fn sentinel_over(program: &Program, master: &Server, failovers: u64) -> Server {
    let conf =
        format!("sentinel monitor {GROUP} 127.0.0.1 {} 1\nsentinel config-epoch {GROUP} {failovers}\n", master.port());
    Server::builder(program).sentinel().file("sentinel.conf", &conf).start().unwrap()
}

fn through(sentinels: &[&Server]) -> Instance {
    Instance::sentinel(sentinels.iter().map(|sentinel| sentinel.address()), GROUP)
}

async fn run_id_through(instance: Instance) -> Option<String> {
    let builder = Redlock::builder().instances([instance]);
    let redlock = builder.connect().await.unwrap();
    redlock.instances()[0].run_id.clone()
}

#[test]
fn a_lock_is_acquired_on_the_master_that_a_sentinel_names() {
    on_each_kind(async |program| {
        let master = Server::builder(&program).password("of the master").start().unwrap();
        let sentinel = sentinel_over(&program, &master, 0);
        let instance = through(&[&sentinel]).credentials(Credentials::password("of the master")).database(2);
        let builder = Redlock::builder().instances([instance]).instance_timeout(TIMEOUT).admission(Admission::Off);
        let redlock = builder.clone().connect().await.unwrap();
        pair(&redlock, "a").await;
        let shown = format!("{GROUP}@127.0.0.1:{}", sentinel.port());
        assert_eq!(redlock.instances()[0].address, shown);
        assert!(!format!("{builder:?}").contains("of the master"));
    });
}

#[test]
fn sentinels_have_credentials_of_their_own() {
    on_each_kind(async |program| {
        let master = Server::start(&program).unwrap();
        let conf = format!("sentinel monitor {GROUP} 127.0.0.1 {} 1\nrequirepass sesame\n", master.port());
        let sentinel = Server::builder(&program).sentinel().file("sentinel.conf", &conf).start().unwrap();
        let with = |password: &str| {
            let asked = Instance::url(sentinel.address()).credentials(Credentials::password(password));
            Instance::sentinel([asked], GROUP)
        };
        let builder = Redlock::builder().instances([with("sesame")]).admission(Admission::Off);
        pair(&builder.instance_timeout(TIMEOUT).connect().await.unwrap(), "a").await;
        told(
            with("wrong"),
            Admission::Off,
            &["no sentinel names its master", "WRONGPASS", "check user and password", "and the name of the group"],
        )
        .await;
    });
}

/// One is hung, one has not heard of the last failover.
#[test]
fn the_newest_of_what_a_majority_names_counts_and_nobody_waits_for_a_hung_one() {
    on_each_kind(async |program| {
        let (former, new) = (Server::start(&program).unwrap(), Server::start(&program).unwrap());
        let stale = sentinel_over(&program, &former, 1);
        let others = [(); 3].map(|()| sentinel_over(&program, &new, 2));
        let hung = sentinel_over(&program, &former, 3);
        hung.hang().unwrap();
        let sentinels: Vec<&Server> = others.iter().chain([&stale, &hung]).collect();
        let (run_id, took) = timed(run_id_through(through(&sentinels))).await;
        assert_eq!(run_id, new.info("server", "run_id").unwrap());
        assert!(took < secs(2), "{took:?}");
    });
}

#[test]
fn what_each_sentinel_says_is_told_if_none_names_a_master() {
    on_each_kind(async |program| {
        let master = Server::start(&program).unwrap();
        let sentinel = sentinel_over(&program, &master, 0);
        let unknown = Instance::sentinel([sentinel.address()], "another");
        let words = ["no sentinel names its master", "No such master with that name", "and the name of the group"];
        told(unknown, Admission::On, &words).await;
        let nobody = Instance::sentinel(["redis://127.0.0.1:1", "redis://127.0.0.1:2"], GROUP);
        let words = ["127.0.0.1:1: ", "127.0.0.1:2: ", "refused", "and the name of the group"];
        let redlock = Redlock::builder().instances([nobody]).build().unwrap();
        let said = || redlock.instances()[0].last_error.clone().unwrap_or_default();
        assert!(eventually(PATIENCE, || words.iter().all(|word| said().contains(word))).await, "{}", said());
        let no_sentinel = Instance::sentinel([master.address()], GROUP);
        told(
            no_sentinel,
            Admission::On,
            &["no sentinel names its master", "unknown command", "and the name of the group"],
        )
        .await;
    });
}

#[test]
fn a_group_without_sentinels_or_a_name_is_refused_when_the_client_is_built() {
    let told = |instance| Redlock::builder().instances([instance]).build().unwrap_err().to_string();
    assert!(told(Instance::sentinel(Vec::<Instance>::new(), GROUP)).contains("needs the address of one at least"));
    assert!(told(Instance::sentinel(["redis://127.0.0.1:1"], "")).contains("the name of its group"));
    let nested = Instance::sentinel([Instance::sentinel(["redis://127.0.0.1:1"], "a")], GROUP);
    assert!(told(nested).contains("is given by its own URL"));
    assert!(told(Instance::sentinel(["htp://127.0.0.1:26379"], GROUP)).contains("its scheme is unknown"));
    assert!(told(Instance::sentinel(["127.0.0.1:26379", ""], GROUP)).contains("it is empty; write host:port"));
}
