//! One owner of status: in the source, `db/ops/change.rs` alone writes the status of a run, and `db/ops/submit.rs` alone
//! inserts one. What the scanner cannot read it calls a fault, so that nothing passes for want of understanding.

use std::fs;
use std::path::{Path, PathBuf};

const CHANGE: &str = "src/db/ops/change.rs";
const SUBMIT: &str = "src/db/ops/submit.rs";
const RUNS: &str = "schedule_runs";
/// Columns of a run that others write: a lease is renewed or taken over, and a parent removed, without a change of status.
const FREE: [&str; 3] = ["leased_by", "lease_expires_at", "chain_parent_id"];
/// Ways of Diesel to write rows that a reader would have to follow further.
const UNREADABLE: [&str; 4] = ["replace_into", "save_changes", "copy_from", "copy_in"];

/// Rust without comments and test modules: its code with every string empty, and the strings.
#[derive(Default)]
struct Source {
    code: String,
    strings: Vec<String>,
}

fn read(text: &str) -> Source {
    let text = without_tests(text);
    let mut source = Source::default();
    let mut rest = text.as_str();
    while let Some(first) = rest.chars().next() {
        let taken = match first {
            '/' if rest.starts_with("//") => rest.find('\n').unwrap_or(rest.len()),
            '/' if rest.starts_with("/*") => rest.find("*/").map_or(rest.len(), |end| end + 2),
            '"' => source.take_string(rest, 1, "\"", true),
            'r' if rest.starts_with("r\"") || rest.starts_with("r#") => {
                let hashes = rest[1..].bytes().take_while(|byte| *byte == b'#').count();
                match rest[1 + hashes..].starts_with('"') {
                    true => {
                        let end = format!("\"{}", "#".repeat(hashes));
                        source.take_string(rest, hashes + 2, &end, false)
                    }
                    false => source.take_code(rest, 1 + hashes),
                }
            }
            // A character, perhaps a quote; a lifetime has no second mark.
            '\'' => {
                let length = if rest.starts_with("'\\") {
                    4
                } else {
                    2 + rest[1..].chars().next().map_or(0, char::len_utf8)
                };
                let is_char = rest.get(..length).is_some_and(|char| char.ends_with('\''));
                source.take_code(rest, if is_char { length } else { 1 })
            }
            // A word at once, so that an `r` at its end begins no string.
            _ if first.is_alphanumeric() || first == '_' => {
                let word = rest.find(|c: char| !c.is_alphanumeric() && c != '_');
                source.take_code(rest, word.unwrap_or(rest.len()))
            }
            other => source.take_code(rest, other.len_utf8()),
        };
        rest = &rest[taken..];
    }
    source
}

impl Source {
    fn take_code(&mut self, rest: &str, length: usize) -> usize {
        self.code.push_str(&rest[..length]);
        length
    }

    /// Takes a string, in which every escape becomes a space.
    fn take_string(&mut self, rest: &str, begin: usize, end: &str, escapes: bool) -> usize {
        let (mut text, mut at) = (String::new(), begin);
        while at < rest.len() && !rest[at..].starts_with(end) {
            let is_escape = escapes && rest[at..].starts_with('\\');
            at += usize::from(is_escape);
            let Some(c) = rest[at..].chars().next() else { break };
            text.push(if is_escape { ' ' } else { c });
            at += c.len_utf8();
        }
        self.strings.push(text);
        self.code.push_str("\"\"");
        (at + end.len()).min(rest.len())
    }
}

/// Test modules stand at the margin, as rustfmt leaves them.
fn without_tests(text: &str) -> String {
    let mut kept = String::new();
    let mut rest = text;
    while let Some(begin) = rest.find("#[cfg(test)]\nmod tests {") {
        kept.push_str(&rest[..begin]);
        rest = rest[begin..].find("\n}\n").map_or("", |end| &rest[begin + end + 3..]);
    }
    kept + rest
}

