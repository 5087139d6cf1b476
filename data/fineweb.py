#!/usr/bin/python3
"""FineWeb-Edu in GPT-2 tokens: llm.c's published shards, 100 M tokens (200 MB) each, 1001 of them, and one
for validation, from the Hugging Face dataset karpathy/fineweb-edu-100B-gpt2-token-shards.

    data/fineweb.py --shards 103          # 10.3 B tokens, 21 GB, enough for scripts/gpt2_124M.json
    data/fineweb.py --shards 1001         # every shard: 100 B tokens, 200 GB

A shard arrives as NAME.part, and is renamed when as long as its header says (1024 bytes and two for each
token). The next call continues a broken download and keeps complete shards. --base-url takes any http(s)
mirror or a folder (file:///path).
"""
import argparse
import collections
import errno
import http.client
import os
import ssl
import struct
import sys
import threading
import time
import urllib.error
import urllib.parse
import urllib.request

from austen import make_folder, printable, unfinished

BASE_URL = "https://huggingface.co/datasets/karpathy/fineweb-edu-100B-gpt2-token-shards/resolve/main"
SHARDS = 1001
MAGIC, VERSION, HEADER = 20240520, 1, 1024
CHUNK = 1 << 20
FIRST_ANSWER = 8        # seconds to wait for a server's first answer
# errors of the local disk: an immediate retry does not help
LASTING = (errno.ENOSPC, errno.EACCES, errno.EROFS, errno.EDQUOT, errno.EISDIR, errno.ENOTDIR)


class Wrong(Exception):
    """Received another file than a token shard: a retry does not help."""


class Broken(Exception):
    """The transfer stopped early: a retry may help."""


def size_of_shard(head, source):
    """Size in bytes, as the header announces; raises Wrong for the head of another file."""
    if head.lstrip()[:15].lower().startswith((b"<!doctype", b"<html")):
        raise Wrong(f"{source} gives a web page (HTML), not a token shard: a wrong address, or a login")
    if head.startswith(b"version https://git-lfs"):
        raise Wrong(f"{source} is a Git LFS pointer, not the file it stands for: download that by its "
                    "resolve/ address, or run `git lfs pull` there")
    if len(head) < 12:
        raise Broken(f"{source} ended after {len(head)} bytes, within the header")
    magic, version, tokens = struct.unpack("<3i", head[:12])
    if (magic, version) != (MAGIC, VERSION) or tokens <= 0:
        raise Wrong(f"{source} is not a token shard: magic {magic}, version {version}, {tokens} tokens; "
                    f"expected magic {MAGIC}, version {VERSION}")
    return HEADER + 2 * tokens


def is_complete(path):
    try:
        with open(path, "rb") as f:
            head = f.read(HEADER)
    except OSError as e:
        raise Wrong(f"{path} cannot be read: {e.strerror}")
    if len(head) < HEADER:
        raise Wrong(f"{path} has {len(head)} bytes, less than its header: delete it and call again")
    expected = size_of_shard(head, path)
    found = os.path.getsize(path)
    if found != expected:
        raise Wrong(f"{path} has {found} bytes, its header announces {expected}: delete it and call again")
    return True


# A kind of file to fetch:
#     size_of(head, source)     bytes of the file, by its first bytes
#     is_complete(path)         whether a file is whole; raises Wrong for another kind of file
#     verify(part, source)      raises Wrong for a download of another kind
#     about(size)               words on the content
#     what                      the files' name for people
Kind = collections.namedtuple("Kind", "size_of is_complete verify about what")
SHARD = Kind(size_of_shard, is_complete, lambda part, source: None,
             lambda size: f", {(size - HEADER) // 2} tokens", "shards")


def open_at(url, offset, timeout):
    """A stream of the file from byte `offset`, and the offset at which the stream really starts."""
    if url.startswith("file:"):
        path = urllib.request.url2pathname(urllib.parse.urlparse(url).path)
        stream = open(path, "rb")
        stream.seek(offset)
        return stream, offset
    request = urllib.request.Request(url, headers={"User-Agent": "train_gpt-data"})
    if offset:
        request.add_header("Range", f"bytes={offset}-")
    try:
        stream = urllib.request.urlopen(request, timeout=timeout)
    except urllib.error.HTTPError as e:
        if e.code == 416:       # the part is as long as the file, or longer
            raise Broken(f"{url} has no bytes from {offset} on")
        raise
    partial = stream.status == 206
    return stream, offset if partial else 0


def transfer(url, part, report, timeout, size_of):
    """Appends the missing bytes to `part`, up to the size in its header; returns the size."""
    have = os.path.getsize(part) if os.path.exists(part) else 0
    expected = 0
    if have >= HEADER:
        with open(part, "rb") as f:
            expected = size_of(f.read(HEADER), part)
    if have == expected > 0:
        return expected
    if have < HEADER or have > expected:
        have = 0
    stream, start = open_at(url, have, timeout)
    with stream, open(part, "r+b" if start else "wb") as out:
        out.seek(start)
        out.truncate()
        done = start
        if start == 0:
            head = b""
            while len(head) < HEADER and (more := stream.read(HEADER - len(head))):
                head += more
            expected = size_of(head, url)
            out.write(head)
            done = len(head)
        while done < expected and (more := stream.read(min(CHUNK, expected - done))):
            out.write(more)
            done += len(more)
            report(done, expected)
        if done == expected and stream.read(1):
            raise Wrong(f"{url} is longer than the {expected} bytes that its header announces")
    if done < expected:
        raise Broken(f"{url} broke off at byte {done} of {expected}")
    return expected


