"""Serves a small real model on loopback, until its standard input ends: `python llama_server.py PORT MODEL SLOTS`."""

from __future__ import annotations

import sys

import xllamacpp


def main() -> None:
    params = xllamacpp.CommonParams()
    params.model.path = sys.argv[2]
    params.hostnames = ["127.0.0.1"]
    params.port = int(sys.argv[1])
    params.model_alias = ["smollm2"]
    params.n_ctx = 2048 * int(sys.argv[3])
    params.n_parallel = int(sys.argv[3])
    params.cpuparams.n_threads = 1  # with two, its spinning barriers starve whatever else runs
    params.endpoint_slots = True
    params.ui = False
    server = xllamacpp.Server(params)
    sys.stdin.read()
    del server


if __name__ == "__main__":
    main()
