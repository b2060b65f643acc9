use std::collections::HashSet;

use super::*;
use crate::error::BuildError;

/// What a file may say, in the order of `KEYS`; instead of the password also a file with one.
const EVERYTHING: &str = "instances = ['a', 'rediss://b:1']\nnamespace = 'n:'\nusername = 'u'\npassword = 'secret'\n\
    tls_ca = 'ca'\ntls_cert = 'cert'\ntls_key = 'key'\nttl = '5s'\nmax_ttl = '30s'\nquarantine = '1m'\n\
    instance_timeout = '100ms'\nconnect_timeout = '1s'\nquorum = 2\nadmission = false\nrenew = false\nmax_hold = '1h'\n\
    label = 'me'";

/// How `settings` shows it.
const SHOWN: [&str; 18] = [
    "a, rediss://b:1",
    "n:",
    "u",
    "***",
    "p",
    "ca",
    "cert",
    "key",
    "5s",
    "30s",
    "1m",
    "100ms",
    "1s",
    "2",
    "false",
    "false",
    "1h",
    "me",
];

fn shown(config: &Config) -> Vec<(&'static str, String)> {
    config.settings().collect()
}

fn of_variables(variables: &[(&str, &str)]) -> Result<Config, ConfigError> {
    Config::of_variables(variables.iter().map(|(name, value)| ((*name).into(), (*value).into())))
}

#[test]
fn a_file_and_the_variables_may_say_everything() {
    for (text, without) in [
        (EVERYTHING.to_owned(), "password_file"),
        (EVERYTHING.replace("password = 'secret'", "password_file = 'p'"), "password"),
    ] {
        let file = Config::from_toml(&text).unwrap();
        let said = || KEYS.into_iter().zip(SHOWN).filter(|(key, _)| *key != without);
        assert_eq!(shown(&file), said().map(|(key, value)| (key, value.to_owned())).collect::<Vec<_>>());
        let variables = said().map(|(key, value)| {
            let value = if key == "password" { "secret" } else { value };
            (variable(key).into(), value.into())
        });
        assert_eq!(Config::of_variables(variables), Ok(file), "the same words");
    }
}

#[test]
fn a_password_beside_a_file_with_one_is_refused_and_one_place_counts_before_another() {
    let both = "password = 'secret'\npassword_file = 'p'";
    let problem = Config::from_toml(both).unwrap_err().to_string();
    assert_eq!(problem, "password and password_file are both given: give one of them");
    let both = of_variables(&[("REDQUORUM_PASSWORD", "secret"), ("REDQUORUM_PASSWORD_FILE", "p")]);
    let problem = both.unwrap_err().to_string();
    assert_eq!(problem, "REDQUORUM_PASSWORD and REDQUORUM_PASSWORD_FILE are both given: give one of them");
    let first = of_variables(&[("REDQUORUM_PASSWORD_FILE", "p")]).unwrap();
    let config = first.clone().or(Config::from_toml("password = 'secret'").unwrap());
    assert_eq!(config, first);
}

#[test]
fn what_is_wrong_is_named_with_what_to_write_and_without_what_may_be_secret() {
    for (text, expected) in [
        ("\npassword = secret", "line 2: "),
        ("\n\nttl = 5 s", "line 3: "),
        ("quorum = 2\n\n= 5", "line 3: "),
        ("password = ['secret']", "password: it must be a text in quotes"),
        ("password = 7137", "password: it must be a text in quotes"),
        ("password = 71.37", "password: it must be a text in quotes"),
        ("password = { it = 'secret' }", "password: it must be a text in quotes"),
        ("secrets = 1\n", "there is no setting \"secrets\"; there are instances, namespace"),
        ("instances = 7137", "instances: it must be a list of texts in quotes"),
        ("instances = [7137]", "instances: it must be a list of texts in quotes"),
        ("ttl = 5", "ttl: it must be a time in quotes; write \"500ms\""),
        ("max_hold = '5'", "max_hold: \"5\" is no time; write 500ms"),
        ("quorum = -1", "quorum: it must be a number"),
        ("admission = 'maybe'", "admission: it must be true or false"),
        ("renew = 1", "renew: it must be true or false"),
    ] {
        let problem = Config::from_toml(text).unwrap_err().to_string();
        assert!(problem.starts_with(expected), "{text}: {problem}");
        for secret in ["secret'", "secret\n", "= secret", "7137", "71.37"] {
            assert!(!problem.contains(secret), "{text}: {problem}");
        }
    }
}

