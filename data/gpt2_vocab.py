#!/usr/bin/python3
"""GPT-2's vocabulary: data/gpt2/gpt2.tiktoken, 50256 byte-level ranks (end-of-text is the id after the
last).

    data/gpt2_vocab.py [--out data/gpt2] [--sdist FILE.tar.gz]

The file is whisper/assets/gpt2.tiktoken in the source archive of the package openai-whisper on PyPI. The
archive is downloaded and unpacked; nothing is built or installed. The package index is pip's:
PIP_INDEX_URL, `pip config`, or PyPI. The archive is checked against the index's SHA-256, the vocabulary
against the one known here.
"""
import argparse
import base64
import hashlib
import html.parser
import http.client
import io
import os
import re
import ssl
import subprocess
import sys
import tarfile
import urllib.parse
import urllib.request
import zlib

from austen import make_folder, printable, unfinished, write

PACKAGE = "openai-whisper"
MEMBER = "whisper/assets/gpt2.tiktoken"
SHA256 = "306cd27f03c1a714eca7108e03d66b7dc042abe8c258b44c199a7ed9838dd930"
DEFAULT_INDEX = "https://pypi.org/simple"


class Links(html.parser.HTMLParser):
    """The addresses of a page of the simple package index (PEP 503)."""

    def __init__(self):
        super().__init__()
        self.links = []

    def handle_starttag(self, tag, attrs):
        if tag == "a" and dict(attrs).get("href"):
            self.links.append(dict(attrs)["href"])


def pip_setting(key):
    """A setting of pip from its environment variable or configuration files; None if not set."""
    value = os.environ.get("PIP_" + key.upper().replace("-", "_"))
    if value:
        return value
    for command in ([sys.executable, "-m", "pip"], ["pip3"], ["pip"]):
        try:
            ask = command + ["config", "get", f"global.{key}"]
            done = subprocess.run(ask, capture_output=True, text=True)
        except OSError:
            continue
        if done.returncode == 0 and done.stdout.strip():
            return done.stdout.strip()
    return None


def get(url):
    certificates = pip_setting("cert")
    context = ssl.create_default_context(cafile=certificates)
    headers = {"Accept": "text/html", "User-Agent": "train_gpt-data"}
    keys, at, host = urllib.parse.urlsplit(url).netloc.rpartition("@")
    if at:      # an index with a name and a password in its address
        url = url.replace(keys + at + host, host, 1)
        headers["Authorization"] = "Basic " + base64.b64encode(urllib.parse.unquote(keys).encode()).decode()
    request = urllib.request.Request(url, headers=headers)
    with urllib.request.urlopen(request, timeout=60, context=context) as answer:
        return answer.read()


def release(url):
    """Sorting key of a source archive's address: the numbers of its version."""
    name = urllib.parse.unquote(urllib.parse.urlsplit(url).path.rsplit("/", 1)[-1])
    return [int(x) for x in re.findall(r"\d+", name)]


def newest_archive():
    index = (pip_setting("index-url") or DEFAULT_INDEX).rstrip("/")
    page = f"{index}/{PACKAGE}/"
    links = Links()
    links.feed(get(page).decode("utf-8", "replace"))
    all_files = [urllib.parse.urljoin(page, link) for link in links.links]
    archives = [u for u in all_files if urllib.parse.urlsplit(u).path.endswith(".tar.gz")]
    if not archives:
        raise ValueError(f"the package index lists no source archive of {PACKAGE}")
    url, _, fragment = max(archives, key=release).partition("#")
    data = get(url)
    print(f"{printable(url.rsplit('/', 1)[-1])}  {len(data)} bytes")
    if fragment.startswith("sha256=") and hashlib.sha256(data).hexdigest() != fragment[7:]:
        raise ValueError(f"the archive does not have the SHA-256 that the index announces: {fragment[7:]}")
    return data


def vocabulary(archive):
    with tarfile.open(fileobj=io.BytesIO(archive), mode="r:gz") as tar:
        names = [m for m in tar.getmembers() if m.isfile() and m.name.endswith("/" + MEMBER)]
        if not names:
            raise ValueError(f"the archive has no {MEMBER}")
        return tar.extractfile(names[0]).read()


def is_here(path):
    try:
        with open(path, "rb") as f:
            return hashlib.sha256(f.read()).hexdigest() == SHA256
    except OSError:
        return False                # the write will report the error


def main():
    plain = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=plain)
    here = os.path.dirname(os.path.abspath(__file__))
    parser.add_argument("--out", default=os.path.join(here, "gpt2"))
    parser.add_argument("--sdist", help="the source archive, where it is at hand already")
    args = parser.parse_args()
    make_folder(args.out)
    path = os.path.join(args.out, "gpt2.tiktoken")
    unfinished(path)                # a pipe in its place is an error, not a wait
    if is_here(path):
        print(f"{path}  is here")
        return
    try:
        data = vocabulary(open(args.sdist, "rb").read() if args.sdist else newest_archive())
    except (OSError, ValueError, EOFError, AssertionError, zlib.error, tarfile.TarError,
            http.client.HTTPException) as e:        # AssertionError: html.parser's, of a malformed page
        certificates = isinstance(getattr(e, "reason", e), ssl.SSLCertVerificationError)
        hint = ". Are there certificates? apt-get install ca-certificates" if certificates else ""
        sys.exit(f"error: GPT-2's vocabulary could not be fetched: {printable(e)}{hint}\n"
                 f"With its source archive from another machine:\n"
                 f"    data/gpt2_vocab.py --sdist openai_whisper-VERSION.tar.gz")
    found = hashlib.sha256(data).hexdigest()
    if found != SHA256:
        sys.exit(f"error: {MEMBER} has SHA-256 {found}, expected {SHA256}: not GPT-2's vocabulary")
    write(path, data)
    print(f"{path}  {len(data)} bytes, {data.count(10)} ranks")


if __name__ == "__main__":
    main()
