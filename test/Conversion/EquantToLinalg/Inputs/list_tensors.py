"""Type, shape and name of every tensor of a safetensors file."""

import json
import struct
import sys

with open(sys.argv[1], "rb") as file:
    (length,) = struct.unpack("<Q", file.read(8))
    for name, tensor in json.loads(file.read(length)).items():
        if name != "__metadata__":
            print(tensor["dtype"], "x".join(map(str, tensor["shape"])), name)
