"""What DALI gives and we do not: see the page of the migration."""

import os

import numpy as np
from nvidia.dali import fn, pipeline_def, types


def write_files(root):
    for label, name in enumerate(("cat", "dog")):
        os.makedirs(os.path.join(root, name))
        for index in range(3):
            np.full(3, 10 * label + index, np.uint8).tofile(os.path.join(root, name, f"{index}.jpg"))


def run(graph, batches=1, batch_size=4):
    pipe = pipeline_def(graph)(batch_size=batch_size, num_threads=1, device_id=None)
    pipe.build()
    made = [pipe.run()[0] for _ in range(batches)]
    return [[np.array(output.at(index)).tolist() for index in range(len(output))] for output in made]


def comparisons_of_int64_and_float32():
    def graph():
        whole = fn.external_source(source=lambda: [np.int64(2**24 + 1)])
        return whole == fn.external_source(source=lambda: [np.float32(2**24)])

    return run(graph, batch_size=1)


def none_in_an_index():
    return run(lambda: types.Constant(np.zeros((2, 3), np.uint8))[None].shape(), batch_size=1)


def whole_quotients_of_floats():
    def graph():
        return types.Constant(np.float32([7.0])) // 2

    try:
        return run(graph, batch_size=1)
    except TypeError:
        return "refused"


def the_end_of_an_epoch(root):
    write_files(root)
    return run(lambda: fn.readers.file(file_root=root)[0][0], batches=2)


def the_files_of_a_shard(root):
    write_files(root)
    return run(lambda: fn.readers.file(file_root=root, shard_id=1, num_shards=2)[0][0], batch_size=3)


def where_a_file_was_read(root):
    write_files(root)
    ((sample,),) = run(lambda: fn.readers.file(file_root=root)[0].source_info(), batch_size=1)
    return bytes(sample).decode()


def epochs_of(source, batch_size, **options):
    """Batches of two epochs, with the end of each."""
    found = []
    pipe = pipeline_def(lambda: fn.external_source(source=source, **options))(
        batch_size=batch_size, num_threads=1, device_id=None
    )
    pipe.build()
    for _ in range(2):
        try:
            while True:
                found.append([np.array(sample).tolist() for sample in pipe.run()[0]])
        except StopIteration:
            found.append("end")
            pipe.reset()
    return found


def samples_that_fill_no_batch():
    def sample(info):
        if info.idx_in_epoch >= 3:
            raise StopIteration
        return np.float32([info.idx_in_epoch])

    return epochs_of(sample, 2, batch=False)


def a_list_that_was_read():
    return epochs_of([np.float32([1, 2])], 2)
