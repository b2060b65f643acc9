//! What operators want to know beyond one lock.

use redquorum::operator::OtherList;
use redquorum::{Redlock, ReplyKind};
use redquorum_testkit::{Kind, Proxy, Reply, Server};
use tokio::time::{sleep, timeout};

use crate::support::{PATIENCE, TIMEOUT, builder_of, client_of, eventually, fleet_of, held, ms, on_each_kind, ready};

#[test]
fn locks_are_listed_below_their_namespace_and_other_data_is_not() {
    on_each_kind(async |program| {
        let fleet = fleet_of(&program, 3);
        let (ours, other) = (client_of(&fleet).await.namespace("n*:"), client_of(&fleet).await);
        let (first, second) = (held(&ours, "a").await, held(&other, "b").await);
        for words in [&["SET", "n*:data", "x"][..], &["RPUSH", "n*:list", "x"], &["SET", "n2:c", "x", "PX", "9999"]] {
            fleet.iter().for_each(|server| drop(server.command(words).unwrap()));
        }
        let names = async |client: &redquorum::Redlock, pattern| {
            let listing = client.list(pattern, 10_000).await;
            assert!(listing.is_complete && listing.unknown.is_empty(), "{listing:?}");
            listing.locks.into_iter().map(|lock| lock.resource).collect::<Vec<_>>()
        };
        assert_eq!(names(&other, "*").await, ["b", "n*:a"]);
        assert_eq!(names(&ours, "*").await, ["n*:a"]);
        assert_eq!(names(&other, "[bc]").await, ["b"]);
        let listing = other.list("b", 10_000).await;
        assert_eq!(listing.locks[0].largest_token, Some(second.fencing_token()));
        fleet[1].kill().unwrap();
        assert_eq!(other.list("*", 10_000).await.unknown.len(), 1);
        drop((first, second));
    });
}

#[test]
fn locks_are_listed_page_by_page_in_the_order_of_their_names() {
    on_each_kind(async |program| {
        let fleet = fleet_of(&program, 3);
        let client = client_of(&fleet).await;
        let mut guards = Vec::new();
        // Also names that are shown shortened, alike, and that are no text.
        let long = "long".repeat(30);
        let names =
            [b"b".to_vec(), b"a%41".to_vec(), format!("{long}2").into(), format!("{long}1").into(), b"\xfe".to_vec()];
        for name in &names {
            guards.push(client.lock(name.as_slice()).acquire().await.unwrap());
        }
        let other = ["SET", "bb", "x", "PX", "9999"]; // between two of them, and no lock
        fleet.iter().for_each(|server| drop(server.command(&other).unwrap()));
        let (mut next, mut tokens) = (Some(String::new()), Vec::new());
        while let Some(after) = next {
            let page = client.list_page("*", 10_000, &after, 1).await;
            assert_eq!(page.locks.len(), 1);
            tokens.extend(page.locks.iter().map(|lock| lock.largest_token.unwrap()));
            next = page.next;
        }
        let expected = [1, 0, 3, 2, 4].map(|number: usize| guards[number].fencing_token());
        assert_eq!(tokens, expected);
        assert_eq!(client.list_page("*", 10_000, "", 5).await.next, None);
        drop(guards);
    });
}

#[test]
fn a_listing_that_is_given_up_asks_for_nothing_more() {
    on_each_kind(async |program| {
        let fleet = fleet_of(&program, 1);
        let proxy = Proxy::start(&fleet[0]).unwrap();
        let client = ready(builder_of(&fleet).instances([proxy.address()])).await;
        let some = "for i = 1, 10000 do redis.call('SET', 'data:' .. ARGV[1] .. i, i) end";
        for part in 0..40 {
            fleet[0].command(&["EVAL", some, "0", &format!("{part}:")]).unwrap();
        }
        proxy.delay(ms(5), ms(5)).unwrap(); // so that all of it takes far longer than a machine stands still
        assert!(timeout(ms(300), client.list("*", 1_000_000)).await.is_err());
        sleep(ms(300)).await; // what was on its way
        let asked = fleet[0].calls("scan").unwrap();
        sleep(ms(100)).await;
        assert_eq!(fleet[0].calls("scan").unwrap(), asked);
        assert!((1..700).contains(&asked), "{asked}");
    });
}

