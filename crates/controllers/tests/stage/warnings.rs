//! The warnings that are logged on this thread.

use std::{
    fmt::Debug,
    sync::{Arc, Mutex},
};

use tracing::{
    Event, Level, Metadata, Subscriber,
    field::{Field, Visit},
    span,
    subscriber::DefaultGuard,
};

/// Collects the messages of warnings and errors, from now until it is dropped.
pub struct Warnings {
    messages: Messages,
    _until: DefaultGuard,
}

impl Warnings {
    pub fn collect() -> Self {
        let messages = Messages::default();
        Self { messages: messages.clone(), _until: tracing::subscriber::set_default(messages) }
    }

    pub fn messages(&self) -> Vec<String> {
        self.messages.0.lock().unwrap().clone()
    }
}

#[derive(Clone, Default)]
struct Messages(Arc<Mutex<Vec<String>>>);

impl Subscriber for Messages {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        *metadata.level() <= Level::WARN
    }

    fn new_span(&self, _: &span::Attributes<'_>) -> span::Id {
        span::Id::from_u64(1)
    }

    fn record(&self, _: &span::Id, _: &span::Record<'_>) {}

    fn record_follows_from(&self, _: &span::Id, _: &span::Id) {}

    fn event(&self, event: &Event<'_>) {
        event.record(&mut self.clone());
    }

    fn enter(&self, _: &span::Id) {}

    fn exit(&self, _: &span::Id) {}
}

impl Visit for Messages {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        if field.name() == "message" {
            self.0.lock().unwrap().push(format!("{value:?}"));
        }
    }
}