def reporter(name):
    """Progress: an overwritten line on a terminal, a line every ten seconds elsewhere."""
    started = last = time.time()

    def report(done, total):
        nonlocal last
        now = time.time()
        terminal = sys.stdout.isatty()
        if now - last < (0.2 if terminal else 10):
            return
        last = now
        rate = done / max(now - started, 1e-9)
        line = f"{name}  {done / 1e6:.0f} of {total / 1e6:.0f} MB, {rate / 1e6:.1f} MB/s"
        print(line, end="\r" if terminal else "\n", flush=True)
    return report


def look_for_server(url, seconds, what):
    """Raises Wrong where no server answers. A thread asks: a search for an address knows no timeout."""
    problem = ["no answer"]

    def ask():
        try:
            urllib.request.urlopen(urllib.request.Request(url, method="HEAD"), timeout=seconds).close()
            problem[0] = ""
        except urllib.error.HTTPError:
            problem[0] = ""
        except (OSError, ValueError, http.client.HTTPException) as e:
            reason = getattr(e, "reason", e)
            problem[0] = getattr(reason, "strerror", None) or str(reason) or type(e).__name__

    thread = threading.Thread(target=ask, daemon=True)
    thread.start()
    thread.join(seconds)
    if "CERTIFICATE" in problem[0]:
        raise Wrong(f"{url}: {problem[0]}. Are there certificates? apt-get install ca-certificates")
    if problem[0]:
        raise Wrong(f"{urllib.parse.urlsplit(url).netloc} cannot be reached: {problem[0]}. Call again with a "
                    f"network, name a mirror by --base-url, or copy {what} from another machine to --out")


def fetch(url, path, args, kind=SHARD):
    name, part = os.path.basename(path), unfinished(path)
    if os.path.exists(path):
        kind.is_complete(path)
        print(f"{name}  is here")
        return
    if not args.reached and not url.startswith("file:"):
        look_for_server(url, FIRST_ANSWER, kind.what)
        args.reached = True
    for attempt in range(args.retries + 1):
        try:
            size = transfer(url, part, reporter(name), args.timeout, kind.size_of)
            kind.verify(part, url)
            os.replace(part, path)
            print(f"{name}  {size / 1e6:.1f} MB{kind.about(size)}", flush=True)
            return
        except urllib.error.HTTPError as e:
            if e.code in (401, 403, 404, 410):
                raise Wrong(f"{url}: the server answers {e.code} {e.reason}")
            problem = f"{url}: the server answers {e.code} {e.reason}"
        except FileNotFoundError as e:
            raise Wrong(f"{url}: no such file: {e.filename}")
        except Wrong:
            if os.path.exists(part):
                os.remove(part)
            raise
        except (Broken, OSError, ValueError, http.client.HTTPException) as e:
            # OSErrors: URLError, timeouts, resets; ValueError: a malformed host name
            if isinstance(getattr(e, "reason", e), ssl.SSLCertVerificationError):
                raise Wrong(f"{url}: {e}. Are there certificates? apt-get install ca-certificates")
            if getattr(e, "errno", None) in LASTING:
                raise Broken(f"{e.filename or part}: {e.strerror}; call again to go on from there")
            problem = str(e)
        if attempt < args.retries:
            wait = min(args.backoff * 2 ** attempt, 60)
            print(f"{name}  {printable(problem)}; trying again in {wait:g} s", flush=True)
            time.sleep(wait)
    raise Broken(f"{problem}. Tried {args.retries + 1} times; call again to go on from there")


def is_address(url):
    try:
        parts = urllib.parse.urlsplit(url)
        parts.port                  # raises ValueError for a malformed port, as encode() does for a host name
        (parts.hostname or "").encode("idna")
    except ValueError:
        return False
    return parts.scheme == "file" or parts.scheme in ("http", "https") and parts.netloc and " " not in url


def to_the_end(work):
    """Calls work(); a mistake or a broken connection ends the program with a line of text."""
    try:
        work()
    except (Wrong, Broken) as e:
        sys.exit(f"error: {printable(e)}")
    except KeyboardInterrupt:
        sys.exit("\nstopped; call again to go on from there")


def fetch_all(names, args):
    for name in names:
        fetch(f"{args.base_url.rstrip('/')}/{name}", os.path.join(args.out, name), args)


def main():
    plain = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=plain)
    here = os.path.dirname(os.path.abspath(__file__))
    parser.add_argument("--shards", type=int, default=103, help="training shards, from the first (to 1001)")
    parser.add_argument("--out", default=os.path.join(here, "fineweb"))
    parser.add_argument("--base-url", default=BASE_URL)
    parser.add_argument("--retries", type=int, default=8)
    parser.add_argument("--backoff", type=float, default=1.0, help="seconds before a retry, then doubled")
    parser.add_argument("--timeout", type=float, default=60, help="seconds without a byte: broken off")
    args = parser.parse_args()
    args.reached = False
    if not 0 <= args.shards <= SHARDS:
        sys.exit(f"error: --shards={args.shards}: expected 0 to {SHARDS}")
    if args.retries < 0:
        sys.exit(f"error: --retries={args.retries}: expected 0 or more")
    if not is_address(args.base_url):
        sys.exit(f"error: --base-url={args.base_url}: expected http://, https:// or file:///path")
    make_folder(args.out)
    names = ["edu_fineweb_val_000000.bin"]
    names += [f"edu_fineweb_train_{i:06d}.bin" for i in range(1, args.shards + 1)]
    to_the_end(lambda: fetch_all(names, args))
    print(f"{len(names)} shards in {args.out}")


if __name__ == "__main__":
    main()