#[test]
fn a_variable_that_is_no_setting_is_refused_and_those_of_others_are_not() {
    for name in OF_OTHERS
        .split(' ')
        .map(|name| format!("{PREFIX}{name}"))
        .chain(["REDQUORUM_SERVICE_HOST", "REDQUORUM_PORT_6379_TCP", "REDQUORUMTTL", "TTL"].map(str::to_owned))
    {
        assert_eq!(of_variables(&[(&*name, "5s")]), Ok(Config::default()), "{name}");
    }
    for name in [
        "REDQUORUM_MAXTTL",
        "REDQUORUM_",
        "REDQUORUM_INSTANCE",
        "REDQUORUM_RETRIES",
        "REDQUORUM_ttl",
        "REDQUORUM_SERVERS",
    ] {
        let problem = of_variables(&[(name, "secret")]).unwrap_err().to_string();
        assert!(problem.starts_with(&format!("there is no setting {name}; there are REDQUORUM_CONFIG, ")), "{problem}");
        assert!(problem.contains("REDQUORUM_MAX_TTL") && !problem.contains("secret"), "{problem}");
    }
    for (name, value, expected) in [
        ("REDQUORUM_TTL", "30", "REDQUORUM_TTL: \"30\" is no time; write 500ms"),
        ("REDQUORUM_QUORUM", "two", "REDQUORUM_QUORUM: it must be a number"),
        ("REDQUORUM_RENEW", "yes", "REDQUORUM_RENEW: it must be true or false"),
    ] {
        assert!(of_variables(&[(name, value)]).unwrap_err().to_string().starts_with(expected));
    }
    assert_eq!(of_variables(&[("REDQUORUM_TTL", "")]), Ok(Config::default()), "it says nothing");
}

#[cfg(unix)]
#[test]
fn a_variable_that_is_no_text_may_be_a_path_alone() {
    use std::os::unix::ffi::OsStringExt;
    let with = |name: &str| Config::of_variables([(name.into(), OsString::from_vec(vec![b'a', 0xff]))].into_iter());
    assert!(with("REDQUORUM_TLS_CA").unwrap().tls_ca.is_some());
    for name in ["REDQUORUM_PASSWORD", "REDQUORUM_INSTANCES"] {
        assert_eq!(with(name).unwrap_err().to_string(), format!("{name}: it is no text; write it in UTF-8"));
    }
}

#[test]
fn what_is_said_first_counts_setting_by_setting() {
    let file = Config::from_toml(EVERYTHING).unwrap();
    for (key, (variable_of_it, value)) in KEYS.into_iter().zip([
        ("REDQUORUM_INSTANCES", "c d,e"),
        ("REDQUORUM_NAMESPACE", "other:"),
        ("REDQUORUM_USERNAME", "other"),
        ("REDQUORUM_PASSWORD", "another"),
        ("REDQUORUM_PASSWORD_FILE", "q"),
        ("REDQUORUM_TLS_CA", "ca2"),
        ("REDQUORUM_TLS_CERT", "cert2"),
        ("REDQUORUM_TLS_KEY", "key2"),
        ("REDQUORUM_TTL", "6s"),
        ("REDQUORUM_MAX_TTL", "31s"),
        ("REDQUORUM_QUARANTINE", "61s"),
        ("REDQUORUM_INSTANCE_TIMEOUT", "101ms"),
        ("REDQUORUM_CONNECT_TIMEOUT", "1001ms"),
        ("REDQUORUM_QUORUM", "3"),
        ("REDQUORUM_ADMISSION", "true"),
        ("REDQUORUM_RENEW", "true"),
        ("REDQUORUM_MAX_HOLD", "2h"),
        ("REDQUORUM_LABEL", "you"),
        ("REDQUORUM_FENCE_RETENTION", "49h"),
    ]) {
        let first = of_variables(&[(variable_of_it, value)]).unwrap();
        assert_eq!(shown(&first).len(), 1, "{key}");
        let both = first.clone().or(file.clone());
        let mut expected = file.clone();
        expected.take(key, Value::Typed(value.into())).unwrap();
        if key == "password_file" {
            expected.password = None; // one source of a password hides the other
        } else {
            expected.password_file = None; // a password counts before a file with one
        }
        assert_eq!(both, expected, "{key}");
        assert_eq!(Config::default().or(first.clone()), first, "{key}");
    }
}

