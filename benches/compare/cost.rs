//! What work costs besides time: processor time of the client and of the servers, bytes, allocations.

use std::time::Duration;

use redquorum_testkit::Server;
use rustix::time::{ClockId, clock_gettime};
use stats_alloc::{INSTRUMENTED_SYSTEM, StatsAlloc};

use crate::Outcome;
use crate::results::Metric;

#[global_allocator]
static ALLOCATOR: &StatsAlloc<std::alloc::System> = &INSTRUMENTED_SYSTEM;

/// All that was spent until some moment.
pub(crate) struct Cost {
    client: Duration,
    servers: f64,
    sent: f64,
    received: f64,
    allocations: usize,
}

impl Cost {
    /// Until now. `servers` are those that answer.
    pub(crate) fn until_now(servers: &[Server]) -> Outcome<Self> {
        let used = clock_gettime(ClockId::ProcessCPUTime);
        let client = Duration::new(u64::try_from(used.tv_sec)?, u32::try_from(used.tv_nsec)?);
        let sum = |fields: &[(&str, &str)]| -> Outcome<f64> {
            let mut sum = 0.0;
            for server in servers {
                for (section, field) in fields {
                    sum += server.info(section, field)?.ok_or("INFO lacks a field")?.parse::<f64>()?;
                }
            }
            Ok(sum)
        };
        Ok(Self {
            client,
            servers: sum(&[("cpu", "used_cpu_user"), ("cpu", "used_cpu_sys")])?,
            sent: sum(&[("stats", "total_net_input_bytes")])?,
            received: sum(&[("stats", "total_net_output_bytes")])?,
            allocations: ALLOCATOR.stats().allocations,
        })
    }

    /// What was spent since `before`, for each of so many.
    #[expect(clippy::cast_precision_loss, reason = "counts are small")]
    pub(crate) fn since(&self, before: &Self, count: usize) -> [Metric; 5] {
        let each = |spent: f64| if count == 0 { f64::NAN } else { spent / count as f64 };
        [
            ("client CPU", each((self.client.saturating_sub(before.client)).as_secs_f64() * 1e6), "us"),
            ("servers CPU", each((self.servers - before.servers) * 1e6), "us"),
            ("sent", each(self.sent - before.sent), "bytes"),
            ("received", each(self.received - before.received), "bytes"),
            ("allocations", each(self.allocations.saturating_sub(before.allocations) as f64), "allocations"),
        ]
    }
}
