//! A service whose spans go to OpenTelemetry, with those of the lock below its own.

use opentelemetry::trace::TracerProvider;
use opentelemetry_sdk::trace::{SdkTracerProvider, SpanExporter};
use redquorum::Redlock;
use tracing::{Instrument, Level, Subscriber};
use tracing_subscriber::filter::Targets;
use tracing_subscriber::layer::{Layer, SubscriberExt};
use tracing_subscriber::registry::Registry;

/// What goes wrong here.
pub type Error = Box<dyn std::error::Error + Send + Sync>;

/// Gives spans to the exporter, many at once. A service would take the one of `opentelemetry-otlp`.
#[must_use]
pub fn provider(exporter: impl SpanExporter + 'static) -> SdkTracerProvider {
    SdkTracerProvider::builder().with_batch_exporter(exporter).build()
}

/// Makes spans of OpenTelemetry of those of `tracing`: from `info` on, and of the lock from `debug` on.
pub fn subscriber(provider: &SdkTracerProvider) -> impl Subscriber + Send + Sync + use<> {
    let filter = Targets::new().with_default(Level::INFO).with_target("redquorum", Level::DEBUG);
    let layer = tracing_opentelemetry::layer().with_tracer(provider.tracer("orders"));
    Registry::default().with(layer.with_filter(filter))
}

/// A request that needs a lock, and finds another lock taken.
///
/// # Errors
/// When the lock cannot be had, or is had twice.
pub async fn handle_order(redlock: &Redlock) -> Result<(), Error> {
    let request = async {
        let guard = redlock.lock("order:42").acquire().await?;
        if redlock.lock("order:42").try_acquire().await.is_ok() {
            return Err("the lock was granted twice".into());
        }
        guard.extend().await?;
        guard.release().await?;
        Ok(())
    };
    request.instrument(tracing::info_span!("POST /orders", "otel.kind" = "server")).await
}
