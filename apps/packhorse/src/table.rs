//! Tables for people: columns as wide as their widest cell, numbers to the right.

/// A table under construction.
pub(crate) struct Table {
    rows: Vec<Vec<String>>,
}

impl Table {
    pub(crate) fn new(head: &[&str]) -> Table {
        Table { rows: vec![head.iter().map(|s| s.to_string()).collect()] }
    }

    pub(crate) fn row<const N: usize>(&mut self, cells: [String; N]) {
        self.rows.push(cells.into());
    }

    /// Whether it has nothing but its head.
    pub(crate) fn is_empty(&self) -> bool {
        self.rows.len() == 1
    }

    pub(crate) fn print(&self) {
        use std::io::Write;
        // Whoever reads may have seen enough (`| head`).
        let _ = std::io::stdout().write_all(self.render().as_bytes());
    }

    fn render(&self) -> String {
        let columns = self.rows[0].len();
        let width = |c: usize| self.rows.iter().map(|r| r[c].chars().count()).max().unwrap_or(0);
        let widths: Vec<usize> = (0..columns).map(width).collect();
        let mut out = String::new();
        for row in &self.rows {
            let mut line = String::new();
            for (c, cell) in row.iter().enumerate() {
                let pad = " ".repeat(widths[c] - cell.chars().count());
                let number = self.rows[1..].iter().all(|r| r[c].parse::<u64>().is_ok());
                let cell = if number { pad + cell } else { cell.clone() + &pad };
                line.push_str(&cell);
                line.push_str("  ");
            }
            out.push_str(line.trim_end());
            out.push('\n');
        }
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_stand_to_the_right() {
        let mut table = Table::new(&["NAME", "READY"]);
        table.row(["a".into(), "7".into()]);
        table.row(["grüße".into(), "123456".into()]);
        assert_eq!(table.render(), "NAME    READY\na           7\ngrüße  123456\n");
    }
}
