//! What `{:?}` shows: one line for people, and nothing secret.

use redquorum::{Builder, Holder, Redlock, ResourceName};

use crate::support::{cluster_of, held, secs};

#[tokio::test(start_paused = true)]
async fn a_client_and_a_lock_show_how_they_are_set() {
    let (cluster, redlock) = cluster_of(3).await;
    let orders = redlock.namespace("orders:");
    assert_eq!(
        format!("{orders:?}"),
        r#"Redlock { instances: ["memory:0", "memory:1", "memory:2"], quorum: 2, namespace: "orders:", ttl: 10s, .. }"#
    );
    let lock = orders.lock("42");
    assert_eq!(format!("{lock:?}"), r#"Lock { namespace: "orders:", resource: "42", ttl: 10s, holder: None, .. }"#);
    let lock = redlock.lock_all(["a", "b"]).ttl(secs(2)).holder(Holder::from("request-8f3c"));
    assert_eq!(format!("{lock:?}"), r#"LockAll { resources: ["a", "b"], ttl: 2s, .. }"#);
    let _guard = held(&redlock, "42").await;
    assert_eq!(format!("{:?}", cluster.instance(0)), r#"TestInstance { address: "memory:0", keys: ["42"], .. }"#);
}

#[tokio::test(start_paused = true)]
async fn a_guard_and_its_view_show_what_is_held_and_for_how_long() {
    let (_cluster, redlock) = cluster_of(3).await;
    let guard = redlock.lock("a").try_acquire().await.unwrap();
    let token = guard.fencing_token();
    let lease = format!(r#"{{ resource: "a", fencing_token: {token}, remaining: 9.898s, .. }}"#);
    assert_eq!(format!("{guard:?}"), format!("Guard {lease}"));
    assert_eq!(format!("{:?}", guard.lease()), format!("LeaseView {lease}"));
}

#[test]
fn a_builder_shows_addresses_without_passwords() {
    let shown = |urls: &[&str]| format!("{:?}", Redlock::builder().namespace("a:").instances(urls.to_vec()));
    assert_eq!(
        shown(&["redis://me:secret@10.0.0.1", "redis://:secret@h:1/2", "redis://:secret@h:port"]),
        r#"Builder { instances: [10.0.0.1:6379, h:1, not an address], namespace: "a:", ttl: 10s, max_ttl: 10s, .. }"#
    );
    assert_eq!(
        format!("{:?}", Builder::default()),
        r#"Builder { instances: [], namespace: "", ttl: 10s, max_ttl: 10s, .. }"#
    );
}

#[test]
fn names_are_shown_as_text() {
    assert_eq!(format!("{:?}", ["orders:42", "b"].map(ResourceName::from)), r#"["orders:42", "b"]"#);
}
