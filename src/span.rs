//! Spans around what callers wait for, in the words of OpenTelemetry's conventions for calls of a database.

use std::fmt::Display;

use tracing::Span;
use tracing::field::display;

/// A span for one operation. Its name is the operation, and the same for all locks; what differs is an attribute.
macro_rules! operation {
    ($operation:literal, $resource:expr) => {
        tracing::debug_span!(
            $operation,
            "otel.kind" = "client",
            "otel.status_code" = tracing::field::Empty,
            "otel.status_description" = tracing::field::Empty,
            "db.system.name" = "redis",
            "db.operation.name" = $operation,
            "error.type" = tracing::field::Empty,
            "redquorum.resource" = $resource,
            "redquorum.fencing_token" = tracing::field::Empty,
            "redquorum.outcome" = tracing::field::Empty,
        )
    };
}
pub(crate) use operation;

/// The operation has come to its end as it should, which may be that another client has the lock.
pub(crate) fn ended(span: &Span, outcome: &'static str) {
    span.record("redquorum.outcome", outcome);
}

/// The operation has failed.
pub(crate) fn failed(span: &Span, kind: &'static str, error: &dyn Display) {
    span.record("redquorum.outcome", "failed");
    span.record("error.type", kind);
    span.record("otel.status_code", "ERROR");
    span.record("otel.status_description", display(error));
}
