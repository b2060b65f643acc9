//! Which settings cannot work, alone or together.

use std::sync::Arc;
use std::time::Duration;

use super::{Builder, Instance, Renewal};
use crate::error::{BadRequest, BuildError};
use crate::instance::redis::Address;
use crate::protocol::{AdmissionTerms, LONGEST_TTL, LeaseTerms, Quorum};
use crate::resource::RESERVED;

/// Half of all time may not be drift.
const MAX_DRIFT_PPM: u32 = 500_000;

/// The longest of all durations that reach an instance or a timer: ten years. Instances refuse a ttl that
/// ends beyond what 64 bits of milliseconds can count, and before that Lua loses its lowest digits.
const LONGEST: Duration = Duration::from_secs(10 * 365 * 24 * 60 * 60);

/// The longest label, in bytes: it is stored with every lock.
const MAX_LABEL: usize = 200;

/// What a client's locks share.
#[derive(Clone, Debug)]
pub(crate) struct Settings {
    pub(crate) namespace: Arc<[u8]>,
    pub(crate) ttl: Duration,
    pub(crate) max_ttl: Duration,
    /// That of the instances; `max_ttl` if it is not set.
    pub(crate) quarantine: Option<Duration>,
    pub(crate) drift_ppm: u32,
    pub(crate) renewal: Renewal,
    pub(crate) max_hold: Option<Duration>,
}

impl Settings {
    pub(super) fn quarantine(&self) -> Duration {
        self.quarantine.unwrap_or(self.max_ttl)
    }

    /// The two times of admission (P29).
    pub(crate) fn admission_terms(&self) -> AdmissionTerms {
        AdmissionTerms { max_ttl_ms: millis(self.max_ttl), quarantine_ms: millis(self.quarantine()) }
    }

    /// The terms of keys that stay for `time` without a lease: `max_ttl` does not bound it. Longer by the drift, as an instance's clock may be
    /// the faster one.
    pub(crate) fn terms_to_keep(&self, time: Duration) -> Result<LeaseTerms, BadRequest> {
        if time > LONGEST {
            return Err(BadRequest::KeptTooLong { time, longest: LONGEST });
        }
        let drift = LeaseTerms::new(time, self.drift_ppm)?.drift();
        Ok(LeaseTerms::new(time.saturating_add(drift), self.drift_ppm)?)
    }

    /// The terms of a lock; every ttl of one goes through here.
    pub(crate) fn terms(&self, ttl: Option<Duration>) -> Result<LeaseTerms, BadRequest> {
        let ttl = ttl.unwrap_or(self.ttl);
        let terms = LeaseTerms::new(ttl, self.drift_ppm)?;
        if ttl > self.max_ttl {
            return Err(BadRequest::TtlAboveMax { ttl, max_ttl: self.max_ttl });
        }
        Ok(terms)
    }
}

impl Builder {
    pub(super) fn check(&self) -> Result<(Vec<Address>, Quorum), BuildError> {
        let count = self.instances.len() + self.dialed.len();
        let quorum = match self.quorum {
            Some(votes) => Quorum::new(count, votes)?,
            None => Quorum::majority(count)?,
        };
        #[cfg(feature = "config")]
        let mut addresses = check_addresses(&self.access.given_to(&self.instances)?)?;
        #[cfg(not(feature = "config"))]
        let mut addresses = check_addresses(&self.instances)?;
        addresses.extend(self.dialed.iter().cloned());
        let durations = [
            ("max_ttl", self.settings.max_ttl),
            ("quarantine", self.settings.quarantine()),
            ("instance_timeout", self.instance_timeout),
            ("connect_timeout", self.connect_timeout),
        ];
        let most = |setting| if matches!(setting, "max_ttl" | "quarantine") { LONGEST_TTL } else { LONGEST };
        if let Some((setting, _)) = durations.into_iter().find(|(setting, duration)| *duration > most(*setting)) {
            return Err(BuildError::TooLong { setting, most: most(setting) });
        }
        // It ends a lease by the client's clock alone, so that any length will do.
        let durations = durations.into_iter().chain(self.settings.max_hold.map(|longest| ("max_hold", longest)));
        if let Some((setting, _)) = durations.into_iter().find(|(_, duration)| duration.as_millis() == 0) {
            return Err(BuildError::Zero { setting });
        }
        self.check_relations()?;
        self.settings.terms(None).map_err(BuildError::Ttl)?;
        Ok((addresses, quorum))
    }

