"""A data set dealt out to two pipelines, each on its own shard, and by size."""

from nvidia.dali import fn, pipeline_def
from nvidia.dali.plugin.pytorch import DALIGenericIterator, LastBatchPolicy

found = {}
N = 2  # pipelines
BATCH_SIZE = 3


@pipeline_def(batch_size=BATCH_SIZE, num_threads=1, device_id=None)
def sharded(shard_id, stick_to_shard=False, pad_last_batch=False, random_shuffle=False):
    files, labels = fn.readers.file(
        file_root="data/images",
        shard_id=shard_id,
        num_shards=N,
        stick_to_shard=stick_to_shard,
        pad_last_batch=pad_last_batch,
        random_shuffle=random_shuffle,
        name="Reader",
    )
    return fn.peek_image_shape(files), labels


def everything(pipes, policy):
    iterator = DALIGenericIterator(
        pipes, ["shape", "label"], reader_name="Reader", last_batch_policy=policy, auto_reset=True
    )
    epochs = []
    for _ in range(2):
        steps = [[tuple(one["label"].shape) for one in step] for step in iterator]
        epochs.append(steps)
    return [len(iterator), epochs]


for stick in (False, True):
    for pad in (False, True):
        policies = (LastBatchPolicy.PARTIAL, LastBatchPolicy.DROP, LastBatchPolicy.FILL)
        for policy in policies if pad else policies[:2]:
            pipes = [sharded(shard, stick_to_shard=stick, pad_last_batch=pad) for shard in range(N)]
            found[f"steps {stick} {pad} {policy.name}"] = everything(pipes, policy)

# Together the shards hold every file once in each epoch.
pipes = [sharded(shard, stick_to_shard=True, pad_last_batch=True, random_shuffle=True) for shard in range(N)]
iterator = DALIGenericIterator(
    pipes, ["shape", "label"], reader_name="Reader", last_batch_policy=LastBatchPolicy.PARTIAL, auto_reset=True
)
for epoch in range(3):
    labels, shapes = [], []
    for data in iterator:
        for d in data:
            labels += d["label"].flatten().tolist()
            shapes += d["shape"].tolist()
    found[f"epoch {epoch}"] = [sorted(labels), sorted(shapes)]

# Without a reader: a size.
pipes = [sharded(shard, stick_to_shard=True, pad_last_batch=True) for shard in range(N)]
iterator = DALIGenericIterator(pipes, ["shape", "label"], size=10, last_batch_policy=LastBatchPolicy.FILL)
found["size"] = [len(iterator), len(list(iterator))]
iterator.reset()
found["size again"] = len([data for data in iterator])

# A size ends the last step within a batch, as programs for older versions say it too.
for options in ({"fill_last_batch": False}, {"last_batch_policy": LastBatchPolicy.PARTIAL}, {"fill_last_batch": True}):
    for size in (8, 7, 2):
        pipes = [sharded(shard, stick_to_shard=True, pad_last_batch=True) for shard in range(N)]
        iterator = DALIGenericIterator(pipes, ["shape", "label"], size=size, **options)
        found[f"{size} of {sorted(options)[0]} {len(found)}"] = [
            [len(one["label"]) for one in step] for step in iterator
        ]

for shard in range(N):
    pipe = sharded(shard, stick_to_shard=True, pad_last_batch=True)
    pipe.build()
    meta = pipe.reader_meta("Reader")
    found[f"meta {shard}"] = [
        int(meta[key]) for key in ("epoch_size", "epoch_size_padded", "number_of_shards", "shard_id")
    ]
    found[f"dtype {shard}"] = [output.as_array().dtype.name for output in pipe.run()]

try:
    sharded(2).build()
except RuntimeError:
    found["a shard too many"] = "RuntimeError"
