//! The migrations are compiled in, so a change to them must rebuild the crate.
fn main() {
    println!("cargo:rerun-if-changed=migrations");
}