    fn check_relations(&self) -> Result<(), BuildError> {
        let conflict = |text: String| Err(BuildError::Conflict(text));
        if self.settings.drift_ppm >= MAX_DRIFT_PPM {
            return conflict(format!("drift_ppm is {}, it must be below {MAX_DRIFT_PPM}", self.settings.drift_ppm));
        }
        if self.retry_delay.0 > self.retry_delay.1 {
            return conflict("the least retry_delay is above the most".to_owned());
        }
        if self.retry_delay.1 > LONGEST {
            return Err(BuildError::TooLong { setting: "the most retry_delay", most: LONGEST });
        }
        if self.retry_delay.1.is_zero() {
            return Err(BuildError::Zero { setting: "the most retry_delay" });
        }
        // Other clients may use ttls as long as this client's quarantine (P29).
        let quarantine = self.settings.quarantine();
        if quarantine < self.settings.max_ttl {
            return conflict(format!(
                "the quarantine, {quarantine:?}, is below max_ttl, {:?}: an instance could forget a lock and grant it again",
                self.settings.max_ttl
            ));
        }
        if self.settings.namespace.starts_with(RESERVED) {
            return conflict("the namespace begins with \"redquorum:\", which is kept for the library".to_owned());
        }
        if self.label.as_ref().is_some_and(|label| label.len() > MAX_LABEL) {
            return conflict(format!("the label is longer than {MAX_LABEL} bytes"));
        }
        Ok(())
    }
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

fn check_addresses(instances: &[Instance]) -> Result<Vec<Address>, BuildError> {
    let mut addresses: Vec<Address> = Vec::with_capacity(instances.len());
    for (index, instance) in instances.iter().enumerate() {
        let address = instance.to_address().map_err(|reason| BuildError::BadAddress { index, reason })?;
        if addresses.iter().any(|earlier| earlier.shown() == address.shown()) {
            return Err(BuildError::DuplicateAddress { address: address.shown().to_owned() });
        }
        addresses.push(address);
    }
    Ok(addresses)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn setting(builder: Builder) -> Option<&'static str> {
        match builder.instances(["redis://127.0.0.1"]).check() {
            Err(BuildError::TooLong { setting, most: LONGEST | LONGEST_TTL }) => Some(setting),
            Err(other) => panic!("{other}"),
            Ok(_) => None,
        }
    }

    #[test]
    fn durations_that_no_instance_takes_are_refused_by_name() {
        let new = Builder::default;
        for far in [Duration::MAX, Duration::from_millis(i64::MAX as u64), LONGEST + Duration::from_millis(1)] {
            assert_eq!(setting(new().max_ttl(far).ttl(far)), Some("max_ttl"));
            assert_eq!(setting(new().instance_timeout(far)), Some("instance_timeout"));
            assert_eq!(setting(new().connect_timeout(far)), Some("connect_timeout"));
            assert_eq!(setting(new().retry_delay(Duration::ZERO, far)), Some("the most retry_delay"));
            assert_eq!(setting(new().max_hold(far)), None, "no instance learns it");
        }
        let all = new().max_ttl(LONGEST_TTL).ttl(LONGEST_TTL);
        assert_eq!(setting(all.instance_timeout(LONGEST).connect_timeout(LONGEST)), None);
    }

    fn is_built(change: impl FnOnce(Builder) -> Builder) -> bool {
        change(Builder::default().instances(["redis://127.0.0.1"])).check().is_ok()
    }

    #[test]
    fn each_setting_is_allowed_up_to_its_edge_and_not_beyond() {
        let label = |length| is_built(|new| new.label("x".repeat(length)));
        assert_eq!([MAX_LABEL, MAX_LABEL + 1, 2 * MAX_LABEL].map(label), [true, false, false]);
        let drift = |ppm| Builder::default().drift_ppm(ppm).check_relations().is_ok();
        assert_eq!([MAX_DRIFT_PPM - 1, MAX_DRIFT_PPM, MAX_DRIFT_PPM + 1].map(drift), [true, false, false]);
        let ms = Duration::from_millis;
        let quarantine = |millis| is_built(|new| new.max_ttl(ms(500)).ttl(ms(500)).quarantine(ms(millis)));
        assert_eq!([499, 500, 86_400_000, 86_400_001].map(quarantine), [false, true, true, false]);
        let delays = |least, most| is_built(|new| new.retry_delay(ms(least), ms(most)));
        assert_eq!([delays(0, 1), delays(1, 1), delays(2, 1), delays(0, 0)], [true, true, false, false]);
        let ttl = |millis| is_built(|new| new.max_ttl(ms(500)).ttl(ms(millis)));
        assert_eq!([499, 500, 501].map(ttl), [true, true, false]);
        let hold = |time| is_built(|new| new.max_hold(time));
        assert_eq!([Duration::from_nanos(999_999), ms(1)].map(hold), [false, true]);
        let named = |namespace: &str| is_built(|new| new.namespace(namespace));
        assert_eq!(["redquorum", "redquorum:", "redquorum:a"].map(named), [true, false, false]);
    }
}
