//! Streamed responses: logs of containers, and events of a watch.

use bytes::Bytes;
use http_body_util::BodyExt;
use kube::client::Body;
use serde_json::Value;

use super::failure::Failure;
use crate::output::Error;

/// A body that is read as it arrives.
pub(super) struct Lines {
    body: Body,
    begun: Vec<u8>,
}

/// A change of a watched object.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Event {
    pub deleted: bool,
    pub object: Value,
}

impl Lines {
    pub fn new(body: Body) -> Self {
        Self { body, begun: Vec::new() }
    }

    /// Returns the next bytes, or none at the end.
    pub async fn piece(&mut self) -> Result<Option<Bytes>, Failure> {
        while let Some(frame) = self.body.frame().await {
            let frame = frame.map_err(|error| broken(&error.to_string()))?;
            if let Ok(piece) = frame.into_data() {
                return Ok(Some(piece));
            }
        }
        Ok(None)
    }

    /// Returns the next line without its end, or none at the end of the stream.
    pub async fn line(&mut self) -> Result<Option<Vec<u8>>, Failure> {
        let mut seen = 0;
        loop {
            if let Some(end) = self.begun[seen..].iter().position(|byte| *byte == b'\n') {
                let rest = self.begun.split_off(seen + end + 1);
                let mut line = std::mem::replace(&mut self.begun, rest);
                line.pop();
                return Ok(Some(line));
            }
            seen = self.begun.len();
            match self.piece().await? {
                Some(piece) => self.begun.extend_from_slice(&piece),
                None if self.begun.is_empty() => return Ok(None),
                None => return Ok(Some(std::mem::take(&mut self.begun))),
            }
        }
    }

    /// Returns the next event, or none when the server ends the watch, as it does from time to time.
    pub async fn event(&mut self) -> Result<Option<Event>, Failure> {
        loop {
            let Some(line) = self.line().await? else { return Ok(None) };
            let Ok(mut event) = serde_json::from_slice::<Value>(&line) else {
                // Cut off in the middle: the same as an end.
                return Ok(None);
            };
            let object = event["object"].take();
            match event["type"].as_str().unwrap_or_default() {
                "BOOKMARK" => {}
                // The history no longer reaches back so far: begin again.
                "ERROR" if object["code"] == 410 => return Ok(None),
                "ERROR" => return Err(broken(object["message"].as_str().unwrap_or("no reason given"))),
                kind => return Ok(Some(Event { deleted: kind == "DELETED", object })),
            }
        }
    }
}

fn broken(why: &str) -> Failure {
    Failure::Failed(Error::Failed(format!("the server broke off: {why}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn lines_and_events_are_told_apart_wherever_the_pieces_end() {
        let text = "{\"type\":\"BOOKMARK\",\"object\":{}}\n{\"type\":\"DELETED\",\"object\":1}\n{\"type\":\"ERROR\",\
                    \"object\":{\"code\":410}}\n";
        let mut lines = Lines::new(Body::from(text.as_bytes().to_vec()));
        assert_eq!(lines.event().await.unwrap(), Some(Event { deleted: true, object: Value::from(1) }));
        assert_eq!(lines.event().await.unwrap(), None);
        let mut lines = Lines::new(Body::from(b"a\n\nb".to_vec()));
        let mut all = Vec::new();
        while let Some(line) = lines.line().await.unwrap() {
            all.push(line);
        }
        assert_eq!(all, [&b"a"[..], b"", b"b"]);
    }
}
