"""python -m benchmarks.shared.storage_server

Object storage on the loopback in a process of its own, whose CPU time is not that of whoever uses
it: moto, which speaks S3's protocol. Small objects are in memory, large ones in temporary files.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from benchmarks.shared.paths import ROOT

BUCKET = "gallery"


class StorageServer:
    """A running server with one bucket."""

    def __init__(self, process: subprocess.Popen[str], address: str) -> None:
        self._process, self.address = process, address
        self.bucket = f"s3://{BUCKET}"

    @property
    def environment(self) -> dict[str, str]:
        """Where it is, and who may use it."""
        return {
            "AWS_ENDPOINT_URL": self.address, "AWS_ALLOW_HTTP": "true",
            "AWS_ACCESS_KEY_ID": "someone", "AWS_SECRET_ACCESS_KEY": "secret",
            "AWS_REGION": "us-east-1", "AWS_DEFAULT_REGION": "us-east-1",
            "AWS_EC2_METADATA_DISABLED": "true",
        }  # fmt: skip

    @property
    def cpu(self) -> float:
        """Seconds that it has computed so far."""
        import psutil

        times = psutil.Process(self._process.pid).cpu_times()
        return float(times.user + times.system)


@contextmanager
def storage_server() -> Iterator[StorageServer]:
    """A server for as long as the block lasts; its environment is this process's then."""
    command = [sys.executable, "-m", "benchmarks.shared.storage_server"]
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, cwd=ROOT, text=True
    )
    assert process.stdout is not None
    server = StorageServer(process, process.stdout.readline().strip())
    before = {name: os.environ.get(name) for name in server.environment}
    os.environ |= server.environment
    try:
        _client().create_bucket(Bucket=BUCKET)
        yield server
    finally:
        process.kill()
        process.wait()
        process.stdout.close()
        for name, value in before.items():
            os.environ.pop(name) if value is None else os.environ.update({name: value})


def _client() -> Any:
    import boto3  # type: ignore[import-untyped]

    return boto3.client("s3", endpoint_url=os.environ["AWS_ENDPOINT_URL"])


def main() -> None:
    """Serve until killed."""
    from moto.server import ThreadedMotoServer

    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    print(f"http://127.0.0.1:{server.get_host_and_port()[1]}", flush=True)
    while True:
        time.sleep(3_600)


if __name__ == "__main__":
    main()
