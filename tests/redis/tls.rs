//! TLS to real servers, with authorities of one's own.

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair};
use redquorum::{Admission, Credentials, Instance, Redlock, Tls};
use redquorum_testkit::{Error, Program, Server, ServerBuilder};

use crate::support::{PATIENCE, TIMEOUT, eventually, on_each_kind, pair};
use crate::words::told;

/// Signs certificates.
struct Authority(CertifiedIssuer<'static, KeyPair>);

/// A certificate and its key, as PEM.
struct Signed {
    certificate: String,
    key: String,
}

impl Authority {
    fn new(name: &str) -> Self {
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.distinguished_name.push(DnType::CommonName, name);
        Self(CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap())
    }

    fn pem(&self) -> String {
        self.0.pem()
    }

    /// For a host, by name or address.
    fn sign(&self, host: &str) -> Signed {
        let key = KeyPair::generate().unwrap();
        let params = CertificateParams::new([host.to_owned()]).unwrap();
        Signed { certificate: params.signed_by(&key, &self.0).unwrap().pem(), key: key.serialize_pem() }
    }
}

/// Runs `test` on each kind of server that was built with TLS.
fn on_each_kind_with_tls(test: impl AsyncFn(Program)) {
    on_each_kind(async |program| {
        let authority = Authority::new("none");
        match tls_server(&program, &authority, "127.0.0.1", false).start() {
            Ok(_) => test(program).await,
            Err(error @ Error::Start { .. })
                if error.to_string().contains("TLS") || error.to_string().contains("tls") =>
            {
                println!("{program} was built without TLS");
            }
            Err(error) => panic!("{error}"),
        }
    });
}

fn tls_server(program: &Program, authority: &Authority, host: &str, mutual: bool) -> ServerBuilder {
    let signed = authority.sign(host);
    Server::builder(program).tls(&authority.pem(), &signed.certificate, &signed.key, mutual)
}

fn address(server: &Server) -> String {
    format!("rediss://127.0.0.1:{}", server.tls_port().unwrap())
}

async fn locks_with(instance: Instance) {
    let builder = Redlock::builder().instances([instance]).instance_timeout(TIMEOUT).admission(Admission::Off);
    pair(&builder.connect().await.unwrap(), "a").await;
}

const NOT_ACCEPTED: [&str; 2] = ["its certificate is not accepted", "trust who signed it with Tls::ca"];
const WANTS_ONE: [&str; 2] = ["it wants a certificate of the client", "give it one that it trusts"];

#[test]
fn an_authority_of_ones_own_is_trusted_and_no_other() {
    on_each_kind_with_tls(async |program| {
        let (ours, other) = (Authority::new("ours"), Authority::new("other"));
        let server = tls_server(&program, &ours, "127.0.0.1", false).password("secret").start().unwrap();
        let instance = Instance::url(address(&server)).credentials(Credentials::password("secret"));
        locks_with(instance.clone().tls(Tls::new().ca(ours.pem()))).await;
        locks_with(instance.clone().tls(Tls::new().ca(other.pem()).ca(ours.pem()))).await;
        let plain = address(&server).replacen("rediss:", "redis:", 1);
        let with_tls = Instance::url(plain).credentials(Credentials::password("secret"));
        locks_with(with_tls.tls(Tls::new().ca(ours.pem()))).await;
        told(instance.clone().tls(Tls::new().ca(other.pem())), Admission::On, &NOT_ACCEPTED).await;
        told(instance, Admission::Off, &NOT_ACCEPTED).await;
    });
}

#[test]
fn a_certificate_for_another_name_is_refused_unless_that_name_is_given() {
    on_each_kind_with_tls(async |program| {
        let ours = Authority::new("ours");
        let server = tls_server(&program, &ours, "redis-1.internal", false).start().unwrap();
        let tls = Tls::new().ca(ours.pem());
        let instance = Instance::url(address(&server));
        told(instance.clone().tls(tls.clone()), Admission::On, &["Tls::server_name", "trust who signed it"]).await;
        locks_with(instance.tls(tls.server_name("redis-1.internal"))).await;
    });
}

#[test]
fn a_server_that_wants_a_certificate_takes_one_of_its_authority_and_no_other() {
    on_each_kind_with_tls(async |program| {
        let (ours, other) = (Authority::new("ours"), Authority::new("other"));
        let server = tls_server(&program, &ours, "127.0.0.1", true).start().unwrap();
        let tls = Tls::new().ca(ours.pem());
        let with = |signed: Signed| {
            Instance::url(address(&server)).tls(tls.clone().client_certificate(signed.certificate, signed.key))
        };
        locks_with(with(ours.sign("client"))).await;
        told(Instance::url(address(&server)).tls(tls.clone()), Admission::On, &WANTS_ONE).await;
        told(with(other.sign("client")), Admission::Off, &WANTS_ONE).await;
    });
}

/// The certificates of an installation, as an operator writes them who rotates them: those of the server, and of its clients.
fn rotate(server: &Server, authority: &Authority) -> Result<(), std::io::Error> {
    let (of_server, of_client) = (authority.sign("127.0.0.1"), authority.sign("client"));
    let texts =
        [authority.pem(), of_server.certificate, of_server.key, authority.pem(), of_client.certificate, of_client.key];
    let names = ["ca.pem", "server.pem", "server.key", "trusted.pem", "client.pem", "client.key"];
    names.iter().zip(texts).try_for_each(|(name, text)| std::fs::write(server.dir().join(name), text))
}

#[test]
fn files_that_were_rotated_are_read_again_at_the_next_connect_and_a_broken_one_is_named() {
    on_each_kind_with_tls(async |program| {
        let (former, latter) = (Authority::new("former"), Authority::new("latter"));
        let server = tls_server(&program, &former, "127.0.0.1", true).start().unwrap();
        rotate(&server, &former).unwrap();
        let file = |name: &str| server.dir().join(name);
        let tls = Tls::new().ca_file(file("trusted.pem"));
        let tls = tls.client_certificate_files(file("client.pem"), file("client.key"));
        let files = Instance::url(address(&server)).tls(tls);
        let signed = former.sign("client");
        let bytes = Tls::new().ca(former.pem()).client_certificate(signed.certificate, signed.key);
        let bytes = Instance::url(address(&server)).tls(bytes);
        let client = async |instance| {
            let builder = Redlock::builder().instances([instance]).instance_timeout(TIMEOUT).admission(Admission::Off);
            builder.connect().await.unwrap()
        };
        let (rotated, fixed) = (client(files.clone()).await, client(bytes).await);
        pair(&rotated, "a").await;

        rotate(&server, &latter).unwrap();
        pair(&rotated, "a").await; // over the connection that is open
        server.restart().unwrap();
        let locks = async |redlock: &Redlock| redlock.lock("a").wait_at_most(PATIENCE).acquire().await;
        locks(&rotated).await.unwrap().release().await.unwrap();
        // Each client connects again in its own time.
        let refused = || fixed.instances()[0].last_error.as_ref().is_some_and(|error| error.contains(NOT_ACCEPTED[0]));
        assert!(eventually(PATIENCE, refused).await, "{:?}", fixed.instances());
        let said = fixed.lock("a").try_acquire().await.unwrap_err().to_string();
        assert!(said.contains(NOT_ACCEPTED[0]), "what is given as bytes stays: {said}");

        let whole = std::fs::read(file("client.key")).unwrap();
        for (broken, words) in [(Some("no PEM"), "no private key"), (None, "cannot be read")] {
            match broken {
                Some(text) => std::fs::write(file("client.key"), text).unwrap(),
                None => std::fs::remove_file(file("client.key")).unwrap(),
            }
            server.restart().unwrap();
            let told = || {
                let error = rotated.instances()[0].last_error.clone().unwrap_or_default();
                error.contains("TLS cannot be set up") && error.contains(words) && error.contains("client.key")
            };
            assert!(eventually(PATIENCE, told).await, "{:?}", rotated.instances());
            let refused = Redlock::builder().instances([files.clone()]).build().unwrap_err().to_string();
            assert!(refused.contains(words) && refused.contains("client.key"), "{refused}");
        }
        std::fs::write(file("client.key"), whole).unwrap();
        locks(&rotated).await.unwrap().release().await.unwrap();
    });
}
