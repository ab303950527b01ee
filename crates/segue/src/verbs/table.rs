//! Tables that the API has made, in aligned columns.

use serde_json::Value;

use super::failure::Failure;

/// Asks for a table; the version of every API since 1.15.
pub(super) const ACCEPT: &str = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json";

/// The gap between two columns.
const GAP: &str = "   ";

/// Which columns are shown, and how wide they are. Rows that come later keep to it.
#[derive(Debug)]
pub(super) struct Layout {
    /// Places in a row.
    shown: Vec<usize>,
    header: Vec<String>,
    namespaced: bool,
    widths: Vec<usize>,
    /// The width of the terminal, if there is one: the last column is cut there, so that a row is a line.
    terminal: Option<usize>,
}

impl Layout {
    /// Returns the layout of a table, for the tables of its kind that follow, too. `wide` shows all columns.
    pub fn of(table: &Value, wide: bool, namespaced: bool) -> Result<Self, Failure> {
        let Some(columns) = table["columnDefinitions"].as_array().filter(|_| table["kind"] == "Table") else {
            return Err(Failure::Refused("the server has no table for this kind; use -o yaml".to_owned()));
        };
        let is_shown = |column: &Value| wide || column["priority"].as_i64().unwrap_or_default() == 0;
        let shown: Vec<usize> = (0..columns.len()).filter(|at| is_shown(&columns[*at])).collect();
        let name = |at: &usize| columns[*at]["name"].as_str().unwrap_or_default().to_uppercase();
        let mut header: Vec<String> = shown.iter().map(name).collect();
        if namespaced {
            header.insert(0, "NAMESPACE".to_owned());
        }
        let widths = header.iter().map(|text| text.chars().count()).collect();
        let size = terminal_size::terminal_size().filter(|_| !wide);
        let terminal = size.map(|(terminal_size::Width(width), _)| usize::from(width));
        Ok(Self { shown, header, namespaced, widths, terminal })
    }

    pub fn header(&self) -> String {
        self.line(&self.header)
    }

    /// Returns the cells of each row of a table.
    pub fn cells(&self, table: &Value) -> Vec<Vec<String>> {
        let rows = table["rows"].as_array().map(Vec::as_slice).unwrap_or_default();
        let cells = |row: &Value| {
            let mut cells: Vec<String> = self.shown.iter().map(|at| text(&row["cells"][*at])).collect();
            if self.namespaced {
                cells.insert(0, text(&row["object"]["metadata"]["namespace"]));
            }
            cells
        };
        rows.iter().map(cells).collect()
    }

    /// Widens columns to fit all rows. Returns whether any became wider. The last one needs no width: nothing follows it.
    pub fn fit(&mut self, rows: &[Vec<String>]) -> bool {
        let before = self.widths.clone();
        let last = self.widths.len().saturating_sub(1);
        for row in rows {
            for (width, cell) in self.widths[..last].iter_mut().zip(row) {
                *width = (*width).max(cell.chars().count());
            }
        }
        self.widths != before
    }

    pub fn line(&self, cells: &[String]) -> String {
        let padded = cells.iter().zip(&self.widths).map(|(cell, width)| format!("{cell:width$}"));
        let line = padded.collect::<Vec<_>>().join(GAP);
        let line = line.trim_end();
        match self.terminal {
            Some(width) if line.chars().count() > width => {
                line.chars().take(width.saturating_sub(1)).collect::<String>() + "…\n"
            }
            _ => line.to_owned() + "\n",
        }
    }
}

fn text(cell: &Value) -> String {
    match cell {
        Value::Null => "<none>".to_owned(),
        Value::String(text) => text.replace('\n', " "),
        other => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn columns_are_aligned_and_the_wide_ones_wait_to_be_asked_for() {
        let table = json!({
            "kind": "Table",
            "columnDefinitions": [{"name": "Name"}, {"name": "Ready"}, {"name": "Node", "priority": 1}],
            "rows": [
                {"cells": ["a", 1, "n"], "object": {"metadata": {"namespace": "x"}}},
                {"cells": ["longer", null, "n"], "object": {"metadata": {"namespace": "y"}}},
            ],
        });
        let printed = |wide, namespaced| {
            let mut layout = Layout::of(&table, wide, namespaced).unwrap();
            let rows = layout.cells(&table);
            layout.fit(&rows);
            rows.iter().fold(layout.header(), |text, row| text + &layout.line(row))
        };
        assert_eq!(printed(false, false), "NAME     READY\na        1\nlonger   <none>\n");
        assert_eq!(
            printed(true, true),
            "NAMESPACE   NAME     READY    NODE\nx           a        1        n\ny           longer   <none>   n\n"
        );
        assert!(Layout::of(&json!({"kind": "PodList"}), false, false).is_err());
    }

    #[test]
    fn a_sentence_is_cut_at_the_width_of_the_terminal_and_moves_no_column() {
        let table = json!({
            "kind": "Table", "columnDefinitions": [{"name": "Name"}, {"name": "Doing"}],
            "rows": [{"cells": ["a", "waiting for 1 of 2 replicas to be ready"]}],
        });
        let mut layout = Layout { terminal: Some(20), ..Layout::of(&table, false, false).unwrap() };
        let rows = layout.cells(&table);
        assert!(!layout.fit(&rows), "no header is needed again for a longer sentence");
        assert_eq!(layout.line(&rows[0]), "a      waiting for …\n");
        assert_eq!(Layout { terminal: None, ..layout }.line(&rows[0]).len(), 47);
    }
}
