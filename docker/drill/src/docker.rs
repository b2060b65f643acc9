//! The Docker engine: containers and a network of our own, and nothing of them left.

use std::collections::HashMap;
use std::time::Duration;

use bollard::Docker;
use bollard::container::LogOutput;
use bollard::exec::StartExecOptions;
use bollard::models::{
    ContainerCreateBody, EndpointIpamConfig, EndpointSettings, ExecConfig, HostConfig, HostConfigLogConfig, Ipam,
    IpamConfig, NetworkCreateRequest, NetworkingConfig,
};
use bollard::query_parameters::{
    CreateContainerOptionsBuilder, InspectContainerOptions, KillContainerOptionsBuilder, ListContainersOptionsBuilder,
    ListNetworksOptionsBuilder, LogsOptionsBuilder, RemoveContainerOptionsBuilder, StartContainerOptions,
};
use futures_util::StreamExt;

use crate::Outcome;

/// On everything that a drill makes; its value is the process that made it.
const LABEL: &str = "redquorum.drill.run";

pub(crate) struct Engine {
    docker: Docker,
    image: String,
    network: String,
    subnet: String,
}

/// What is particular about a container.
#[derive(Default)]
pub(crate) struct Spec {
    /// Its last number in the network.
    pub(crate) host: u8,
    pub(crate) command: Vec<String>,
    pub(crate) env: Vec<String>,
    /// Names that lead to other numbers.
    pub(crate) hosts: Vec<(String, u8)>,
    /// Whether it may change its own packet filter.
    pub(crate) may_filter: bool,
}

impl Engine {
    /// Connects, removes what runs that have died left behind, and makes a network.
    pub(crate) async fn open(image: &str) -> Outcome<Self> {
        let docker = Docker::connect_with_defaults()?;
        let version = docker.version().await;
        version.map_err(|error| format!("no Docker engine answers, start it or set DOCKER_HOST: {error}"))?;
        let docker = docker.negotiate_version().await?;
        let found = docker.inspect_image(image).await;
        found.map_err(|_| format!("there is no image {image}: `make drill` builds it with docker/image/build.sh"))?;
        let network = own_name("net");
        let mut engine = Self { docker, image: image.to_owned(), network, subnet: String::new() };
        engine.sweep().await?;
        engine.make_network().await?;
        Ok(engine)
    }

    async fn make_network(&mut self) -> Outcome {
        let mut last = None;
        for third in 0..=255_u8 {
            let subnet = format!("10.213.{third}");
            let config = IpamConfig { subnet: Some(format!("{subnet}.0/24")), ..IpamConfig::default() };
            let request = NetworkCreateRequest {
                name: self.network.clone(),
                ipam: Some(Ipam { config: Some(vec![config]), ..Ipam::default() }),
                labels: Some(own_label()),
                ..NetworkCreateRequest::default()
            };
            match self.docker.create_network(request).await {
                Ok(_) => {
                    self.subnet = subnet;
                    return Ok(());
                }
                Err(error) => last = Some(error), // another network has this range
            }
        }
        Err(last.map_or_else(|| "no network".into(), Into::into))
    }

    pub(crate) fn address(&self, host: u8) -> String {
        format!("{}.{host}", self.subnet)
    }

    /// The server's version and that of the machine's kernel.
    pub(crate) async fn versions(&self) -> Outcome<String> {
        let version = self.docker.version().await?;
        Ok(format!(
            "Docker {}, Linux {}",
            version.version.unwrap_or_default(),
            version.kernel_version.unwrap_or_default()
        ))
    }

    pub(crate) async fn run(&self, name: &str, spec: Spec) -> Outcome {
        let endpoint = EndpointSettings {
            ipam_config: Some(EndpointIpamConfig {
                ipv4_address: Some(self.address(spec.host)),
                ..EndpointIpamConfig::default()
            }),
            ..EndpointSettings::default()
        };
        let hosts = spec.hosts.iter().map(|(name, host)| format!("{name}:{}", self.address(*host)));
        let body = ContainerCreateBody {
            image: Some(self.image.clone()),
            cmd: Some(spec.command),
            env: Some(spec.env),
            labels: Some(own_label()),
            host_config: Some(HostConfig {
                cap_add: spec.may_filter.then(|| vec!["NET_ADMIN".to_owned()]),
                extra_hosts: Some(hosts.collect()),
                log_config: Some(whole_log()),
                ..HostConfig::default()
            }),
            networking_config: Some(NetworkingConfig {
                endpoints_config: Some(HashMap::from([(self.network.clone(), endpoint)])),
            }),
            ..ContainerCreateBody::default()
        };
        let options = CreateContainerOptionsBuilder::default().name(&own_name(name)).build();
        self.docker.create_container(Some(options), body).await?;
        self.start(name).await
    }

    pub(crate) async fn start(&self, name: &str) -> Outcome {
        Ok(self.docker.start_container(&own_name(name), None::<StartContainerOptions>).await?)
    }

    /// SIGKILL; of one that is not running, nothing.
    pub(crate) async fn kill(&self, name: &str) -> Outcome {
        let options = KillContainerOptionsBuilder::default().signal("SIGKILL").build();
        match self.docker.kill_container(&own_name(name), Some(options)).await {
            Err(bollard::errors::Error::DockerResponseServerError { status_code: 409, .. }) => Ok(()),
            other => Ok(other?),
        }
    }

    pub(crate) async fn is_running(&self, name: &str) -> bool {
        let found = self.docker.inspect_container(&own_name(name), None::<InspectContainerOptions>).await;
        found.is_ok_and(|found| found.state.and_then(|state| state.running) == Some(true))
    }

