#!/usr/bin/env python3
"""Writes tests/golden/dequantize.bin: random blocks of every weight format and the float32 values they stand for.

The oracle is the package "gguf" (pip install gguf), whose numpy code is independent of ours. Layout, little-endian:
per format a 16-byte name padded with zeros, u32 number of values, u32 number of bytes, the bytes, the float32 values.
Scales are drawn as finite halves of moderate size; every other bit is random.
"""

import argparse
import struct

import numpy as np
from gguf import GGML_QUANT_SIZES, GGMLQuantizationType
from gguf.quants import dequantize

# Byte offsets of half-precision scales within a block.
HALF_SCALES = {
    "F16": [0], "Q4_0": [0], "Q4_1": [0, 2], "Q5_0": [0], "Q5_1": [0, 2], "Q8_0": [0], "Q2_K": [80, 82],
    "Q3_K": [108], "Q4_K": [0, 2], "Q5_K": [0, 2], "Q6_K": [208], "IQ4_NL": [0],
}
NAMES = ["F32", "F16", "BF16", "Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0", "Q2_K", "Q3_K", "Q4_K", "Q5_K", "Q6_K",
         "IQ4_NL", "MXFP4"]


def random_blocks(name, rng):
    values, size = GGML_QUANT_SIZES[GGMLQuantizationType[name]]
    count = 512 // values
    if name == "F32":
        return rng.normal(size=count).astype(np.float32).view(np.uint8).reshape(1, -1)
    if name == "BF16":
        bits = rng.normal(size=count).astype(np.float32).view(np.uint32) >> 16
        return bits.astype(np.uint16).view(np.uint8).reshape(1, -1)
    blocks = rng.integers(0, 256, size=(count, size), dtype=np.uint8)
    for offset in HALF_SCALES.get(name, []):
        scale = rng.normal(scale=0.05, size=(count, 1)).astype(np.float16)
        blocks[:, offset:offset + 2] = scale.view(np.uint8)
    if name == "MXFP4":
        blocks[:, 0] = rng.integers(100, 150, size=count)
        blocks[:3, 0] = [0, 1, 2]
    return blocks.reshape(1, -1)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--output", default="tests/golden/dequantize.bin")
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    rng = np.random.default_rng(args.seed)
    with open(args.output, "wb") as out:
        for name in NAMES:
            data = random_blocks(name, rng)
            values = dequantize(data, GGMLQuantizationType[name]).astype("<f4").reshape(-1)
            assert np.isfinite(values).all(), name
            out.write(struct.pack("<16sII", name.encode(), values.size, data.size))
            out.write(data.tobytes())
            out.write(values.tobytes())


if __name__ == "__main__":
    main()
