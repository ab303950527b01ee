//! Capacity and traffic of both versions over time, as a picture.

use controllers::rehearsal::{Rehearsal, Row};

use super::timetable::Timetable;

const COLUMNS: usize = 60;
const LEVELS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];

/// Three lines for a terminal: each a value over time, low to high.
pub(super) fn terminal(rehearsal: &Rehearsal) -> String {
    let peak = rehearsal.peak().max(1);
    let line = |name: &str, top: u32, value: fn(&Row) -> u32| {
        let cells: String = (0..COLUMNS).map(|column| level(value(at(rehearsal, column)), top)).collect();
        format!("{name:>12} {cells} {top}%\n")
    };
    let mut text = line("old capacity", peak, |row| row.old.capacity)
        + &line("new capacity", peak, |row| row.new.capacity);
    if splits(rehearsal) {
        text += &line("new traffic", 100, |row| row.new.weight.unwrap_or_default());
    }
    text
}

/// Whether traffic is split between the versions.
fn splits(rehearsal: &Rehearsal) -> bool {
    rehearsal.rows.iter().any(|row| row.new.weight.is_some())
}

/// The row that holds at this column's time.
fn at(rehearsal: &Rehearsal, column: usize) -> &Row {
    let end = rehearsal.seconds();
    let time = end * column as u64 / (COLUMNS as u64 - 1);
    let rows = &rehearsal.rows;
    let next = rows.partition_point(|row| row.at <= time);
    &rows[next.saturating_sub(1)]
}

fn level(value: u32, top: u32) -> char {
    if value == 0 {
        return ' ';
    }
    let step = (u64::from(value) * 8).div_ceil(u64::from(top)).clamp(1, 8);
    LEVELS[usize::try_from(step).unwrap_or(8) - 1]
}

const WIDTH: u64 = 760;
const HEIGHT: u64 = 150;
const LEFT: u64 = 60;
const OLD: &str = "#6b7f99";
const NEW: &str = "#0f9d7a";

/// Two panels: capacity stacked, traffic of both.
pub(super) fn svg(timetable: &Timetable<'_>) -> String {
    let rehearsal = timetable.rehearsal;
    let peak = rehearsal.peak().max(100);
    let capacity = panel(rehearsal, 50, peak, "capacity", |row| (row.new.capacity, row.old.capacity));
    let weights = |row: &Row| (row.new.weight.unwrap_or_default(), row.old.weight.unwrap_or_default());
    let traffic =
        if splits(rehearsal) { panel(rehearsal, 255, 100, "traffic", weights) } else { String::new() };
    let title = escape(&timetable.heading());
    let (width, height) = (LEFT + WIDTH + 20, 460);
    let legend = format!(
        "<rect x=\"{LEFT}\" y=\"436\" width=\"12\" height=\"12\" fill=\"{OLD}\"/>\
         <text x=\"{}\" y=\"447\">old version</text>\
         <rect x=\"{}\" y=\"436\" width=\"12\" height=\"12\" fill=\"{NEW}\"/>\
         <text x=\"{}\" y=\"447\">new version</text>",
        LEFT + 18,
        LEFT + 120,
        LEFT + 138,
    );
    format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width}\" height=\"{height}\" \
         viewBox=\"0 0 {width} {height}\" font-family=\"sans-serif\" font-size=\"12\">\n\
         <rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n\
         <text x=\"{LEFT}\" y=\"20\" font-size=\"13\">{title}</text>\n{capacity}{traffic}{legend}\n</svg>\n"
    )
}

/// One panel: the new version from the bottom, the old one on top of it.
fn panel(rehearsal: &Rehearsal, top: u64, most: u32, name: &str, values: fn(&Row) -> (u32, u32)) -> String {
    let end = rehearsal.seconds().max(1);
    let x = |time: u64| LEFT + WIDTH * time / end;
    let y = |value: u32| top + HEIGHT - HEIGHT * u64::from(value.min(most)) / u64::from(most);
    let area = |value: &dyn Fn(&Row) -> u32, colour: &str| {
        let mut points = format!("{LEFT},{} ", top + HEIGHT);
        let mut level = 0;
        for row in &rehearsal.rows {
            points += &format!("{},{} ", x(row.at), y(level));
            level = value(row);
            points += &format!("{},{} ", x(row.at), y(level));
        }
        points += &format!("{},{} {},{}", x(end), y(level), x(end), top + HEIGHT);
        format!("<polygon points=\"{points}\" fill=\"{colour}\"/>\n")
    };
    let both = area(&|row| values(row).0 + values(row).1, OLD);
    let new = area(&|row| values(row).0, NEW);
    let line = |value: u32| {
        let (at, right) = (y(value), LEFT + WIDTH);
        format!(
            "<line x1=\"{LEFT}\" x2=\"{right}\" y1=\"{at}\" y2=\"{at}\" stroke=\"#333\" stroke-dasharray=\"2 4\"/>\
             <text x=\"{}\" y=\"{}\" text-anchor=\"end\">{value}%</text>\n",
            LEFT - 6,
            at + 4,
        )
    };
    let lines = if most > 100 { line(100) + &line(most) } else { line(100) };
    let foot = format!(
        "<text x=\"{LEFT}\" y=\"{0}\">0s</text><text x=\"{1}\" y=\"{0}\" text-anchor=\"end\">{end}s</text>\
         <text x=\"{LEFT}\" y=\"{2}\" font-weight=\"bold\">{name}</text>\n",
        top + HEIGHT + 16,
        LEFT + WIDTH,
        top - 4,
    );
    both + &new + &lines + &foot
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}