#[test]
fn an_instance_says_what_it_is_and_how_it_does() {
    on_each_kind(async |program| {
        let fleet = fleet_of(&program, 3);
        let set = |name, value| drop(fleet[1].command(&["CONFIG", "SET", name, value]).unwrap());
        set("maxmemory", "100mb");
        set("maxmemory-policy", "volatile-lru");
        set("appendonly", "yes");
        set("save", "3600 1");
        let client = client_of(&fleet).await;
        fleet[2].kill().unwrap();
        let examined = client.examine().await;
        let (plain, other) = (examined[0].answer.as_ref().unwrap(), examined[1].answer.as_ref().unwrap());
        let kind = if program.kind() == Kind::Redis { "redis" } else { "valkey" };
        assert_eq!(plain.version, format!("{kind} {}", program.version()));
        assert!(plain.is_master && plain.replicas == 0 && !plain.is_in_cluster_mode && plain.memory_limit.is_none());
        assert_eq!((plain.appends_to_file, plain.saves_snapshots), (false, Some(false)));
        assert!(plain.pushes_changes && plain.wakes_waiters && plain.memory_used > 0);
        assert!(plain.refuses_writes.is_none() && other.refuses_writes.is_none(), "{plain:?} {other:?}");
        assert!(plain.clock_offset.distance() < ms(100) + plain.round_trip, "the same machine: {plain:?}");
        assert_eq!((other.appends_to_file, other.saves_snapshots), (true, Some(true)));
        assert_eq!((other.memory_limit, other.eviction_policy.as_str()), (Some(100 << 20), "volatile-lru"));
        assert!(
            matches!(&examined[2].answer, Err(cause) if [ReplyKind::NotConnected, ReplyKind::Disconnected].contains(&cause.kind())),
            "{examined:?}"
        );
    });
}

/// A10: as with a variable that was cut short; beside it a list that is being changed (P30).
#[test]
fn clients_whose_list_was_cut_are_seen_and_those_whose_list_matches_are_not() {
    on_each_kind(async |program| {
        let fleet = fleet_of(&program, 5);
        let addresses = fleet.addresses();
        let of_first = async |count: usize| ready(builder_of(&fleet).instances(addresses[..count].to_vec())).await;
        // By instance: how many clients, and their quorum.
        let seen = async |client: &Redlock| {
            let asked = client.examine().await.into_iter().map(|asked| asked.answer.unwrap().other_lists.unwrap());
            let short = |list: &OtherList| (list.clients, list.votes, list.instances);
            asked.map(|lists| lists.iter().map(short).collect::<Vec<_>>()).collect::<Vec<_>>()
        };
        let (all, again, four) = (of_first(5).await, of_first(5).await, of_first(4).await);
        assert_eq!(seen(&all).await, [const { Vec::new() }; 5]);
        let cut = of_first(3).await;
        assert_eq!(seen(&cut).await, [[(2, 3, 5)]; 3]);
        assert_eq!(seen(&again).await, [[(1, 2, 3)].as_slice(), &[(1, 2, 3)], &[(1, 2, 3)], &[], &[]]);
        assert_eq!(
            seen(&four).await,
            [const { Vec::new() }; 4],
            "a quorum of three and one of two of three of the four share one"
        );
        drop(cut);
        let is_gone = || fleet.iter().all(|server| numsub(server, "redquorum:wake:2-of-3") == 0);
        assert!(eventually(PATIENCE, is_gone).await, "a list is in use while a client with it is connected");
    });
}

fn numsub(server: &Server, channel: &str) -> i64 {
    match server.command(&["PUBSUB", "NUMSUB", channel]).unwrap() {
        Reply::Array(answer) => answer[1].int().unwrap(),
        other => panic!("{other:?}"),
    }
}

#[test]
fn who_may_not_ask_is_told_so() {
    on_each_kind(async |program| {
        let server = Server::start(&program).unwrap();
        let rule = ["ACL", "SETUSER", "few", "on", ">x", "~*", "&*", "+@all", "-scan", "-config"];
        server.command(&rule).unwrap();
        let url = server.address().replace("redis://", "redis://few:x@");
        let builder = redquorum::Redlock::builder().instances([url]).admission(redquorum::Admission::Off);
        let client = builder.instance_timeout(TIMEOUT).connect().await.unwrap();
        let listing = client.list("*", 1000).await;
        assert!(listing.unknown[0].to_string().contains("permission denied"), "{listing:?}");
        let details = client.examine().await.remove(0).answer.unwrap();
        assert_eq!((details.saves_snapshots, details.is_master), (None, true));
        server.command(&["SCRIPT", "FLUSH"]).unwrap();
        let details = client.examine().await.remove(0).answer.unwrap();
        assert!(details.refuses_writes.is_none(), "{:?}", details.refuses_writes);
        for denied in ["zadd", "pexpire", "del", "evalsha"] {
            server.command(&["ACL", "SETUSER", "few", &format!("-{denied}")]).unwrap();
            let details = client.examine().await.remove(0).answer.unwrap();
            let cause = details.refuses_writes.unwrap();
            assert!(cause.kind() == ReplyKind::Denied && cause.to_string().contains(denied), "{cause}");
            server.command(&["ACL", "SETUSER", "few", &format!("+{denied}")]).unwrap();
        }
    });
}
