//! Compiles the piece of C that stands between penstock and libjpeg, against the headers of the
//! libjpeg-turbo that turbojpeg-sys has built.

fn main() {
    const SOURCE: &str = "rust/src/kernels/images/jpeg_parts.c";
    println!("cargo::rerun-if-changed={SOURCE}");
    println!("cargo::rerun-if-env-changed=DEP_TURBOJPEG_INCLUDE");
    let mut build = cc::Build::new();
    build.file(SOURCE).opt_level(2).warnings(true).extra_warnings(true);
    for folder in std::env::var("DEP_TURBOJPEG_INCLUDE").unwrap_or_default().split(',') {
        build.include(folder);
    }
    build.compile("penstock_jpeg_parts");
}
