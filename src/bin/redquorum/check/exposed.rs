//! Whether an instance is open to the network, by connecting without the password that was given.

use futures_util::future::join_all;
use redquorum::{InstanceStatus, Redlock};

use super::{ALL, Finding, Verdict, is_socket};
use crate::settings::Settings;
use crate::status::settle;

/// One finding for all that do.
pub(super) async fn of_instances(redlock: &Redlock, settings: &Settings) -> Option<Finding> {
    let instances = redlock.instances().into_iter().enumerate();
    let open = join_all(instances.map(|(index, instance)| if_open(index, instance, settings))).await;
    let open: Vec<String> = open.into_iter().flatten().collect();
    let let_in = if open.len() == 1 { "lets" } else { "let" };
    let text = format!(
        "{} {let_in} in any client without a password, and each can delete locks; set requirepass, or users by ACL",
        open.join(", ")
    );
    (!open.is_empty()).then(|| Finding::new(Verdict::Doubtful, ALL, text))
}

/// The address of an instance that lets in any client.
async fn if_open(index: usize, instance: InstanceStatus, settings: &Settings) -> Option<String> {
    if !instance.connected || is_socket(&instance.address) {
        return None;
    }
    let anonymous = settings.anonymous_client_of_one(index).ok()?;
    settle(&anonymous, settings).await;
    anonymous.instances().iter().any(|it| it.connected).then_some(instance.address)
}