#[test]
fn the_defaults_are_those_of_the_builder() {
    let of = |text: &str| Config::from_toml(text).unwrap().or_defaults();
    let (config, builder) = (of("instances = ['a', 'b', 'c', 'd']"), Builder::default());
    assert_eq!((config.ttl, config.max_ttl), (Some(builder.settings.ttl), Some(builder.settings.max_ttl)));
    assert_eq!((config.quarantine, config.quorum), (Some(builder.settings.max_ttl), Some(3)));
    assert_eq!(of("max_ttl = '2s'").ttl, Some(Duration::from_secs(2)), "no longer than max_ttl");
    assert_eq!(of("max_ttl = '20s'").ttl, Some(builder.settings.ttl));
    assert_eq!(of("max_ttl = '20s'").quarantine, Some(Duration::from_secs(20)));
    assert_eq!(of("").quorum, None, "the number of instances is not known");
}

#[test]
fn a_builder_takes_all_and_later_setters_count_more() {
    let config = || Config::from_toml(EVERYTHING).unwrap();
    let builder = Builder::default().config(config());
    let seconds = Duration::from_secs;
    assert_eq!(builder.instances.len(), 2);
    assert_eq!((&*builder.settings.namespace, builder.label.as_deref()), (&b"n:"[..], Some("me")));
    assert_eq!(
        (builder.settings.ttl, builder.settings.max_ttl, builder.settings.quarantine),
        (seconds(5), seconds(30), Some(seconds(60)))
    );
    assert_eq!((builder.instance_timeout, builder.connect_timeout), (Duration::from_millis(100), seconds(1)));
    assert_eq!((builder.quorum, builder.admission, builder.settings.renewal), (Some(2), Admission::Off, Renewal::Off));
    assert_eq!(builder.settings.max_hold, Some(seconds(3600)));
    assert_eq!(Builder::default().config(config()).ttl(seconds(7)).settings.ttl, seconds(7));
    assert_eq!(
        Builder::default().ttl(seconds(7)).config(Config::default()).settings.ttl,
        seconds(7),
        "what is not said stays"
    );
    let twice = Builder::default().config(config()).config(Config::from_toml("password_file = 'q'").unwrap());
    assert_eq!((twice.access.username.as_deref(), twice.access.password), (Some("u"), None));
    let short = Builder::default().config(Config::from_toml("max_ttl = '2s'").unwrap());
    assert_eq!(short.settings.ttl, seconds(2), "as `or_defaults` says");
}

#[test]
fn access_is_given_to_instances_that_have_none_of_their_own() {
    let checked = |text: &str, instances: &[&str]| {
        let builder = Builder::default().config(Config::from_toml(text).unwrap()).instances(instances.iter().copied());
        builder.check().map(|_| ())
    };
    let bad = |index, reason: &str| BuildError::BadAddress { index, reason: reason.to_owned() };
    assert_eq!(checked("password = 's'", &["h", "u@h:1", "u:own@h:2"]), Ok(()));
    assert_eq!(checked("", &["h", "u@h:1"]), Err(bad(1, crate::instance::redis::USER_ALONE)));
    assert_eq!(checked("username = 'u'", &["h"]), Err(bad(0, crate::instance::redis::USER_ALONE)));
    assert_eq!(checked("username = 'u'", &["me:own@h"]), Ok(()), "that is for those without");
    let refused = |text: &str, instances: &[&str]| checked(text, instances).unwrap_err().to_string();
    assert!(refused("tls_cert = 'a'", &["rediss://h"]).contains("belong together"));
    assert!(refused("tls_key = 'a'", &["rediss://h"]).contains("belong together"));
    assert!(refused("tls_ca = 'a'", &["h"]).contains("of no use"));
    let missing = refused("password_file = '/nonexistent/p'", &["h"]);
    assert!(missing.starts_with("password_file: /nonexistent/p: "), "{missing}");
    let second = refused("", &["h", "htp://x"]);
    assert!(second.starts_with("the address of instance 2 cannot be used: its scheme is unknown"), "{second}");
}

