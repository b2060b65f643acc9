//! The spans, as an exporter gets them.

use std::time::Duration;

use opentelemetry::trace::{SpanKind, Status};
use opentelemetry_sdk::trace::{InMemorySpanExporter, SpanData};
use redquorum::Redlock;
use redquorum_observability::{Error, handle_order, provider, subscriber};
use redquorum_testkit::{Fleet, Program};
use tracing::Instrument;

/// New instances sit out this time.
const TTL: Duration = Duration::from_secs(2);

fn attribute(span: &SpanData, key: &str) -> Option<String> {
    span.attributes.iter().find(|attribute| attribute.key.as_str() == key).map(|attribute| attribute.value.to_string())
}

/// Those below the span of this name, as operation and outcome, in the order in which they began.
fn below<'a>(spans: &'a [SpanData], name: &str) -> Result<Vec<(&'a str, String, &'a SpanData)>, Error> {
    let caller = spans.iter().find(|span| span.name == name).ok_or("the caller's own span is missing")?;
    let mut children: Vec<&SpanData> =
        spans.iter().filter(|span| span.parent_span_id == caller.span_context.span_id()).collect();
    children.sort_by_key(|span| span.start_time);
    assert!(children.iter().all(|span| span.span_context.trace_id() == caller.span_context.trace_id()));
    let outcome = |span| attribute(span, "redquorum.outcome").unwrap_or_default();
    Ok(children.into_iter().map(|span| (span.name.as_ref(), outcome(span), span)).collect())
}

#[tokio::test]
async fn spans_are_exported_below_the_callers_own() -> Result<(), Error> {
    let exporter = InMemorySpanExporter::default();
    let provider = provider(exporter.clone());
    tracing::subscriber::set_global_default(subscriber(&provider))?;
    let fleet = Fleet::start(&Program::required()?, 3)?;
    // A server that is late for a moment is no part of what is shown.
    let builder = Redlock::builder().instances(fleet.addresses()).instance_timeout(Duration::from_secs(1));
    let redlock = builder.namespace("shop:").ttl(TTL).max_ttl(TTL).connect().await?;
    let token = redlock.lock("first").acquire().await?.fencing_token();
    handle_order(&redlock).await?;
    fleet[0].kill()?;
    fleet[1].kill()?;
    let down = async { redlock.lock("order:42").try_acquire().await.err().map(|error| error.to_string()) };
    let error = down.instrument(tracing::info_span!("while two are down")).await.expect("there is no quorum");
    provider.force_flush()?;
    let spans = exporter.get_finished_spans()?;

    let order = below(&spans, "POST /orders")?;
    let outcomes: Vec<(&str, &str)> = order.iter().map(|(name, outcome, _)| (*name, outcome.as_str())).collect();
    let expected =
        [("acquire", "acquired"), ("try_acquire", "contended"), ("extend", "extended"), ("release", "released")];
    assert_eq!(outcomes, expected);
    for (name, outcome, span) in &order {
        assert_eq!(span.span_kind, SpanKind::Client, "{name}");
        assert_eq!(span.status, Status::Unset, "{name}: {outcome}");
        assert_eq!(attribute(span, "db.system.name").as_deref(), Some("redis"));
        assert_eq!(attribute(span, "db.operation.name").as_deref(), Some(*name));
        assert_eq!(attribute(span, "redquorum.resource").as_deref(), Some("shop:order:42"));
        assert_eq!(attribute(span, "error.type"), None, "{name}: {outcome}");
    }
    let own_token = attribute(order[0].2, "redquorum.fencing_token").expect("it was acquired");
    assert!(own_token.parse::<i64>()? > token.as_i64(), "{own_token} comes after {token}");
    assert!(order[1..].iter().all(|(_, _, span)| attribute(span, "redquorum.fencing_token").is_none()));
    assert!(order[0].2.events.iter().any(|event| event.name == "acquired"), "{:?}", order[0].2.events);

    let down = below(&spans, "while two are down")?;
    let [(name, outcome, span)] = &down[..] else { panic!("one try, one span") };
    assert_eq!((*name, outcome.as_str(), &span.span_kind), ("try_acquire", "failed", &SpanKind::Client));
    assert_eq!(attribute(span, "error.type").as_deref(), Some("no_quorum"));
    assert_eq!(span.status, Status::error(error));
    Ok(())
}
