//! The little of Markdown that rules need: tables by their header, code spans, links.
//!
//! Must not do: judge.

/// A table: the cells of its header, and its rows with their line numbers (from 1).
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Table {
    pub(super) header: Vec<String>,
    pub(super) rows: Vec<(usize, Vec<String>)>,
}

/// All tables of a text, outside of fenced code.
pub(super) fn tables(text: &str) -> Vec<Table> {
    let mut tables = Vec::new();
    let mut current: Option<Table> = None;
    for (number, line) in prose(text) {
        if !line.trim_start().starts_with('|') {
            tables.extend(current.take());
            continue;
        }
        let cells = cells(line);
        match &mut current {
            None => current = Some(Table { header: cells, rows: Vec::new() }),
            Some(_) if cells.iter().all(|cell| !cell.is_empty() && cell.chars().all(|c| c == '-' || c == ':')) => {}
            Some(table) => table.rows.push((number, cells)),
        }
    }
    tables.extend(current);
    tables
}

/// The lines outside of fenced code, with their numbers (from 1).
pub(super) fn prose(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let mut fenced = false;
    text.lines().enumerate().filter_map(move |(index, line)| {
        if line.trim_start().starts_with("```") {
            fenced = !fenced;
            return None;
        }
        (!fenced).then_some((index + 1, line))
    })
}

fn cells(line: &str) -> Vec<String> {
    let inner = line.trim().trim_start_matches('|').trim_end_matches('|');
    inner.split('|').map(|cell| cell.trim().to_owned()).collect()
}

/// The code spans of a line, without their backticks.
pub(super) fn spans(line: &str) -> impl Iterator<Item = &str> {
    line.split('`').skip(1).step_by(2)
}

/// The targets of the links of a line: what stands in `](…)`.
pub(super) fn targets(line: &str) -> impl Iterator<Item = &str> {
    line.split("](").skip(1).filter_map(|rest| rest.split_once(')')).map(|(target, _)| target)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tables_are_found_outside_of_code() {
        let text = "x\n| a | b |\n|---|:-:|\n| 1 | `2` |\n\n```\n| no | table |\n```\n| c |\n|---|\n";
        let tables = tables(text);
        assert_eq!(tables.len(), 2);
        assert_eq!(tables[0].header, ["a", "b"]);
        assert_eq!(tables[0].rows, [(4, vec!["1".to_owned(), "`2`".to_owned()])]);
        assert!(tables[1].rows.is_empty());
    }

    #[test]
    fn spans_and_targets() {
        assert_eq!(spans("a `b` c `d::e`").collect::<Vec<_>>(), ["b", "d::e"]);
        assert_eq!(targets("[x](y.md) and [z](docs/w.md#part)").collect::<Vec<_>>(), ["y.md", "docs/w.md#part"]);
    }
}
