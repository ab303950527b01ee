//! Watch: the events of a kind from a revision on, as a stream of lines.
use std::{collections::VecDeque, sync::Arc, time::Duration};

use bytes::{BufMut, Bytes, BytesMut};
use futures_util::stream;
use http::{Response, StatusCode};
use http_body::Frame;
use http_body_util::{BodyExt, StreamBody};
use serde_json::{Value, json};
use tokio::time::{Instant, sleep_until};

use crate::{
    handlers::get::{Filter, revision},
    registry::resource::Resource,
    request::negotiation::Representation,
    response::{self, Body},
    server::{Call, Server},
    status::{StatusError, cause},
    store::{Entry, Event, Query, RevisionError, Watcher},
    table,
};

/// The interval of bookmarks, for clients that ask for them.
const BOOKMARKS: Duration = Duration::from_mins(1);

/// The longest watch. A client continues with a new watch from its last revision.
const LONGEST: Duration = Duration::from_mins(30);

/// Events that are sent in one piece when many are due.
const PIECE: usize = 64 * 1024;

/// How a watch begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Start {
    /// With everything there is.
    Everything,
    /// With everything there is, and a bookmark that says so.
    EverythingMarked,
    /// After a revision.
    After(u64),
    /// With what happens from now on.
    Now,
}

impl Start {
    fn of(call: &Call<'_>) -> Result<Self, StatusError> {
        let query = &call.query;
        let from = revision(query.get("resourceVersion"))?;
        if query.has("sendInitialEvents") {
            check_initial_events(call)?;
            return Ok(match (query.flag("sendInitialEvents"), from) {
                (true, _) => Self::EverythingMarked,
                (false, Some(from)) if from > 0 => Self::After(from),
                (false, _) => Self::Now,
            });
        }
        Ok(match from {
            None | Some(0) => Self::Everything,
            Some(from) => Self::After(from),
        })
    }
}

fn check_initial_events(call: &Call<'_>) -> Result<(), StatusError> {
    let forbid = |field: &str, why: &str| {
        let cause = cause("FieldValueForbidden", field, format!("Forbidden: {why}"));
        Err(StatusError::invalid("meta.k8s.io", "ListOptions", "", &[cause]))
    };
    if call.query.get("resourceVersionMatch") != "NotOlderThan" {
        let why = "sendInitialEvents requires setting resourceVersionMatch to NotOlderThan";
        return forbid("resourceVersionMatch", why);
    }
    if call.query.flag("sendInitialEvents") && !call.query.flag("allowWatchBookmarks") {
        return forbid("sendInitialEvents", "sendInitialEvents requires setting allowWatchBookmarks to true");
    }
    Ok(())
}

/// Something to be sent. What was there before is kept as the store has it: a thousand clients that begin at once and
/// read slowly share it.
enum Due {
    Line(Bytes),
    There(Arc<Entry>),
}

/// A watch in progress. It buffers no events: a client that reads slowly falls behind in the store's history, and gets
/// the error `Expired` when the history no longer holds its revision.
struct Watch {
    server: Server,
    resource: Arc<Resource>,
    filter: Filter,
    representation: Representation,
    watcher: Option<Watcher>,
    due: VecDeque<Due>,
    bookmarks: bool,
    next_bookmark: Instant,
    end: Instant,
    columns_sent: bool,
}

impl Server {
    pub(crate) fn watch(&self, call: &Call<'_>) -> Result<Response<Body>, StatusError> {
        let start = Start::of(call)?;
        let filter = Filter::of(call)?;
        let wanted = revision(call.query.get("resourceVersion"))?.unwrap_or_default();
        let current = self.store().revision();
        if wanted > current {
            return Err(StatusError::future(wanted, current));
        }
        let seconds = call.query.number("timeoutSeconds")?.filter(|seconds| *seconds > 0);
        let patience = seconds.map_or(LONGEST, Duration::from_secs).min(LONGEST);
        let now = Instant::now();
        let mut watch = Watch {
            server: self.clone(),
            resource: Arc::clone(&call.resource),
            filter,
            representation: call.representation,
            watcher: None,
            due: VecDeque::new(),
            bookmarks: call.query.flag("allowWatchBookmarks"),
            next_bookmark: now + BOOKMARKS,
            end: now + patience,
            columns_sent: false,
        };
        watch.begin(start, current)?;
        let frames = stream::unfold(watch, |mut watch| async move {
            let piece = watch.next().await?;
            Some((Ok(Frame::data(piece)), watch))
        });
        let mut response = response::json(StatusCode::OK, "");
        *response.body_mut() = StreamBody::new(frames).boxed_unsync();
        Ok(response)
    }
}

impl Watch {
    fn begin(&mut self, start: Start, current: u64) -> Result<(), StatusError> {
        let from = match start {
            Start::After(from) => from,
            Start::Now => current,
            Start::Everything | Start::EverythingMarked => self.send_everything(start)?,
        };
        match self.server.store().watch(&self.resource.storage(), from) {
            Ok(watcher) => self.watcher = Some(watcher),
            Err(RevisionError::Expired { oldest }) => self.expire(from, oldest),
            Err(RevisionError::Future { newest }) => return Err(StatusError::future(from, newest)),
        }
        Ok(())
    }

