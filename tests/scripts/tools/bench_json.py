#!/usr/bin/python3
"""Runs `gradlane bench codec --quick --json` on a few rows and checks the form of what it prints, not the speed."""

import argparse
import json
import subprocess
import sys

FIELDS = {
    "codec": str,
    "isa": str,
    "op": str,
    "data": str,
    "block_bytes": int,
    "gb_per_s": float,
    "memcpy_gb_per_s": float,
    "vs_memcpy": float,
    "ratio": float,
}


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("gradlane")
    args = parser.parse_args()
    command = [args.gradlane, "bench", "codec", "--quick", "--json", "--block", "1408", "--data", "laplace-1e-3"]
    result = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)

    rows = result["rows"]
    for row in rows:
        assert set(row) == set(FIELDS), row
        for field, kind in FIELDS.items():
            assert isinstance(row[field], kind), (field, row)
        assert row["gb_per_s"] > 0 and row["memcpy_gb_per_s"] > 0, row
    found = {(row["codec"], row["op"]) for row in rows}
    for codec in ("raw", "bf16", "fp16", "inceptionn:10", "fixed:10"):
        for op in ("encode", "decode", "validate+decode", "decode_add", "hop", "validate+hop"):
            assert (codec, op) in found, (codec, op)
    assert ("fixed:10", "hop_feedback") in found
    assert ("raw", "hop_feedback") not in found

    ratio = {row["codec"]: row["ratio"] for row in rows}
    assert ratio["raw"] == 1.0 and ratio["bf16"] == 2.0 and ratio["fp16"] == 2.0, ratio
    assert 5 < ratio["fixed:10"] < 8 and 5 < ratio["inceptionn:10"] < 8, ratio
    engine = result["engine"]
    assert len(engine) == 1 and 0 < engine[0]["compress_gbps"] <= 25.6, engine
    print(f"{len(rows)} rows in order")


if __name__ == "__main__":
    sys.exit(main())
