//! As whom a client logs in, and what else each of its instances may be told.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use redquorum::{Admission, Builder, Config, Credentials, Instance, Redlock};
use redquorum_testkit::{Program, Server};

use crate::support::{PATIENCE, TIMEOUT, eventually, on_each_kind, pair};
use crate::words::told;

/// A client of one server, as its instance is set.
fn of(instance: Instance) -> Builder {
    Redlock::builder().instances([instance]).instance_timeout(TIMEOUT).admission(Admission::Off)
}

/// A server with a user `locks` of this password.
fn with_user(program: &Program, password: &str) -> Server {
    let server = Server::start(program).unwrap();
    set_password(&server, password);
    server
}

fn set_password(server: &Server, password: &str) {
    let rules = ["ACL", "SETUSER", "locks", "on", "resetpass", &format!(">{password}"), "~*", "&*", "+@all"];
    server.command(&rules).unwrap();
}

#[test]
fn credentials_beside_the_address_take_the_place_of_those_in_it() {
    on_each_kind(async |program| {
        let server = Server::builder(&program).password("right/#@").start().unwrap();
        let address = server.address().replacen("redis://", "redis://nobody:wrong@", 1);
        let instance = Instance::url(&address).credentials(Credentials::password("right/#@"));
        pair(&of(instance).connect().await.unwrap(), "a").await;
        let server = with_user(&program, "secret");
        let instance = Instance::url(server.address()).credentials(Credentials::new("locks", "secret"));
        pair(&of(instance).connect().await.unwrap(), "a").await;
        let wrong = Instance::url(server.address()).credentials(Credentials::new("locks", "secretive"));
        told(wrong, Admission::On, &["refuses the password (WRONGPASS)", "check user and password"]).await;
    });
}

#[test]
fn a_provider_is_asked_at_each_connect_so_that_passwords_may_change() {
    on_each_kind(async |program| {
        let server = with_user(&program, "first secret");
        let current = Arc::new(Mutex::new("first secret".to_owned()));
        let asked = Arc::new(AtomicUsize::new(0));
        let provide = {
            let (current, asked) = (Arc::clone(&current), Arc::clone(&asked));
            move || {
                asked.fetch_add(1, Ordering::Relaxed);
                let password = current.lock().unwrap_or_else(PoisonError::into_inner).clone();
                async move { Ok(Credentials::new("locks", password)) }
            }
        };
        let builder = of(Instance::url(server.address()).credentials_from(provide));
        let redlock = builder.clone().connect().await.unwrap();
        pair(&redlock, "a").await;
        assert_eq!(asked.load(Ordering::Relaxed), 1);

        set_password(&server, "second secret");
        pair(&redlock, "a").await; // the connection stands
        server.command(&["CLIENT", "KILL", "USER", "locks"]).unwrap();
        let refused = || redlock.instances()[0].last_error.as_ref().is_some_and(|error| error.contains("WRONGPASS"));
        assert!(eventually(PATIENCE, refused).await, "{:?}", redlock.instances());
        let error = redlock.lock("a").try_acquire().await.unwrap_err();
        *current.lock().unwrap() = "second secret".to_owned();
        pair(&redlock, "a").await;
        assert!(asked.load(Ordering::Relaxed) >= 3);
        for text in
            [format!("{builder:?}"), format!("{redlock:?} {:?}", redlock.instances()), format!("{error} {error:?}")]
        {
            assert!(!text.contains("secret"), "{text}");
        }
    });
}

#[test]
fn what_a_provider_says_when_it_fails_is_told_as_such() {
    on_each_kind(async |program| {
        let server = with_user(&program, "secret");
        let failing = || async { Err("the vault is sealed".into()) };
        let instance = Instance::url(server.address()).credentials_from(failing);
        for admission in [Admission::On, Admission::Off] {
            let words = ["the provider of its credentials failed (the vault is sealed)"];
            told(instance.clone(), admission, &words).await;
        }
    });
}

#[test]
fn a_connection_has_the_name_and_the_database_that_are_asked_for() {
    on_each_kind(async |program| {
        let server = Server::start(&program).unwrap();
        let address = format!("{}/5", server.address());
        let redlock = of(Instance::url(address).database(3).client_name("billing-7")).connect().await.unwrap();
        let guard = redlock.lock("a").try_acquire().await.unwrap();
        let clients = server.command(&["CLIENT", "LIST"]).unwrap().text().unwrap();
        assert!(clients.lines().any(|line| line.contains(" name=billing-7 ") && line.contains(" db=3 ")), "{clients}");
        assert!(server.keys().unwrap().is_empty(), "that is database 0");
        guard.release().await.unwrap();
    });
}

#[test]
fn without_the_right_to_a_name_a_connection_has_none() {
    on_each_kind(async |program| {
        let server = with_user(&program, "secret");
        server.command(&["ACL", "SETUSER", "locks", "-client|setname"]).unwrap();
        let instance = Instance::url(server.address()).credentials(Credentials::new("locks", "secret"));
        pair(&of(instance.client_name("billing")).connect().await.unwrap(), "a").await;
    });
}

#[test]
fn an_address_that_cannot_be_used_says_what_to_write() {
    let told = |url: &str| Redlock::builder().instances(["redis://10.0.0.1", url]).build().unwrap_err().to_string();
    let words = "the address of instance 2 cannot be used: it cannot be read; write host:port, redis://[user]";
    assert!(told("10.0.0.2:port").starts_with(words), "{}", told("10.0.0.2:port"));
    let of_user = "the address of instance 2 cannot be used: it has a user and no password";
    assert!(told("locks@10.0.0.2").starts_with(of_user), "{}", told("locks@10.0.0.2"));
}

#[test]
fn an_address_without_a_scheme_is_of_redis_without_tls() {
    on_each_kind(async |program| {
        let server = with_user(&program, "secret");
        let bare = server.address().replacen("redis://", "", 1);
        pair(&of(Instance::url(&bare)).connect().await.unwrap(), "a").await;
        pair(&of(Instance::url(format!("locks:secret@{bare}"))).connect().await.unwrap(), "a").await;
    });
}

#[test]
fn a_configuration_logs_in_where_an_address_does_not() {
    on_each_kind(async |program| {
        let server = Server::builder(&program).password("right/#@").start().unwrap();
        let bare = server.address().replacen("redis://", "", 1);
        let config = Config::from_toml("password = 'right/#@'\nadmission = false").unwrap();
        let builder = Redlock::builder().instance_timeout(TIMEOUT).config(config).instances([&bare]);
        pair(&builder.clone().connect().await.unwrap(), "a").await;
        let own = Instance::url(&bare).credentials(Credentials::password("wrong"));
        let refused = builder.instances([own]).connect_timeout(TIMEOUT).connect().await.unwrap_err().to_string();
        assert!(refused.contains("WRONGPASS"), "its own count: {refused}");
    });
}
