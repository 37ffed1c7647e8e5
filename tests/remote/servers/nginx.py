"""nginx with files that it serves in all the ways of web servers, and as a GCS in front of SeaweedFS."""

from __future__ import annotations

import subprocess
from collections.abc import Generator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from string import Template

from remote.servers.processes import HOST, free_ports, is_open, program, running, tried
from remote.servers.seaweed import Seaweed

HINT = "`make tools` installs it (Debian: nginx-light, macOS: nginx)"
OPENSSL = "`make tools` installs it (Debian, macOS: openssl)"
SIGNATURE = "secret-signature-9Zk"

# With tcp_nopush, a small answer on a kept connection takes 40 ms (Nagle against delayed ACKs).
HEAD = """\
daemon off;
master_process off;
pid nginx.pid;
error_log stderr;
events { worker_connections 1024; }
http {
    access_log off;
    client_body_temp_path body;
    proxy_temp_path proxy;
    fastcgi_temp_path fastcgi;
    uwsgi_temp_path uwsgi;
    scgi_temp_path scgi;
    client_max_body_size 0;
    default_type application/octet-stream;
    sendfile on;
    tcp_nopush off;
    tcp_nodelay on;
    keepalive_requests 1000000;
"""

# The weak tags come from a second server, since nginx has no word for a file's own tag.
FILES = Template("""
    server {
        listen unix:inner.sock;
        root files;
    }
    server {
        listen $host:$port;
        $tls
        location /strong/ { alias files/; }
        location /weak/ {
            proxy_pass http://unix:inner.sock:/;
            proxy_hide_header ETag;
            add_header ETag "W/$$upstream_http_etag";
        }
        location /untagged/ { alias files/; etag off; }
        location /undated/ { alias files/; etag off; add_header Last-Modified ""; }
        location /whole/ { alias files/; max_ranges 0; }
        location /moved/ { rewrite ^/moved/(.*)$$ /strong/$$1 redirect; }
        location /circle/ { return 302 $$request_uri; }
        location /signed/ {
            if ($$arg_sig != "$signature") { return 403; }
            alias files/;
        }
    }
}
""")

# GCS says "only if there is none" in a way of its own; the rest of its XML interface is S3's.
GCS = Template("""
    map $$http_x_goog_if_generation_match $$absent {
        "0" "*";
        default $$http_if_none_match;
    }
    upstream store { server $store; keepalive 64; }
    server {
        listen $host:$port;
        location / {
            proxy_pass http://store;
            proxy_http_version 1.1;
            proxy_request_buffering off;
            proxy_buffering off;
            proxy_set_header Host $$http_host;
            proxy_set_header Connection "";
            proxy_set_header If-None-Match $$absent;
            proxy_set_header Authorization "";
        }
    }
}
""")


@dataclass(frozen=True)
class Certificates:
    """A certificate authority of the tests, and what it signed for 127.0.0.1 and localhost."""

    authority: Path
    certificate: Path
    key: Path


@dataclass(frozen=True)
class Nginx:
    """A running server of files.

    A file is below `/strong/`, `/weak/` and `/untagged/` with a strong, a weak and no ETag, below
    `/undated/` with no Last-Modified either. `/whole/` ignores ranges, `/moved/` redirects to
    `/strong/`, `/circle/` to itself, `/signed/` wants `?sig=` with SIGNATURE.
    """

    endpoint: str
    files: Path
    authority: Path | None
    """The certificate with which clients verify the server, if it speaks TLS."""


@contextmanager
def nginx(folder: Path, *, tls: bool = False) -> Generator[Nginx]:
    """Serve the files in `folder/files`."""
    (folder / "files").mkdir(exist_ok=True)
    lines, certificates = "", None
    if tls:
        certificates = make_certificates(folder)
        lines = (
            f"ssl_certificate {certificates.certificate}; ssl_certificate_key {certificates.key};"
        )
    with _served(folder, FILES, ssl=tls, tls=lines, signature=SIGNATURE) as address:
        yield Nginx(
            f"{'https' if tls else 'http'}://{address}",
            folder / "files",
            certificates and certificates.authority,
        )


@contextmanager
def gcs(folder: Path, store: Seaweed) -> Generator[Seaweed]:
    """An anonymous SeaweedFS behind the spelling of GCS."""
    with _served(folder, GCS, store=store.endpoint.removeprefix("http://")) as address:
        yield Seaweed(f"http://{address}", None, None)


@contextmanager
def _served(folder: Path, text: Template, *, ssl: bool = False, **values: str) -> Generator[str]:
    server = program("nginx", HINT)

    @contextmanager
    def started() -> Generator[str]:
        (port,) = free_ports(1)
        (folder / "inner.sock").unlink(missing_ok=True)
        listen = f"{port} ssl" if ssl else str(port)
        config = HEAD + text.substitute(values, host=HOST, port=listen)
        (folder / "nginx.conf").write_text(config)
        command = [server, "-p", f"{folder}/", "-c", "nginx.conf", "-e", "stderr"]
        with running(command, folder=folder, ready=lambda: is_open(port)):
            yield f"{HOST}:{port}"

    with ExitStack() as stack:
        yield tried(lambda: stack.enter_context(started()))


def make_certificates(folder: Path) -> Certificates:
    """A new authority, and a certificate for this machine's loopback addresses."""
    openssl = program("openssl", OPENSSL)
    made = Certificates(folder / "ca.pem", folder / "server.pem", folder / "server.key")
    names = "subjectAltName=IP:127.0.0.1,DNS:localhost"
    new_key = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]

    def call(*words: str | Path) -> None:
        subprocess.run([openssl, *words], check=True, capture_output=True, cwd=folder)

    call(
        "req", "-x509", *new_key, "-days", "2", "-subj", "/CN=penstock tests",
        "-keyout", "ca.key", "-out", made.authority,
    )  # fmt: skip
    call("req", *new_key, "-subj", "/CN=127.0.0.1", "-keyout", made.key, "-out", "server.csr")
    (folder / "names").write_text(names)
    call(
        "x509", "-req", "-in", "server.csr", "-days", "2", "-extfile", "names",
        "-CA", made.authority, "-CAkey", "ca.key", "-CAcreateserial", "-out", made.certificate,
    )  # fmt: skip
    return made
