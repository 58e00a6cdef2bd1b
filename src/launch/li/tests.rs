use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};

use super::*;

struct Tree(tempfile::TempDir);

impl Tree {
    fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn file(&self, name: &str, text: &str, mode: u32) -> PathBuf {
        let path = self.path(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, text).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
        path
    }

    fn program(&self, name: &str) -> PathBuf {
        self.file(name, "", 0o755)
    }
}

fn search(path: &[&Path], interpreter: Option<PathBuf>) -> LiSearch {
    LiSearch { path: Some(std::env::join_paths(path).unwrap()), interpreter }
}

fn text(path: &Path) -> String {
    path.to_str().unwrap().to_owned()
}

const ENTRY_POINTS: &str = "[console_scripts]\nli = lionagi.cli.main:main\n";

#[test]
fn an_absolute_hit_on_the_path_comes_first() {
    let tree = Tree::new();
    tree.file("plain/li", "", 0o644);
    fs::create_dir_all(tree.path("dir/li")).unwrap();
    let li = tree.program("b/li");
    tree.program("c/li");
    let python = tree.program("venv/bin/python");
    tree.program("venv/bin/li");
    let dirs = ["none", "plain", "dir", "b", "c"].map(|name| tree.path(name));
    let dirs: Vec<_> = dirs.iter().map(PathBuf::as_path).collect();
    assert_eq!(find_li(&search(&dirs, Some(python))), Ok(vec![text(&li)]));
}

#[test]
fn a_relative_hit_is_rejected_and_the_rest_of_the_path_not_read() {
    let here = std::env::current_dir().unwrap();
    let tree = Tree(tempfile::tempdir_in(&here).unwrap());
    tree.program("bin/li");
    let absolute = tree.path("bin");
    let relative = absolute.strip_prefix(&here).unwrap();
    let error = find_li(&search(&[relative, &absolute], None)).unwrap_err();
    let hit = relative.join("li");
    assert!(error.attempts[0].contains(hit.to_str().unwrap()), "{error}");
    assert!(error.attempts[0].contains("not absolute"), "{error}");
}

#[test]
fn then_the_file_beside_the_interpreter() {
    let tree = Tree::new();
    let python = tree.program("venv/bin/python");
    let li = tree.program("venv/bin/li");
    assert_eq!(find_li(&search(&[], Some(python))), Ok(vec![text(&li)]));
}

#[test]
fn then_the_entry_point_as_a_module() {
    let tree = Tree::new();
    let python = tree.program("venv/bin/python");
    let packages = "venv/lib/python3.11/site-packages";
    tree.file(&format!("{packages}/aaa-1.dist-info/METADATA"), "", 0o644);
    tree.file(
        &format!("{packages}/lionagi-0.36.0.dist-info/entry_points.txt"),
        ENTRY_POINTS,
        0o644,
    );
    let expected = vec![text(&python), "-m".to_owned(), "lionagi.cli.main".to_owned()];
    assert_eq!(find_li(&search(&[], Some(python))), Ok(expected));
}

#[test]
fn the_packages_of_another_version_do_not_count() {
    let tree = Tree::new();
    let real = tree.program("usr/bin/python3.12");
    fs::create_dir_all(tree.path("venv/bin")).unwrap();
    let python = tree.path("venv/bin/python");
    symlink(real, &python).unwrap();
    let metadata = "site-packages/lionagi-1.dist-info/entry_points.txt";
    tree.file(&format!("venv/lib/python3.11/{metadata}"), ENTRY_POINTS, 0o644);
    assert!(find_li(&search(&[], Some(python.clone()))).is_err());
    tree.file(&format!("venv/lib/python3.12/{metadata}"), ENTRY_POINTS, 0o644);
    assert!(find_li(&search(&[], Some(python))).is_ok());
}

#[test]
fn a_relative_interpreter_is_no_help() {
    let error = find_li(&search(&[], Some(PathBuf::from("venv/bin/python")))).unwrap_err();
    assert!(error.attempts[1].contains("not an absolute path: venv/bin/python"), "{error}");
    assert!(error.attempts[2].contains("not an absolute path"), "{error}");
}

#[test]
fn the_message_names_every_attempt() {
    let tree = Tree::new();
    let python = tree.program("venv/bin/python");
    let message = find_li(&search(&[], Some(python))).unwrap_err().to_string();
    for word in ["cannot resolve li executable", "PATH", "sys.executable", "console_scripts", "; "]
    {
        assert!(message.contains(word), "{word}: {message}");
    }
    assert_eq!(message.lines().count(), 1);
}