#[test]
fn a_file_is_read_with_paths_from_where_it_is_and_errors_name_it() {
    let directory = std::env::temp_dir().join(format!("redquorum-config-{}", std::process::id()));
    std::fs::create_dir_all(&directory).unwrap();
    let path = directory.join("locks.toml");
    std::fs::write(&path, "password_file = 'p'\ntls_ca = '/etc/ca.pem'\ninstances = ['h']").unwrap();
    let config = Config::read(&path).unwrap();
    assert_eq!(
        (config.password_file.as_deref(), config.tls_ca.as_deref()),
        (Some(&*directory.join("p")), Some("/etc/ca.pem".as_ref()))
    );
    for (text, expected) in
        [("", Err("no password")), ("\u{feff}", Err("no password")), ("\n", Err("no password")), ("s\nmore", Ok(()))]
    {
        std::fs::write(directory.join("p"), text).unwrap();
        let built =
            Builder::default().config(config.clone()).instances(["rediss://h"]).access.given_to(&["rediss://h".into()]);
        assert_eq!(built.is_ok(), expected.is_ok(), "{text:?}: {built:?}");
        assert!(built.err().is_none_or(|error| error.to_string().contains("no password in its first line")));
    }
    std::fs::write(&path, "speed = 9").unwrap();
    let message = Config::read(&path).unwrap_err().to_string();
    assert!(message.starts_with(&format!("{}: there is no setting \"speed\"", path.display())), "{message}");
    std::fs::remove_dir_all(&directory).unwrap();
    assert!(Config::read(&path).unwrap_err().to_string().starts_with(&path.display().to_string()));
}

#[test]
fn the_environment_is_the_variables_over_the_file_that_one_of_them_names() {
    let path = std::env::temp_dir().join(format!("redquorum-environment-{}.toml", std::process::id()));
    std::fs::write(&path, "instances = ['h']\nttl = '5s'\nmax_ttl = '20s'").unwrap();
    let of = |variables: &[(&str, &str)]| {
        let all = variables.iter().map(|(name, value)| ((*name).into(), (*value).into()));
        Config::of_environment(all.chain([("HOME".into(), "/root".into())]).collect())
    };
    let file = path.to_string_lossy().into_owned();
    let both = of(&[("REDQUORUM_CONFIG", &file), ("REDQUORUM_TTL", "6s")]).unwrap();
    std::fs::remove_file(&path).unwrap();
    let seconds = |seconds| Some(Duration::from_secs(seconds));
    assert_eq!((both.instances, both.ttl, both.max_ttl), (vec!["h".to_owned()], seconds(6), seconds(20)));
    assert!(of(&[("REDQUORUM_CONFIG", &file)]).unwrap_err().to_string().starts_with(&file), "it must be there");
    assert_eq!(of(&[("REDQUORUM_CONFIG", "")]), Ok(Config::default()));
    assert_eq!(of(&[]), Ok(Config::default()));
}

#[test]
fn it_is_a_part_of_other_configurations_also_where_all_values_are_texts() {
    let text = r#"{ "instances": "a, b", "quorum": "2", "renew": "false", "ttl": null }"#;
    let config: Config = serde_json::from_str(text).unwrap();
    assert_eq!((config.instances.len(), config.quorum, config.renew, config.ttl), (2, Some(2), Some(false), None));
    let of_table: toml::Table = "[locks]\nttl = '5s'".parse().unwrap();
    let nested: BTreeMap<String, Config> = of_table.try_into().unwrap();
    assert_eq!(nested["locks"].ttl, Some(Duration::from_secs(5)));
}

#[test]
fn an_error_in_another_configuration_says_which_setting_and_where() {
    let said = |text: &str| serde_json::from_str::<Config>(text).unwrap_err().to_string();
    let bad = said("{\n \"quorum\": 2,\n \"ttl\": 5,\n \"label\": \"a\"\n}");
    assert!(bad.starts_with("ttl: ") && bad.contains(" at line 3 "), "{bad}");
    let twice = said("{ \"ttl\": 5, \"ttl\": \"5s\" }");
    assert!(twice.starts_with("ttl: "), "{twice}");
    let misspelt = said("{ \"max_tll\": { \"a\": null } }");
    assert!(misspelt.starts_with("there is no setting \"max_tll\""), "{misspelt}");
}

#[test]
fn nothing_shows_a_password() {
    let config = Config::from_toml("instances = ['u:secret@h', 'unix:///a?pass=secret']\npassword = 'secret'").unwrap();
    let shown = format!("{config:?} {:?}", Builder::default().config(config.clone()));
    assert!(!shown.contains("secret") && shown.contains("u:***@h"), "{shown}");
}

#[test]
fn each_setting_has_one_name() {
    assert_eq!(KEYS.into_iter().collect::<HashSet<_>>().len(), KEYS.len());
}
