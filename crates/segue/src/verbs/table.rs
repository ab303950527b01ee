//! Tables that the API has made, in aligned columns.

use serde_json::Value;

use super::failure::Failure;

/// Asks for a table; the version of every API since 1.15.
pub(super) const ACCEPT: &str = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json";

/// Between two columns.
const GAP: &str = "   ";

/// Which columns are shown, and how wide they are. Rows that come later keep to it.
#[derive(Debug)]
pub(super) struct Layout {
    /// Places in a row.
    shown: Vec<usize>,
    header: Vec<String>,
    namespaced: bool,
    widths: Vec<usize>,
}

impl Layout {
    /// The layout for a table and those of its kind that follow. `wide` shows what does not fit a terminal.
    pub fn of(table: &Value, wide: bool, namespaced: bool) -> Result<Self, Failure> {
        let Some(columns) = table["columnDefinitions"].as_array().filter(|_| table["kind"] == "Table") else {
            return Err(Failure::Refused("the server makes no table of this kind; try -o yaml".to_owned()));
        };
        let is_shown = |column: &Value| wide || column["priority"].as_i64().unwrap_or_default() == 0;
        let shown: Vec<usize> = (0..columns.len()).filter(|at| is_shown(&columns[*at])).collect();
        let name = |at: &usize| columns[*at]["name"].as_str().unwrap_or_default().to_uppercase();
        let mut header: Vec<String> = shown.iter().map(name).collect();
        if namespaced {
            header.insert(0, "NAMESPACE".to_owned());
        }
        let widths = header.iter().map(|text| text.chars().count()).collect();
        Ok(Self { shown, header, namespaced, widths })
    }

    pub fn header(&self) -> String {
        self.line(&self.header)
    }

    /// The cells of every row of a table.
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

    /// Makes room for all of them.
    pub fn fit(&mut self, rows: &[Vec<String>]) {
        for row in rows {
            for (width, cell) in self.widths.iter_mut().zip(row) {
                *width = (*width).max(cell.chars().count());
            }
        }
    }

    pub fn line(&self, cells: &[String]) -> String {
        let padded = cells.iter().zip(&self.widths).map(|(cell, width)| format!("{cell:width$}"));
        let line = padded.collect::<Vec<_>>().join(GAP);
        line.trim_end().to_owned() + "\n"
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
}
