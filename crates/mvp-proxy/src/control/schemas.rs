//! OpenAPI documents that clients requested: version 3 by hash, and version 2 merged from all
//! members. Entry item: [`Schemas`].

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use arc_swap::ArcSwapOption;
use bytes::Bytes;
use futures_util::future::join_all;
use http::{HeaderValue, StatusCode};
use mvp_core::discovery::Limits;
use mvp_core::member::{Member, Presence};
use mvp_core::openapi::v2::{self, Format};
use mvp_core::snapshot::{Encoded, etag};
use mvp_core::{Snapshot, Timestamp};
use tokio::time::timeout;

use super::{Ask, get};
use crate::metrics::Metrics;

/// A document, ready to be sent.
#[derive(Debug)]
pub(crate) struct Schema {
    pub(crate) content_type: HeaderValue,
    /// The entity tag, with its quotes.
    pub(crate) etag: Box<str>,
    pub(crate) encoded: Encoded,
}

impl Schema {
    /// The size that counts against the limit; an empty document is not free.
    fn cost(&self) -> usize {
        self.encoded.body.len() + 1024
    }
}

/// The OpenAPI documents that are kept, shared by all workers.
#[derive(Debug)]
pub(crate) struct Schemas {
    limits: Limits,
    documents: Mutex<Kept>,
    json: Merged,
    protobuf: Merged,
}

/// The limit of kept version 3 documents, in bytes.
const MAX_KEPT: usize = 64 << 20;
/// The age from which members are asked again when a client requests version 2.
const FRESH_FOR: Duration = Duration::from_secs(1);
/// The time limits for a member whose document is known, and for any other.
const SHORT: Duration = Duration::from_secs(2);
const LONG: Duration = Duration::from_secs(10);
/// The time limit for a member that failed last time.
const FAILED: Duration = Duration::from_millis(300);

/// Version 3 documents, the oldest first.
#[derive(Debug, Default)]
struct Kept {
    documents: BTreeMap<Key, Arc<Schema>>,
    order: VecDeque<Key>,
    bytes: usize,
}

/// The key in the index, the hash, and whether the document is protobuf.
type Key = (Box<str>, Box<str>, bool);

impl Schemas {
    /// Keeps documents of members within these limits. The version 2 document of Kubernetes has 4 MB.
    pub(crate) fn new(limits: Limits) -> Schemas {
        let (json, protobuf) = (Merged::default(), Merged::default());
        Schemas { limits, documents: Mutex::default(), json, protobuf }
    }

    /// The limits of a member's document.
    pub(crate) fn limits(&self) -> Limits {
        self.limits
    }

    /// The document with this hash, if it is kept.
    pub(crate) fn kept(&self, key: &str, hash: &str, format: Format) -> Option<Arc<Schema>> {
        let kept = self.documents.lock().unwrap_or_else(PoisonError::into_inner);
        kept.documents.get(&(key.into(), hash.into(), format == Format::Protobuf)).cloned()
    }

    /// Keeps a document under its hash. Drops the oldest ones above the limit.
    pub(crate) fn keep(&self, key: &str, hash: &str, format: Format, schema: Arc<Schema>) {
        let mut kept = self.documents.lock().unwrap_or_else(PoisonError::into_inner);
        let key: Key = (key.into(), hash.into(), format == Format::Protobuf);
        let size = schema.cost();
        if size > MAX_KEPT || kept.documents.contains_key(&key) {
            return;
        }
        kept.documents.insert(key.clone(), schema);
        kept.order.push_back(key);
        kept.bytes += size;
        while kept.bytes > MAX_KEPT
            && let Some(oldest) = kept.order.pop_front()
        {
            let gone = kept.documents.remove(&oldest);
            kept.bytes = kept.bytes.saturating_sub(gone.map_or(0, |gone| gone.cost()));
        }
    }

    /// The merged version 2 document; `None` if no member has one.
    pub(crate) async fn v2<A: Ask>(
        &self,
        format: Format,
        snapshot: &Snapshot,
        now: impl Fn() -> Timestamp,
        reach: impl Fn(&Member) -> Option<A>,
        metrics: &Metrics,
    ) -> Option<Arc<Schema>> {
        let merged = self.merged(format);
        if let Some(current) = merged.current(now()) {
            return current;
        }
        let mut own = merged.own.lock().await;
        // Others may have waited for the same.
        if let Some(current) = merged.current(now()) {
            return current;
        }
        own.refresh(format, self.limits, snapshot, reach, metrics).await;
        let schema = own.merged(format, snapshot).await;
        let etag = |(id, own): (&Arc<str>, &OwnDocument)| Some((Arc::clone(id), own.etag.clone()?));
        let etags = own.0.iter().filter_map(etag).collect();
        let checked = Checked { schema: schema.clone(), etags, at: now() };
        merged.checked.store(Some(Arc::new(checked)));
        schema
    }

    /// The entity tag of the version 2 document that is known of a member.
    pub(crate) fn etag_of(&self, member: &str, format: Format) -> Option<HeaderValue> {
        self.merged(format).checked.load().as_ref()?.etags.get(member).cloned()
    }

    fn merged(&self, format: Format) -> &Merged {
        match format {
            Format::Json => &self.json,
            Format::Protobuf => &self.protobuf,
        }
    }
}

/// The version 2 documents in one format.
#[derive(Debug, Default)]
struct Merged {
    own: tokio::sync::Mutex<Own>,
    checked: ArcSwapOption<Checked>,
}