/// Statements of an SQL text that could write a run.
fn sql_faults(sql: &str) -> Vec<String> {
    let plain: String = sql
        .lines()
        .map(|line| line.split_once("--").map_or(line, |(code, _)| code))
        .collect::<Vec<_>>()
        .join(" ")
        .to_lowercase()
        .chars()
        .map(|c| if "\"`'();,\\".contains(c) { ' ' } else { c })
        .collect();
    let words: Vec<&str> = plain.split_whitespace().collect();
    let mut faults = Vec::new();
    for (at, word) in words.iter().enumerate() {
        let mut after = words[at + 1..].iter().skip_while(|word| {
            ["only", "or", "ignore", "replace", "abort", "rollback", "fail"].contains(word)
        });
        let table = after.next().copied().unwrap_or_default();
        let is_runs = table == RUNS || table.ends_with(&format!(".{RUNS}"));
        if ["update", "into", "copy"].contains(word) && (is_runs || table.starts_with('{')) {
            faults.push(format!("SQL writes {table}: {word} {table}"));
        }
        if *word == "new.status" && table.starts_with(':') || *word == "new.status:=" {
            faults.push("a trigger assigns new.status".into());
        }
    }
    faults
}

/// From an opening parenthesis to its own end, without both.
fn argument(code: &str, open: usize) -> &str {
    let mut depth = 0;
    for (at, c) in code[open..].char_indices() {
        depth += match c {
            '(' => 1,
            ')' => -1,
            _ => 0,
        };
        if depth == 0 {
            return &code[open + 1..open + at];
        }
    }
    &code[open + 1..]
}

fn words(code: &str) -> impl Iterator<Item = &str> {
    code.split(|c: char| !c.is_alphanumeric() && c != '_').filter(|word| !word.is_empty())
}

/// Where the last call of this function begins; `do_update` is another one.
fn last_call(code: &str, function: &str) -> Option<usize> {
    let calls = code.rmatch_indices(function).map(|(at, _)| at);
    let is_word = |c: char| c.is_alphanumeric() || c == '_';
    calls
        .filter(|at| code[at + function.len()..].starts_with('('))
        .find(|at| !code[..*at].ends_with(is_word))
}

/// The columns that an expression assigns.
fn assigned(expression: &str) -> Vec<&str> {
    expression
        .match_indices(".eq(")
        .map(|(at, _)| words(&expression[..at]).last().unwrap_or_default())
        .collect()
}

/// The table that an expression begins with, through a variable if need be.
fn table_of<'t>(code: &str, before: usize, head: &str, tables: &'t [String]) -> Option<&'t str> {
    let named = |expression: &str| {
        words(expression).find_map(|word| tables.iter().find(|table| *table == word))
    };
    if let Some(table) = named(head) {
        return Some(table);
    }
    let variable = words(head).next()?;
    let (_, bound) = code[..before].rsplit_once(&format!("let {variable} = "))?;
    named(bound.split(';').next()?).map(String::as_str)
}

/// Everything in one file of Rust that writes the status of a run, or might.
fn faults(file: &str, text: &str, tables: &[String]) -> Vec<String> {
    let Source { code, strings } = read(text);
    let mut faults: Vec<String> = strings.iter().flat_map(|sql| sql_faults(sql)).collect();
    for way in UNREADABLE {
        if words(&code).any(|word| word == way) {
            faults.push(format!("{way} is not followed here"));
        }
    }
    if file != CHANGE && code.contains("AsChangeset") && words(&code).any(|word| word == RUNS) {
        faults.push("a changeset in a file that knows the runs".into());
    }
    for (at, _) in code.match_indices("insert_into(") {
        let head = argument(&code, at + "insert_into".len());
        match table_of(&code, at, head, tables) {
            Some(RUNS) if file != SUBMIT => faults.push("a run is inserted".into()),
            None => faults.push(format!("rows are inserted into {head:?}, which is no table")),
            Some(_) => {}
        }
    }
    for (at, _) in code.match_indices(".set(") {
        // Others have methods of this name.
        let statement = last_call(&code[..at], "update").max(last_call(&code[..at], "insert_into"));
        let Some(begin) = statement.filter(|_| code.contains("diesel::")) else { continue };
        let open = begin + code[begin..].find('(').unwrap_or_default();
        let head = argument(&code, open);
        match table_of(&code, begin, head, tables) {
            Some(RUNS) if file == CHANGE => {}
            Some(RUNS) => {
                let columns = assigned(argument(&code, at + ".set".len()));
                if columns.is_empty() {
                    faults.push("a run is changed in a way that cannot be read".into());
                }
                let owned = columns.iter().filter(|column| !FREE.contains(column));
                faults.extend(owned.map(|column| format!("{column} of a run is written")));
            }
            None => faults.push(format!("{head:?} is changed, which is no table")),
            Some(_) => {}
        }
    }
    faults
}

