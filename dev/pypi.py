#!/usr/bin/python3
"""Unpacks wheels from PyPI, without pip: what `make ptxas` and some tests need.

    dev/pypi.py FOLDER PACKAGE[==VERSION] ...
"""
import io
import json
import platform
import sys
import urllib.parse
import urllib.request
import zipfile

from show_help import show_help


def unpack(folder, package):
    """Fetches a package; raises OSError on failure."""
    name, _, version = package.partition("==")
    with urllib.request.urlopen(f"https://pypi.org/pypi/{name}/json", timeout=20) as page:
        about = json.load(page)
        files = about["releases"].get(version, []) if version else about["urls"]
        wheels = [urllib.parse.urljoin(page.url, f["url"]) for f in files       # or relative
                  if f["filename"].endswith((f"{platform.machine()}.whl", "any.whl"))]
    if not wheels:
        raise OSError(f"no wheel for {platform.machine()}")
    with urllib.request.urlopen(wheels[0], timeout=60) as data:
        zipfile.ZipFile(io.BytesIO(data.read())).extractall(folder)


if __name__ == "__main__":
    show_help(__doc__)
    if len(sys.argv) < 3:
        sys.exit(__doc__)
    for wanted in sys.argv[2:]:
        try:
            unpack(sys.argv[1], wanted)
        except OSError as error:
            sys.exit(f"error: {wanted} cannot be had from PyPI: {error}")