    /// Queues what there is, and says as of which revision.
    fn send_everything(&mut self, start: Start) -> Result<u64, StatusError> {
        let storage = self.resource.storage();
        let query = Query { namespace: self.filter.namespace(), ..Query::default() };
        let listing = self
            .server
            .store()
            .list(&storage, &query)
            .map_err(|error| StatusError::internal(error.to_string()))?;
        for (place, entry) in &listing.items {
            if self.filter.matches(&place.namespace, entry) {
                self.due.push_back(Due::There(Arc::clone(entry)));
            }
        }
        if start == Start::EverythingMarked {
            let bookmark = self.bookmark(listing.revision, true);
            self.due.push_back(Due::Line(bookmark));
        }
        Ok(listing.revision)
    }

    /// The next piece of the stream; nothing when it is over.
    async fn next(&mut self) -> Option<Bytes> {
        loop {
            if !self.due.is_empty() {
                return Some(self.piece());
            }
            let watcher = self.watcher.as_mut()?;
            let deadline = if self.bookmarks { self.next_bookmark.min(self.end) } else { self.end };
            tokio::select! {
                biased;
                event = watcher.next() => match event {
                    Ok(event) => self.take(&event),
                    Err(RevisionError::Expired { oldest }) => self.expire(0, oldest),
                    Err(RevisionError::Future { .. }) => self.watcher = None,
                },
                () = sleep_until(deadline) => self.on_time(),
            }
        }
    }

    /// As many lines as are due, up to about a size that a slow client need not take at once.
    fn piece(&mut self) -> Bytes {
        let mut piece = BytesMut::new();
        while let Some(due) = self.due.pop_front() {
            let line = match due {
                Due::Line(line) => line,
                Due::There(entry) => self.line("ADDED", &entry.bytes),
            };
            if piece.is_empty() && self.due.is_empty() {
                return line;
            }
            piece.put(line);
            if piece.len() >= PIECE {
                break;
            }
        }
        piece.freeze()
    }

    fn take(&mut self, event: &Event) {
        let namespace = &event.key.place.namespace;
        let was = event.before.as_ref().is_some_and(|entry| self.filter.matches(namespace, entry));
        let is = event.now().is_some_and(|entry| self.filter.matches(namespace, entry));
        let line = match (was, is) {
            (false, true) => self.line("ADDED", &event.entry.bytes),
            (true, true) => self.line("MODIFIED", &event.entry.bytes),
            (true, false) if event.deleted => self.line("DELETED", &event.entry.bytes),
            // It left the selection: the client hears of the object as it knew it, with the revision of the change.
            (true, false) => {
                let bytes = event.before.as_ref().map(|entry| entry.bytes.clone()).unwrap_or_default();
                let mut object: Value = serde_json::from_slice(&bytes).unwrap_or_default();
                object["metadata"]["resourceVersion"] = json!(event.revision().to_string());
                self.line("DELETED", &object.to_string().into())
            }
            (false, false) => return,
        };
        self.due.push_back(Due::Line(line));
    }

    fn on_time(&mut self) {
        if self.bookmarks {
            // Everything up to the newest revision has been sent: no event was due when the interval ended.
            let progress = self.watcher.as_ref().and_then(|watcher| watcher.progress().ok());
            if let Some(seen) = progress {
                let bookmark = self.bookmark(seen, false);
                self.due.push_back(Due::Line(bookmark));
            }
            self.next_bookmark = Instant::now() + BOOKMARKS;
        }
        if Instant::now() >= self.end {
            self.watcher = None;
        }
    }

    /// The error is an event of the stream and not the status of the response: only then do clients list again.
    fn expire(&mut self, from: u64, oldest: u64) {
        let error = StatusError::expired(format!("too old resource version: {from} ({oldest})"));
        let line = format!("{{\"type\":\"ERROR\",\"object\":{}}}\n", error.json());
        self.due.push_back(Due::Line(line.into()));
        self.watcher = None;
    }

    fn line(&mut self, ty: &str, bytes: &Bytes) -> Bytes {
        let object = match self.representation {
            Representation::Table { version, include } => {
                let object = response::value(&self.resource, bytes);
                let request = table::Request { include, version, now: self.server.environment().now() };
                let heads = !std::mem::replace(&mut self.columns_sent, true);
                table::single(&self.resource.columns, &object, heads, request).to_string().into()
            }
            representation => {
                response::object(&self.resource, bytes, representation, self.server.environment().now())
            }
        };
        let mut line = BytesMut::with_capacity(object.len() + 40);
        line.put_slice(b"{\"type\":\"");
        line.put_slice(ty.as_bytes());
        line.put_slice(b"\",\"object\":");
        line.put(object);
        line.put_slice(b"}\n");
        line.freeze()
    }

    fn bookmark(&self, revision: u64, initial_end: bool) -> Bytes {
        let mut meta = json!({"resourceVersion": revision.to_string()});
        if initial_end {
            meta["annotations"] = json!({"k8s.io/initial-events-end": "true"});
        }
        let (kind, api_version) = match self.representation {
            Representation::Json => (self.resource.kind.clone(), self.resource.api_version()),
            Representation::Metadata { version } => {
                ("PartialObjectMetadata".to_owned(), version.api_version().to_owned())
            }
            // A row without cells, so that the client reads the revision where it reads all others.
            Representation::Table { version, include } => {
                let object = json!({"kind": self.resource.kind, "apiVersion": self.resource.api_version(), "metadata": meta});
                let request = table::Request { include, version, now: self.server.environment().now() };
                let table = table::single(&self.resource.columns, &object, !self.columns_sent, request);
                return format!("{{\"type\":\"BOOKMARK\",\"object\":{table}}}\n").into();
            }
        };
        let object = json!({"kind": kind, "apiVersion": api_version, "metadata": meta});
        format!("{{\"type\":\"BOOKMARK\",\"object\":{object}}}\n").into()
    }
}