/// The tables that the source names: the first line in each `table!` that is the head of one.
fn tables() -> Vec<String> {
    let sources = files("src", "rs").into_iter().map(|path| fs::read_to_string(path).unwrap());
    let heads = |text: String| -> Vec<String> {
        let tables = text.split("diesel::table! {\n").skip(1);
        let head = |table: &str| {
            let line = table.lines().find(|line| line.ends_with(") {"))?;
            Some(line.trim().split_once(" (")?.0.to_owned())
        };
        tables.filter_map(head).collect()
    };
    sources.flat_map(heads).collect()
}

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn files(of: &str, extension: &str) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut directories = vec![root().join(of)];
    while let Some(directory) = directories.pop() {
        for entry in fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path()) {
            if entry.is_dir() {
                directories.push(entry);
            } else if entry.extension().is_some_and(|there| there == extension) {
                found.push(entry);
            }
        }
    }
    found
}

#[test]
fn nothing_but_change_rs_writes_the_status_of_a_run() {
    let tables = tables();
    assert!(tables.len() >= 10 && tables.iter().any(|table| table == RUNS), "{tables:?}");
    let mut found = Vec::new();
    let (mut sources, mut owners) = (0, 0);
    for path in files("src", "rs") {
        let file = path.strip_prefix(root()).unwrap().to_str().unwrap().to_owned();
        if file.ends_with("/tests.rs") || file.contains("/tests/") {
            continue;
        }
        sources += 1;
        let text = fs::read_to_string(&path).unwrap();
        if file == CHANGE || file == SUBMIT {
            // Under another name each would be found: the scanner sees what they do.
            owners += usize::from(!faults("src/other.rs", &text, &tables).is_empty());
        }
        found.extend(
            faults(&file, &text, &tables).into_iter().map(|what| format!("{file}: {what}")),
        );
    }
    let migrations = files("migrations", "sql");
    for path in &migrations {
        let sql = fs::read_to_string(path).unwrap();
        found
            .extend(sql_faults(&sql).into_iter().map(|what| format!("{}: {what}", path.display())));
    }
    assert_eq!(owners, 2);
    assert!(sources > 100 && migrations.len() >= 24, "{sources} and {}", migrations.len());
    assert!(found.is_empty(), "{}", found.join("\n"));
}

