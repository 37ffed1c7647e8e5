//! Compiles the two C files between penstock and libjpeg, with the headers of the libjpeg-turbo that
//! turbojpeg-sys has built.

fn main() {
    let folder = "rust/src/kernels/images";
    let mut build = cc::Build::new();
    build.opt_level(3).warnings(true).extra_warnings(true);
    for name in ["jpeg_parts.c", "libjpeg.c"] {
        println!("cargo::rerun-if-changed={folder}/{name}");
        build.file(format!("{folder}/{name}"));
    }
    println!("cargo::rerun-if-env-changed=DEP_TURBOJPEG_INCLUDE");
    for headers in std::env::var("DEP_TURBOJPEG_INCLUDE").unwrap_or_default().split(',') {
        if !headers.is_empty() {
            build.include(headers);
        }
    }
    build.compile("penstock_jpeg");
}
