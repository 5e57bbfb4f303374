"""kcp_build.py -- pip's way to a wheel: make libkcp.so in the checkout, pack it with
kcp_torch. Needs make and a C compiler; no setuptools, and no network.

Book: chapter 08.  Checked by: tests/cli/torch.sh.  Next: kcp_torch/__init__.py.

KCP_LIB names a libkcp.so that is built already. KCP_MAKE holds more words for make, as
KCP_MAKE="CUDA_HOME=none B=build/other".
"""
import base64
import hashlib
import os
import re
import shlex
import subprocess
import zipfile

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.normpath(os.path.join(HERE, "..", "..", ".."))


def _library():
    path = os.environ.get("KCP_LIB")
    if path and not os.path.exists(path):
        raise SystemExit(f"KCP_LIB: found no file {path}, expected libkcp.so")
    if path:
        return path
    words = shlex.split(os.environ.get("KCP_MAKE", ""))
    build = ([w[2:] for w in words if w.startswith("B=")] or ["build"])[-1]
    made = subprocess.run(["make", "-s", "-C", ROOT, *words, f"{build}/libkcp.so"])
    if made.returncode:
        raise SystemExit("kcp_build: make libkcp.so failed, as it says above")
    return os.path.join(ROOT, build, "libkcp.so")


def build_wheel(where, config_settings=None, metadata_directory=None):
    text = open(os.path.join(ROOT, "ref", "core", "version.c")).read()
    version = re.search(r'return "([0-9.]+)"', text).group(1)
    tag = f"py3-none-linux_{os.uname().machine}"
    files = {"kcp_torch/libkcp.so": open(_library(), "rb").read()}
    for name in sorted(os.listdir(os.path.join(HERE, "kcp_torch"))):
        if name.endswith(".py"):
            path = os.path.join(HERE, "kcp_torch", name)
            files[f"kcp_torch/{name}"] = open(path, "rb").read()
    info = f"kcp_torch-{version}.dist-info"
    files[f"{info}/METADATA"] = (f"Metadata-Version: 2.1\nName: kcp-torch\n"
                                 f"Version: {version}\n").encode()
    files[f"{info}/WHEEL"] = (f"Wheel-Version: 1.0\nGenerator: kcp_build\n"
                              f"Root-Is-Purelib: false\nTag: {tag}\n").encode()
    files[f"{info}/LICENSE"] = open(os.path.join(ROOT, "LICENSE"), "rb").read()
    record = []
    for name, data in files.items():
        digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest())
        record.append(f"{name},sha256={digest.rstrip(b'=').decode()},{len(data)}")
    record.append(f"{info}/RECORD,,")
    files[f"{info}/RECORD"] = ("\n".join(record) + "\n").encode()
    wheel = f"kcp_torch-{version}-{tag}.whl"
    with zipfile.ZipFile(os.path.join(where, wheel), "w", zipfile.ZIP_DEFLATED) as z:
        for name, data in files.items():
            z.writestr(name, data)
    return wheel


def build_sdist(where, config_settings=None):
    raise SystemExit("kcp_build: found this folder alone, expected the checkout")