#[test]
fn the_scanner_finds_whatever_writes_a_run() {
    let tables = tables();
    let bad = [
        r#"diesel::update(schedule_runs::table.find(id)).set(schedule_runs::status.eq("failed")).execute(conn)"#,
        "diesel::update(dsl::schedule_runs.find(id)).set((dsl::leased_by.eq(w), dsl::status.eq(s))).execute(conn)",
        "let target = dsl::schedule_runs.find(id); diesel::update(target).set(dsl::ended_at.eq(at)).execute(conn)",
        "let target = some(id); diesel::update(target).set(dsl::status.eq(s)).execute(conn)",
        "let columns = x(); diesel::update(dsl::schedule_runs.find(id)).set(columns).execute(conn)",
        "use diesel::update; update(dsl::schedule_runs).filter(dsl::id.eq(id)).set(dsl::exit_code.eq(1))",
        "diesel::insert_into(schedule_runs::table).values(&run).execute(conn)",
        "diesel::insert_into(dsl::schedule_runs).values(r).on_conflict(dsl::id).do_update().set(dsl::status.eq(s))",
        "diesel::insert_into(somewhere()).values(&run).execute(conn)",
        "#[derive(AsChangeset)] #[diesel(table_name = schedule_runs)] struct Row { status: String }",
        "run.save_changes::<Run>(conn)",
        "diesel::replace_into(schedule_runs::table).values(&run).execute(conn)",
        r#"diesel::sql_query("UPDATE schedule_runs SET status = 'failed'").execute(conn)"#,
        r#"conn.batch_execute("update  Only\n \"schedule_runs\" set x = 1")"#,
        r##"conn.batch_execute(r#"UPDATE OR IGNORE main.schedule_runs SET status = 'x'"#)"##,
        r#"sql_query("INSERT OR REPLACE INTO `schedule_runs` (id) VALUES (1)")"#,
        r#"sql_query("INSERT INTO other SELECT 1; MERGE INTO schedule_runs USING x")"#,
        r#"sql_query(format!("UPDATE {table} SET status = 'x'"))"#,
        r#"let a = '"'; sql_query("UPDATE schedule_runs SET a = 1")"#,
        "// a comment with a \" quote\nconn.batch_execute(\"UPDATE schedule_runs SET a = 1\")",
        "#[cfg(test)]\nmod tests {\n    fn a() {}\n}\n\nfn b() { sql_query(\"UPDATE schedule_runs SET a = 1\") }",
    ];
    for text in bad {
        assert!(!faults("src/db/ops/renew.rs", text, &tables).is_empty(), "not found: {text}");
    }
    let good = [
        "diesel::update(dsl::schedule_runs.find(id)).filter(dsl::status.eq(s)).set(dsl::lease_expires_at.eq(x))",
        "diesel::update(dsl::leasehold_runs.find(id)).set(dsl::failures.eq(1)).execute(conn)",
        "let beside = dsl::leasehold_runs.find(id); diesel::update(beside).set(dsl::failures.eq(1))",
        "diesel::insert_into(dsl::leasehold_runs).values(r).on_conflict(dsl::run_id).do_update().set(request)",
        "let x = schedule_runs::table.find(id).select(schedule_runs::status).first(conn)",
        "// UPDATE schedule_runs SET status = 'x'\nfn a() {}",
        "match fields.set(\"action_command\") { _ => {} }",
        "#[cfg(test)]\nmod tests {\n    fn a() { sql_query(\"UPDATE schedule_runs SET a = 1\") }\n}\n",
        r#"sql_query("SELECT status FROM schedule_runs FOR UPDATE")"#,
    ];
    for text in good {
        assert_eq!(faults("src/db/ops/renew.rs", text, &tables), [""; 0], "{text}");
    }
    for sql in [
        "CREATE TRIGGER t AFTER INSERT ON x BEGIN UPDATE schedule_runs SET status = 'failed'; END;",
        "INSERT INTO schedule_runs SELECT * FROM elsewhere;",
        "BEGIN NEW.status := 'failed'; RETURN NEW; END",
        "BEGIN NEW.status:= 'failed'; RETURN NEW; END",
    ] {
        assert!(!sql_faults(sql).is_empty(), "not found: {sql}");
    }
    for sql in [
        "-- UPDATE schedule_runs SET status\nCREATE TABLE x (a TEXT REFERENCES schedule_runs(id));",
        "CREATE TRIGGER t BEFORE UPDATE OF status ON schedule_runs BEGIN SELECT RAISE(ABORT, 'x'); END;",
        "CREATE TRIGGER t AFTER INSERT ON schedule_runs BEGIN INSERT INTO leasehold_events VALUES (NEW.status); END;",
    ] {
        assert_eq!(sql_faults(sql), [""; 0], "{sql}");
    }
}
