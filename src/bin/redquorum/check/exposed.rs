//! Whether an instance is open to the network, by connecting without the password that was given.

use redquorum::Redlock;

use super::{ALL, Finding, Verdict, is_socket};
use crate::settings::Settings;
use crate::status::settle;

/// One finding for all that do.
pub(super) async fn of_instances(redlock: &Redlock, settings: &Settings) -> Option<Finding> {
    let mut open = Vec::new();
    for (index, instance) in redlock.instances().into_iter().enumerate() {
        if !instance.connected || is_socket(&instance.address) {
            continue;
        }
        let Ok(anonymous) = settings.anonymous_client_of_one(index) else { continue };
        settle(&anonymous, settings).await;
        if anonymous.instances().iter().any(|it| it.connected) {
            open.push(instance.address);
        }
    }
    let let_in = if open.len() == 1 { "lets" } else { "let" };
    let text = format!(
        "{} {let_in} in any client without a password, and each can delete locks; set requirepass, or users by ACL",
        open.join(", ")
    );
    (!open.is_empty()).then(|| Finding::new(Verdict::Doubtful, ALL, text))
}