/// The merged document, and when the members last confirmed theirs.
#[derive(Debug)]
struct Checked {
    schema: Option<Arc<Schema>>,
    etags: BTreeMap<Arc<str>, HeaderValue>,
    at: Timestamp,
}

impl Merged {
    fn current(&self, now: Timestamp) -> Option<Option<Arc<Schema>>> {
        let checked = self.checked.load_full()?;
        (now.since(checked.at) < FRESH_FOR).then(|| checked.schema.clone())
    }
}

/// The last document of each member.
#[derive(Debug, Default)]
struct Own(BTreeMap<Arc<str>, OwnDocument>, Option<(Vec<Bytes>, Arc<Schema>)>);

#[derive(Debug, Default)]
struct OwnDocument {
    document: Option<Bytes>,
    etag: Option<HeaderValue>,
    failing: bool,
}

impl Own {
    /// Asks every member whether its document has changed.
    async fn refresh<A: Ask>(
        &mut self,
        format: Format,
        limits: Limits,
        snapshot: &Snapshot,
        reach: impl Fn(&Member) -> Option<A>,
        metrics: &Metrics,
    ) {
        self.0.retain(|id, _| snapshot.member_by_id(id).is_some());
        let present = snapshot.members().filter(|member| member.presence == Presence::Present);
        let asked = present.filter_map(|member| {
            let known = self.0.get(&member.id);
            let etag = known.and_then(|known| known.etag.clone());
            let wait = match known {
                Some(known) if known.failing => FAILED,
                Some(known) if known.document.is_some() => SHORT,
                _ => LONG,
            };
            let ask = reach(member)?;
            let id = Arc::clone(&member.id);
            Some(async move {
                let fetched = timeout(wait, fetch(&ask, format, limits, etag.as_ref())).await;
                (id, fetched.unwrap_or_else(|_| Err(format!("no answer within {wait:?}"))))
            })
        });
        let answers = join_all(asked.collect::<Vec<_>>()).await;
        for (id, fetched) in answers {
            // Members of one version mostly have the same document: it is kept once.
            let shared = |document: Bytes| {
                let same =
                    |own: &OwnDocument| own.document.clone().filter(|known| *known == document);
                self.0.values().find_map(same).unwrap_or(document)
            };
            let fetched = fetched.map(|fetched| match fetched {
                Fetched::Changed(document, etag) => Fetched::Changed(shared(document), etag),
                other => other,
            });
            let own = self.0.entry(Arc::clone(&id)).or_default();
            let failed = fetched.is_err();
            match fetched {
                Ok(Fetched::Unchanged) => {}
                Ok(Fetched::Changed(document, etag)) => {
                    (own.document, own.etag) = (Some(document), etag);
                }
                Ok(Fetched::None) => (own.document, own.etag) = (None, None),
                Err(problem) => {
                    metrics.discovery_failed();
                    if !own.failing {
                        tracing::warn!(member = %id, error = problem, "OpenAPI v2 failed; the last known document stays in use");
                    }
                }
            }
            own.failing = failed;
        }
    }

    /// The merged document. Where documents differ, that of the newest member counts.
    async fn merged(&mut self, format: Format, snapshot: &Snapshot) -> Option<Arc<Schema>> {
        let mut members: Vec<&Member> = snapshot.members().collect();
        // They are sorted by ID already.
        members.sort_by_key(|member| std::cmp::Reverse(member.view.release));
        let mut documents: Vec<Bytes> = Vec::new();
        for member in members {
            let own = self.0.get(&member.id).and_then(|own| own.document.clone());
            documents.extend(own.filter(|own| !documents.contains(own)));
        }
        if let Some((of, schema)) = &self.1
            && *of == documents
        {
            return Some(Arc::clone(schema));
        }
        let of = documents.clone();
        // Megabytes of text: not on a thread that serves requests.
        let merged = tokio::task::spawn_blocking(move || {
            let body = v2::merge(&documents, format)?;
            Some((etag(&body), body))
        });
        let (etag, body) = merged.await.ok()??;
        let content_type = HeaderValue::from_static(content_type(format));
        let schema = Arc::new(Schema { content_type, etag, encoded: Encoded::new(body) });
        self.1 = Some((of, Arc::clone(&schema)));
        Some(schema)
    }
}

/// The response of a member.
enum Fetched {
    Unchanged,
    Changed(Bytes, Option<HeaderValue>),
    None,
}

const V2: &str = "/openapi/v2";

async fn fetch(
    ask: &impl Ask,
    format: Format,
    limits: Limits,
    etag: Option<&HeaderValue>,
) -> Result<Fetched, String> {
    let answer = get(ask, V2, content_type(format), etag, limits.max_bytes).await?;
    match answer.status {
        StatusCode::NOT_MODIFIED if etag.is_some() => return Ok(Fetched::Unchanged),
        StatusCode::NOT_FOUND | StatusCode::NOT_ACCEPTABLE => return Ok(Fetched::None),
        _ => {}
    }
    let body = answer.ok()?;
    let prepared = tokio::task::spawn_blocking(move || v2::prepare(body, format, &limits)).await;
    let prepared = prepared.map_err(|error| error.to_string())?;
    let document = prepared.map_err(|error| format!("{V2}: {error}"))?;
    Ok(Fetched::Changed(document, answer.etag))
}

/// The media type of a version 2 document.
pub(crate) fn content_type(format: Format) -> &'static str {
    match format {
        Format::Json => "application/json",
        Format::Protobuf => "application/com.github.proto-openapi.spec.v2@v1.0+protobuf",
    }
}
