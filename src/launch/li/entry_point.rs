//! Console-script entry points of a Python interpreter, read from the metadata its packages leave
//! in `site-packages`, without starting it.

use std::fs;
use std::path::{Path, PathBuf};

/// The module behind the console script `name`: `lionagi.cli` for `li = lionagi.cli:main`.
pub(super) fn find_module(interpreter: &Path, name: &str) -> Option<String> {
    let metadata = package_directories(interpreter)
        .into_iter()
        .flat_map(entries)
        .filter(|entry| entry.extension().is_some_and(|extension| extension == "dist-info"));
    let texts =
        metadata.filter_map(|entry| fs::read_to_string(entry.join("entry_points.txt")).ok());
    texts.into_iter().find_map(|text| console_script(&text, name))
}

/// The module that a `entry_points.txt` gives for a console script.
fn console_script(text: &str, name: &str) -> Option<String> {
    let mut in_section = false;
    for line in text.lines().map(str::trim).filter(|line| !line.starts_with('#')) {
        if let Some(section) = line.strip_prefix('[').and_then(|line| line.strip_suffix(']')) {
            in_section = section == "console_scripts";
        } else if let Some((key, value)) = line.split_once('=').filter(|_| in_section)
            && key.trim() == name
        {
            let module = value.split([':', '[']).next().unwrap_or_default().trim();
            return (!module.is_empty()).then(|| module.to_owned());
        }
    }
    None
}

/// `lib/python3.X/site-packages` and its variants under the interpreter's prefix: `/venv` for
/// `/venv/bin/python`. A version that the interpreter's name does not rule out will do.
fn package_directories(interpreter: &Path) -> Vec<PathBuf> {
    let Some(prefix) = interpreter.parent().and_then(Path::parent) else { return Vec::new() };
    let version = version_directory(interpreter);
    let matches = |entry: &PathBuf| match (entry.file_name(), &version) {
        (Some(found), Some(wanted)) => found == wanted.as_str() || found == "python3",
        (Some(found), None) => found.to_string_lossy().starts_with("python3"),
        (None, _) => false,
    };
    let libraries = ["lib", "lib64", "local/lib"].map(|library| entries(prefix.join(library)));
    let pythons = libraries.into_iter().flatten().filter(matches);
    pythons
        .flat_map(|python| ["site-packages", "dist-packages"].map(|kind| python.join(kind)))
        .collect()
}

/// `python3.11`, if the interpreter, or the file it is a link to, bears that name.
fn version_directory(interpreter: &Path) -> Option<String> {
    let real = fs::canonicalize(interpreter).unwrap_or_default();
    [interpreter, &real].into_iter().find_map(|path| {
        let name = path.file_name()?.to_str()?;
        let minor = name.strip_prefix("python3.")?;
        let numeric = !minor.is_empty() && minor.bytes().all(|byte| byte.is_ascii_digit());
        numeric.then(|| name.to_owned())
    })
}

/// What is in a directory, sorted, so that the same files give the same answer; nothing if it
/// cannot be read.
fn entries(directory: PathBuf) -> Vec<PathBuf> {
    let read = fs::read_dir(directory).into_iter().flatten();
    let mut paths: Vec<_> = read.filter_map(|entry| Some(entry.ok()?.path())).collect();
    paths.sort();
    paths
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_console_scripts_section_counts() {
        let text = "[gui_scripts]\nli = gui:main\n\n[console_scripts]\n# li = old:main\nlionagi = a:b\nli = lionagi.cli.main:main [extra]\n[other]\nli=x\n";
        assert_eq!(console_script(text, "li").as_deref(), Some("lionagi.cli.main"));
        assert_eq!(console_script(text, "gui"), None);
        assert_eq!(console_script("[console_scripts]\nli=m\r\n", "li").as_deref(), Some("m"));
        assert_eq!(console_script("[console_scripts]\nli = :main\nlia = b:c\n", "li"), None);
        assert_eq!(console_script("li = m:f", "li"), None);
        assert_eq!(console_script("", "li"), None);
    }
}
