//! The small changes of a line. Lines of code only: no comments, uses, attributes, declarations of types, nothing of tests.

use std::fmt;

/// One line that is another one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Change {
    /// From 1 on.
    pub(super) line: usize,
    pub(super) before: String,
    /// `None`: the line is gone.
    pub(super) after: Option<String>,
}

impl Change {
    /// The text with this change.
    pub(super) fn apply(&self, text: &str) -> String {
        let lines = text.lines().enumerate().filter_map(|(at, line)| match at + 1 == self.line {
            true => self.after.as_deref(),
            false => Some(line),
        });
        lines.map(|line| format!("{line}\n")).collect()
    }
}

impl fmt::Display for Change {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: `{}` → ", self.line, self.before.trim())?;
        match &self.after {
            Some(after) => write!(f, "`{}`", after.trim()),
            None => f.write_str("gone"),
        }
    }
}

/// Words that stand for each other.
const SWAPS: &[(&str, &str)] = &[
    (" == ", " != "),
    (" != ", " == "),
    (" <= ", " < "),
    (" < ", " <= "),
    (" >= ", " > "),
    (" > ", " >= "),
    (" && ", " || "),
    (" || ", " && "),
    (" + 1", " - 1"),
    (" - 1", " + 1"),
    (" += ", " -= "),
    (" -= ", " += "),
    ("true", "false"),
    ("false", "true"),
    (".min(", ".max("),
    (".max(", ".min("),
    ("push_back", "push_front"),
    ("pop_front", "pop_back"),
    (".front()", ".back()"),
    (".back()", ".front()"),
    (".back_mut()", ".front_mut()"),
    ("is_some", "is_none"),
    ("is_none", "is_some"),
    ("if !", "if "),
    ("(!", "("),
];

/// Names of which one may stand where another one should, by what comes before them.
const NAMES: &[(&[&str], &[&str])] = &[
    (&["S::", "State::"], &["Staged", "Available", "Scheduled", "Acquired", "Damaged", "Gone"]),
    (&["E::", "Event::"], &["Acknowledge", "ReturnUnseen", "ReturnModified", "ReturnSeen", "ReturnLost", "Postpone"]),
    (&["Record::"], &["None", "Acknowledge", "Redeliver", "Relocate"]),
    (&["Reason::"], &["Acknowledged", "DeadLettered", "Purged", "Abandoned", "Moved"]),
];

/// All changes of a file's lines.
pub(super) fn changes(text: &str) -> Vec<Change> {
    let mut all: Vec<Change> = Vec::new();
    let mut in_function = false;
    for (at, line) in text.lines().enumerate() {
        if line.starts_with("#[cfg(test)]") {
            break;
        }
        let code = line.trim();
        let begins = ["fn ", "pub fn ", "pub(crate) fn ", "pub(super) fn "].iter().any(|word| code.starts_with(word));
        if begins {
            in_function = true;
            continue;
        }
        // The end of a function of a type, or of a free one.
        if line == "    }" || line == "}" {
            in_function = false;
        }
        let skipped = code.is_empty() || ["//", "#[", "use ", "debug_assert", "}"].iter().any(|w| code.starts_with(w));
        if !in_function || skipped {
            continue;
        }
        let mut add = |after: Option<String>| {
            let change = Change { line: at + 1, before: line.to_owned(), after };
            if change.after.as_deref() != Some(line) && !all.contains(&change) {
                all.push(change);
            }
        };
        for (from, to) in SWAPS {
            for (place, _) in line.match_indices(from) {
                add(Some(put(line, place, from.len(), to)));
            }
        }
        for (prefixes, names) in NAMES {
            swap_names(line, prefixes, names, &mut add);
        }
        for (place, digit) in line.match_indices(|c: char| c.is_ascii_digit()) {
            let alone = |c: Option<char>| c.is_none_or(|c| !(c.is_alphanumeric() || c == '_' || c == '.'));
            if alone(line[..place].chars().next_back()) && alone(line[place + 1..].chars().next()) {
                add(Some(put(line, place, 1, if digit == "0" { "1" } else { "0" })));
            }
        }
        if let Some(condition) = code.strip_prefix("if ").and_then(|rest| rest.strip_suffix(" {"))
            && !condition.starts_with("let ")
        {
            let indent = &line[..line.len() - line.trim_start().len()];
            add(Some(format!("{indent}if !({condition}) {{")));
        }
        let statement = code.ends_with(';') && !code.starts_with("let ") && !code.starts_with("return");
        let arm = code.contains(" => ") && code.ends_with(',') && code.starts_with('(');
        if statement || arm {
            add(None);
        }
        // One of several patterns is forgotten.
        for (place, _) in line.match_indices(" | ") {
            let end = line[place + 3..].find([' ', ',', ')']).map(|n| place + 3 + n);
            add(end.map(|end| put(line, place, end - place, "")));
        }
    }
    all
}

/// Each name that stands behind one of the prefixes becomes the next one in the list.
fn swap_names(line: &str, prefixes: &[&str], names: &[&str], add: &mut impl FnMut(Option<String>)) {
    for prefix in prefixes {
        for (place, _) in line.match_indices(prefix) {
            if line[..place].chars().next_back().is_some_and(|c| c.is_alphanumeric() || c == '_') {
                continue;
            }
            let from = place + prefix.len();
            let length = line[from..].find(|c: char| !c.is_alphanumeric()).unwrap_or(line.len() - from);
            let name = &line[from..from + length];
            let at = names.iter().position(|one| *one == name);
            let next = at.map_or(names[0], |at| names[(at + 1) % names.len()]);
            add(Some(put(line, from, length, next)));
        }
    }
}

fn put(line: &str, at: usize, length: usize, text: &str) -> String {
    format!("{}{text}{}", &line[..at], &line[at + length..])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(line: &str) -> Vec<String> {
        let text = format!("fn f() {{\n{line}\n}}\n");
        let all = changes(&text);
        assert!(all.iter().all(|change| change.line == 2 && change.apply(&text) != text));
        all.into_iter().map(|change| change.after.map_or("gone".to_owned(), |after| after.trim().to_owned())).collect()
    }

    #[test]
    fn conditions_statements_numbers_and_names_are_changed() {
        assert_eq!(of("        if a < b {"), ["if a <= b {", "if !(a < b) {"]);
        assert_eq!(of("        self.count += 1;"), ["self.count -= 1;", "self.count += 0;", "gone"]);
        assert_eq!(of("        self.waiting.push_back(it);"), ["self.waiting.push_front(it);", "gone"]);
        assert_eq!(
            of("        (S::Acquired, E::ReturnLost) => back(1, 0),"),
            [
                "(S::Damaged, E::ReturnLost) => back(1, 0),",
                "(S::Acquired, E::Postpone) => back(1, 0),",
                "(S::Acquired, E::ReturnLost) => back(0, 0),",
                "(S::Acquired, E::ReturnLost) => back(1, 1),",
                "gone"
            ]
        );
        assert!(of("        matches!(x, A | B)").contains(&"matches!(x, A)".to_owned()));
    }

    #[test]
    fn comments_attributes_and_tests_stay() {
        for line in ["// a < b", "    #[inline]", "    use a::b;", "    debug_assert!(a < b);", "    let x = y;"] {
            assert_eq!(of(line), [""; 0], "{line}");
        }
        assert!(changes("#[cfg(test)]\nfn f() {\n    a = 1;\n}\n").is_empty());
        assert!(changes("struct A {\n    b: u32,\n}\n").is_empty());
    }
}
