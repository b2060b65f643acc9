//! Names over groups: where they are, and who holds them while a group is added.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use redquorum::FencingToken;
use redquorum::testing::Cluster;
use redquorum_examples::groups::{Groups, Spread, home, weight};
use redquorum_examples::ms;
use tokio::task::JoinSet;
use tokio::time::sleep;

const TWO: [&str; 2] = ["a", "b"];
const THREE: [&str; 3] = ["a", "b", "c"];

#[test]
fn a_weight_is_the_same_for_ever() {
    assert_eq!(weight("a", "order:42"), 0xd568_bd87_59bb_b1b2);
    assert_eq!(weight("a", ""), 0x193f_1020_af07_6db5);
    assert_eq!(weight("gruppe-ä", "名前"), 0x4513_fc58_275c_358e);
}

#[test]
fn groups_have_equal_shares_and_a_third_one_takes_a_third_while_no_other_name_moves() {
    let shapes: [fn(u32) -> String; 3] =
        [|n| n.to_string(), |n| format!("order:{n:010}"), |n| format!("{n}:balance-of-account")];
    for shape in shapes {
        let (mut of_two, mut of_three) = (BTreeMap::<_, u32>::new(), BTreeMap::<_, u32>::new());
        for name in (0..30_000).map(shape) {
            let (before, after) = (home(TWO, &name).unwrap(), home(THREE, &name).unwrap());
            *of_two.entry(before).or_default() += 1;
            *of_three.entry(after).or_default() += 1;
            assert!(before == after || after == "c", "{name} moves from {before} to {after}");
            assert_eq!(home(["c", "a", "b"], &name), Some(after), "the order of the list decides nothing");
        }
        let is_fair = |shares: &BTreeMap<_, u32>, count: u32| {
            shares.values().all(|share| share.abs_diff(30_000 / count) < 500) && shares.len() == count as usize
        };
        assert!(is_fair(&of_two, 2) && is_fair(&of_three, 3), "{of_two:?} {of_three:?}");
    }
}

/// Numbers that look random, and are the same for a seed.
struct Random(u64, u64);

impl Random {
    fn below(&mut self, end: u64) -> u64 {
        self.1 += 1;
        weight(&self.0.to_string(), &self.1.to_string()) % end
    }
}

/// Who holds which name, and the largest token that was seen with it.
#[derive(Default)]
struct Watch {
    held: BTreeMap<String, (u32, Option<FencingToken>)>,
    /// How often a name had two holders.
    doubles: u32,
    /// How often a later holder had no larger token.
    smaller_tokens: u32,
    sections: u32,
}

impl Watch {
    fn enter(&mut self, name: &str, token: FencingToken) {
        let (holders, largest) = self.held.entry(name.to_owned()).or_default();
        *holders += 1;
        self.doubles += u32::from(*holders > 1);
        self.smaller_tokens += u32::from(Some(token) <= *largest);
        *largest = Some(token).max(*largest);
        self.sections += 1;
    }

    fn leave(&mut self, name: &str) {
        self.held.get_mut(name).unwrap().0 -= 1;
    }
}

/// Which list of groups a process has.
#[derive(Clone, Copy)]
enum List {
    Old,
    Both,
    New,
}

struct World {
    clusters: [Cluster; 3],
    names: Vec<String>,
    watch: Mutex<Watch>,
}

impl World {
    /// Three groups, and names of which half move when the third is added.
    fn new() -> Arc<Self> {
        let moves = |name: &String| home(THREE, name) == Some("c");
        let (moving, staying): (Vec<String>, Vec<String>) =
            (0..100).map(|number| format!("order:{number}")).partition(moves);
        let names = moving.into_iter().take(3).chain(staying.into_iter().take(3)).collect();
        Arc::new(Self { clusters: [(); 3].map(|()| Cluster::new(3)), names, watch: Mutex::default() })
    }

