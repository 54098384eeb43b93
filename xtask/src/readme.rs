//! The command lines of the README and of pages for operators, so that the test command can ask the binary whether it takes them.
//!
//! Must not do: run what they do. `--help` behind a command line makes the binary check it and do nothing.

/// Where people are told what to type.
pub(crate) const PAGES: &[&str] = &["README.md", "docs/operate/in-doubt.md"];

/// The arguments of each line `packhorse …` in the shell blocks of a document; what follows `#` is a comment.
pub(crate) fn commands(text: &str) -> Vec<Vec<String>> {
    let mut commands = Vec::new();
    let mut shell = false;
    for line in text.lines() {
        if let Some(language) = line.trim_start().strip_prefix("```") {
            shell = !shell && language.trim() == "sh";
        } else if let Some(rest) = line.strip_prefix("packhorse ").filter(|_| shell) {
            commands.push(words(rest));
        } else if let Some((_, rest)) = line.split_once("cargo run --release -- ").filter(|_| shell) {
            commands.push(words(rest));
        }
    }
    commands
}

/// Splits as a shell does, as far as documents need it: spaces, quotes of both kinds, a comment at the end.
fn words(line: &str) -> Vec<String> {
    let (mut words, mut word, mut quoted) = (Vec::new(), None::<String>, None::<char>);
    for c in line.chars() {
        match c {
            '"' | '\'' if quoted.is_none_or(|quote| quote == c) => {
                quoted = if quoted.is_none() { Some(c) } else { None };
                word.get_or_insert_default();
            }
            '#' if quoted.is_none() && word.is_none() => break,
            c if c.is_whitespace() && quoted.is_none() => words.extend(word.take()),
            c => word.get_or_insert_default().push(c),
        }
    }
    words.extend(word);
    words
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn command_lines_are_taken_from_shell_blocks_only() {
        let text = "packhorse no\n```sh\npackhorse send q \"two words\" --count 3   # and a comment\ncurl x\n```\n\
                    ```text\npackhorse neither\n```\n```sh\ncargo run --release -- serve # starts\n```\n";
        assert_eq!(commands(text), [vec!["send", "q", "two words", "--count", "3"], vec!["serve"]]);
        assert_eq!(words("show \"X'aa',X'',7\" 'a \"b\"'"), ["show", "X'aa',X'',7", "a \"b\""]);
    }
}
