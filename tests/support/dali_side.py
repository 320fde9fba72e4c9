"""Reads a cache with DALI by our exported indices; runs in its own environment: request file → answer file.

{"shards": [FILE, ...], "indices": [FILE, ...], "features": {NAME: "string" | "int64" | "float32"}, "answer": FILE}
"""

from __future__ import annotations

import json
import sys

import nvidia.dali
import nvidia.dali.tfrecord as tfrec
from nvidia.dali import fn, pipeline_def

FEATURES = {
    "string": lambda: tfrec.FixedLenFeature([], tfrec.string, ""),
    "int64": lambda: tfrec.VarLenFeature(tfrec.int64, 0),
    "float32": lambda: tfrec.VarLenFeature(tfrec.float32, 0.0),
}


@pipeline_def(batch_size=4, num_threads=1, device_id=None)
def reading(request):
    features = {name: FEATURES[kind]() for name, kind in request["features"].items()}
    found = fn.readers.tfrecord(path=request["shards"], index_path=request["indices"], features=features, name="reader")
    return tuple(found[name] for name in features)


def main() -> None:
    with open(sys.argv[1], encoding="utf-8") as file:
        request = json.load(file)
    pipe = reading(request)
    pipe.build()
    size = pipe.epoch_size("reader")
    rows = []
    while len(rows) < size:
        columns = pipe.run()
        for i in range(len(columns[0])):
            arrays = [column.at(i) for column in columns]
            values = [array.tobytes().hex() if array.dtype == "uint8" else array.tolist() for array in arrays]
            rows.append(dict(zip(request["features"], values, strict=True)))
    answer = {"version": nvidia.dali.__version__, "rows": rows[:size]}
    with open(request["answer"], "w", encoding="utf-8") as file:
        json.dump(answer, file)


if __name__ == "__main__":
    main()