    /// Tries again for a while: on a busy machine the engine now and then cannot freeze a container at once.
    pub(crate) async fn pause(&self, name: &str) -> Outcome {
        let paused = || async { self.docker.pause_container(&own_name(name)).await.is_ok() };
        if wait_until(Duration::from_secs(2), paused).await {
            return Ok(());
        }
        Ok(self.docker.pause_container(&own_name(name)).await?)
    }

    pub(crate) async fn unpause(&self, name: &str) -> Outcome {
        Ok(self.docker.unpause_container(&own_name(name)).await?)
    }

    /// Runs a shell command in a container and gives what it printed; an error if it failed.
    pub(crate) async fn shell(&self, name: &str, command: &str) -> Outcome<String> {
        let config = ExecConfig {
            cmd: Some(["/bin/sh", "-c", command].map(str::to_owned).to_vec()),
            attach_stdout: Some(true),
            attach_stderr: Some(true),
            ..ExecConfig::default()
        };
        let exec = self.docker.create_exec(&own_name(name), config).await?;
        let started = self.docker.start_exec(&exec.id, None::<StartExecOptions>).await?;
        let mut output = String::new();
        if let bollard::exec::StartExecResults::Attached { output: mut stream, .. } = started {
            while let Some(chunk) = stream.next().await {
                output.push_str(&String::from_utf8_lossy(&chunk?.into_bytes()));
            }
        }
        match self.docker.inspect_exec(&exec.id).await?.exit_code {
            Some(0) => Ok(output),
            code => Err(format!("in {name}: `{command}` ended with {code:?}: {}", output.trim()).into()),
        }
    }

    /// All that a container has written to standard output.
    pub(crate) async fn output(&self, name: &str) -> Outcome<String> {
        let options = LogsOptionsBuilder::default().stdout(true).stderr(true).build();
        let mut stream = self.docker.logs(&own_name(name), Some(options));
        let mut output = Vec::new();
        while let Some(chunk) = stream.next().await {
            match chunk? {
                LogOutput::StdOut { message } | LogOutput::Console { message } => output.extend_from_slice(&message),
                LogOutput::StdErr { message } => eprint!("{name}: {}", String::from_utf8_lossy(&message)),
                LogOutput::StdIn { .. } => {}
            }
        }
        Ok(String::from_utf8_lossy(&output).into_owned())
    }

    /// Removes the containers of this run, not the network.
    pub(crate) async fn clear(&self) -> Outcome {
        self.remove_containers(|owner| owner == std::process::id()).await
    }

    /// Removes everything of this run, and makes sure of it.
    pub(crate) async fn close(&self) -> Outcome {
        self.clear().await?;
        self.docker.remove_network(&self.network).await?;
        let is_ours = |owner| owner == std::process::id();
        match self.containers(is_ours).await?.len() {
            0 => Ok(()),
            left => Err(format!("{left} containers could not be removed").into()),
        }
    }

    /// Removes what processes that do not live any more have made.
    async fn sweep(&self) -> Outcome {
        let orphaned = |owner: u32| owner == std::process::id() || !is_drill(owner);
        self.remove_containers(orphaned).await?;
        let filters = HashMap::from([("label", vec![LABEL])]);
        let options = ListNetworksOptionsBuilder::default().filters(&filters).build();
        for network in self.docker.list_networks(Some(options)).await? {
            if owner(network.labels.as_ref()).is_some_and(orphaned) {
                self.docker.remove_network(&network.id.unwrap_or_default()).await?;
            }
        }
        Ok(())
    }

    async fn containers(&self, of: impl Fn(u32) -> bool) -> Outcome<Vec<String>> {
        let filters = HashMap::from([("label", vec![LABEL])]);
        let options = ListContainersOptionsBuilder::default().all(true).filters(&filters).build();
        let found = self.docker.list_containers(Some(options)).await?;
        let ours = found.into_iter().filter(|found| owner(found.labels.as_ref()).is_some_and(&of));
        Ok(ours.filter_map(|found| found.id).collect())
    }

    async fn remove_containers(&self, of: impl Fn(u32) -> bool) -> Outcome {
        let removals = self.containers(of).await?.into_iter().map(|id| async move {
            let options = RemoveContainerOptionsBuilder::default().force(true).v(true).build();
            self.docker.remove_container(&id, Some(options)).await
        });
        for removed in futures_util::future::join_all(removals).await {
            removed?;
        }
        Ok(())
    }
}

/// Waits until `ready` says so, at most `limit`.
pub(crate) async fn wait_until<F: Future<Output = bool>>(limit: Duration, ready: impl Fn() -> F) -> bool {
    let end = crate::clock::now() + crate::clock::nanos(limit);
    while crate::clock::now() < end {
        if ready().await {
            return true;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    false
}

fn own_name(name: &str) -> String {
    format!("redquorum-drill-{}-{name}", std::process::id())
}

fn own_label() -> HashMap<String, String> {
    HashMap::from([(LABEL.to_owned(), std::process::id().to_string())])
}

fn owner(labels: Option<&HashMap<String, String>>) -> Option<u32> {
    labels?.get(LABEL)?.parse().ok()
}

fn is_drill(process: u32) -> bool {
    std::fs::read_to_string(format!("/proc/{process}/comm")).is_ok_and(|name| name.trim() == "drill")
}

/// What a container says is kept to its end, whatever the engine does by default: a history without its beginning would be
/// judged as if nothing had happened there.
fn whole_log() -> HostConfigLogConfig {
    let config = [("max-size", "100g")].map(|(name, value)| (name.to_owned(), value.to_owned()));
    HostConfigLogConfig { typ: Some("json-file".to_owned()), config: Some(config.into()) }
}