    /// The instances of a name's home among these groups.
    fn home(&self, groups: &[&'static str], name: &str) -> &Cluster {
        let group = home(groups.iter().copied(), name);
        &self.clusters[THREE.iter().position(|&known| Some(known) == group).unwrap()]
    }

    /// A process whose clock is off by less than a second.
    async fn process(&self, list: List, random: &mut Random) -> Spread {
        let off = ms(random.below(900));
        let is_ahead = random.below(2) == 0;
        let mut three = Groups::new();
        for (name, cluster) in THREE.into_iter().zip(&self.clusters) {
            let builder = match is_ahead {
                true => cluster.builder_with_wall_clock_ahead(off),
                false => cluster.builder_with_wall_clock_behind(off),
            };
            three.insert(name.to_owned(), builder.connect().await.unwrap());
        }
        let mut two = three.clone();
        two.remove("c");
        match list {
            List::Old => Spread::over(two),
            List::Both => Spread::while_moving(two, three),
            List::New => Spread::over(three),
        }
    }

    /// Some sections of one process.
    async fn work(&self, list: List, mut random: Random) {
        let spread = self.process(list, &mut random).await;
        for _ in 0..2 + random.below(4) {
            let name = &self.names[random.below(6) as usize];
            let held = spread.acquire(name).await.unwrap();
            self.watch.lock().unwrap().enter(name, held.fencing_token());
            // Longer than the clocks of two processes differ.
            sleep(ms(2_100 + random.below(1_000))).await;
            assert!(held.is_valid());
            self.watch.lock().unwrap().leave(name);
            held.release().await.unwrap();
            sleep(ms(random.below(500))).await;
        }
    }

    /// Six processes are replaced, one after the other, each after some work; none of the former kind is left then.
    async fn replace(self: &Arc<Self>, former: List, next: List, seed: u64) {
        let mut processes = JoinSet::new();
        for process in 0..6 {
            let world = Arc::clone(self);
            processes.spawn(async move {
                world.work(former, Random(seed, process * 1_000)).await;
                world.work(next, Random(seed, process * 1_000 + 500)).await;
            });
        }
        processes.join_all().await;
    }
}

#[tokio::test(start_paused = true)]
async fn while_a_group_is_added_in_two_steps_no_name_has_two_holders_and_tokens_grow() {
    for seed in 0..12 {
        let world = World::new();
        world.replace(List::Old, List::Both, 2 * seed).await;
        world.replace(List::Both, List::New, 2 * seed + 1).await;
        let watch = world.watch.lock().unwrap();
        assert_eq!((watch.doubles, watch.smaller_tokens), (0, 0), "seed {seed}");
        assert!(watch.sections >= 48, "{}", watch.sections);
    }
}

#[tokio::test(start_paused = true)]
async fn without_the_step_between_a_name_has_two_holders() {
    let mut doubles = 0;
    for seed in 0..5 {
        let world = World::new();
        world.replace(List::Old, List::New, seed).await;
        doubles += world.watch.lock().unwrap().doubles;
    }
    assert!(doubles > 0);
}

#[tokio::test(start_paused = true)]
async fn a_name_that_is_locked_in_two_groups_is_lost_with_either() {
    for loses_the_old in [true, false] {
        let world = World::new();
        let name = &world.names[0];
        let held = world.process(List::Both, &mut Random(0, 0)).await.acquire(name).await.unwrap();
        let cluster = if loses_the_old { world.home(&TWO, name) } else { world.home(&THREE, name) };
        assert!(cluster.instances().all(|instance| instance.remove(name)));
        held.lost().await;
        assert!(!held.is_valid());
    }
}

#[tokio::test(start_paused = true)]
async fn the_token_of_a_name_that_is_locked_in_two_groups_is_the_larger_one() {
    for is_ahead_in_the_old in [true, false] {
        let world = World::new();
        let name = &world.names[0];
        let (old, new) = (world.home(&TWO, name), world.home(&THREE, name));
        // A holder whose clock was ahead.
        let before = if is_ahead_in_the_old { old } else { new };
        let before = before.builder_with_wall_clock_ahead(ms(990)).connect().await.unwrap();
        before.lock(name.as_str()).acquire().await.unwrap().release().await.unwrap();

        let held = world.process(List::Both, &mut Random(0, 0)).await.acquire(name).await.unwrap();
        sleep(ms(100)).await; // until all instances have it
        let [old, new] = [old, new].map(|cluster| cluster.instance(0).fencing_token(name).unwrap());
        assert_eq!(old > new, is_ahead_in_the_old);
        assert_eq!(held.fencing_token(), old.max(new));
    }
}
