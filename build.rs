//! Builds the one C file of ours, against the headers of the libjpeg-turbo that turbojpeg-sys built.

use std::env;

fn main() {
    const FILE: &str = "rust/src/kernels/images/libjpeg.c";
    println!("cargo:rerun-if-changed={FILE}");
    let headers = env::var("DEP_TURBOJPEG_INCLUDE").unwrap_or_default();
    cc::Build::new()
        .file(FILE)
        .includes(headers.split(',').filter(|folder| !folder.is_empty()))
        .opt_level(3)
        .warnings(true)
        .extra_warnings(true)
        .compile("penstock_libjpeg");
}
