"""Arrays in files, and archives in which some components are missing."""

import nvidia.dali.fn as fn
import nvidia.dali.types as types
from nvidia.dali import Pipeline, pipeline_def

found = {}
data_dir = "data/numpy"


@pipeline_def(batch_size=3, num_threads=2, device_id=None)
def pipe1():
    data = fn.readers.numpy(device="cpu", file_root=data_dir, files=["0.npy", "2.npy", "1.npy"])
    return data


@pipeline_def(batch_size=3, num_threads=2, device_id=None)
def pipe2():
    data = fn.readers.numpy(device="cpu", file_root=data_dir, file_filter="*.npy", name="Numpy")
    return data, data.shape(), fn.cast(data, dtype=types.UINT8)


@pipeline_def(batch_size=3, num_threads=2, device_id=None)
def pipe3():
    data = fn.readers.numpy(device="cpu", file_root=data_dir, file_list="data/numpy/list.txt")
    return data


def run(p):
    pipe = p() if callable(p) else p
    pipe.build()
    outputs = pipe.run()
    return [[output.at(index) for index in range(len(output))] for output in outputs]


found["files"], found["filter"], found["list"] = run(pipe1), run(pipe2), run(pipe3)


@pipeline_def(batch_size=3, num_threads=2, device_id=None)
def pair():
    images = fn.readers.numpy(file_root=data_dir, file_filter="*.npy", shard_id=0, num_shards=1, name="a", seed=3)
    again = fn.readers.numpy(file_root=data_dir, file_filter="*.npy", name="b", seed=3)
    return images - again, fn.reductions.mean(images)


found["pair"] = run(pair)

wds_data = "data/web/train.tar"


@pipeline_def(batch_size=4, num_threads=2, device_id=None)
def webdataset_pipeline(paths=wds_data, index_paths=None, missing_component_behavior="empty"):
    img_raw, cls = fn.readers.webdataset(
        paths=paths,
        index_paths=index_paths,
        ext=["jpg;png", "cls"],
        missing_component_behavior=missing_component_behavior,
    )
    return img_raw, cls


for behavior in ("empty", "skip"):
    pipe = webdataset_pipeline(missing_component_behavior=behavior)
    pipe.build()
    images, classes = pipe.run()
    found[behavior] = [[images.at(i).size, bytes(classes.at(i)), classes.at(i).shape] for i in range(4)]
    found[f"{behavior}, dtypes"] = [images.at(0).dtype.name, classes.at(0).dtype.name]
try:
    pipe = webdataset_pipeline(missing_component_behavior="error")
    pipe.build()
    pipe.run()
except RuntimeError:
    found["error"] = "RuntimeError"

index = webdataset_pipeline(index_paths=["data/web/train.idx"])
found["by index"] = run(index)


@pipeline_def(batch_size=2, num_threads=2, device_id=None, seed=2)
def decoded():
    img_raw, ascii_, meta = fn.readers.webdataset(
        paths=[wds_data],
        ext=["jpg", "cls", "json"],
        missing_component_behavior="skip",
        name="Reader",
        dtypes=[types.UINT8, types.UINT8, types.UINT8],
        random_shuffle=True,
        initial_fill=10,
    )
    img = fn.decoders.image(img_raw, device="cpu")
    resized = fn.resize(img, resize_shorter=16.0)
    ascii_shift = types.Constant(48).uint8()
    labels = ascii_ - ascii_shift
    return resized, labels, meta


pipe = decoded()
pipe.build()
found["size"] = pipe.epoch_size("Reader")
images, labels, meta = pipe.run()
found["decoded"] = [
    [min(images.shape()[i][:2]), images.at(i).dtype.name, labels.at(i).dtype.name, labels.shape()[i], bytes(meta.at(i))]
    for i in range(2)
]
for name, options in {
    "no such directory": {"file_root": "data/nowhere"},
    "no such file": {"files": ["data/numpy/9.npy"]},
    "no file fits": {"file_root": data_dir, "file_filter": "*.npz"},
}.items():
    try:
        pipe = Pipeline(batch_size=1, num_threads=1, device_id=None)
        with pipe:
            pipe.set_outputs(fn.readers.numpy(**options))
        pipe.build()
        pipe.run()
        found[name] = "runs"
    except RuntimeError:
        found[name] = "RuntimeError"
