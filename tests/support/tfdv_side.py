"""What TensorFlow Data Validation makes of our exports; runs in its own environment: request file → answer file.

{"tfmd": DIR, "tfx": DIR, "split": NAME, "answer": FILE}
"""

from __future__ import annotations

import json
import sys

import tensorflow_data_validation as tfdv
from apache_beam.options.pipeline_options import PipelineOptions
from tensorflow_data_validation.utils.display_util import get_statistics_html

# By its own name it starts in this process, and asks no network for another one.
RUNNER = "apache_beam.runners.portability.fn_api_runner.FnApiRunner"


def figures(dataset) -> dict:
    """Feature → what the statistics say of it, in the names of the protos."""
    found = {}
    for feature in dataset.features:
        kind = feature.WhichOneof("stats")
        stats = getattr(feature, kind)
        common = stats.common_stats
        found[feature.path.step[0] or feature.name] = {
            "kind": kind,
            "type": feature.Type.Name(feature.type) if hasattr(feature, "Type") else feature.type,
            "num_non_missing": common.num_non_missing,
            "tot_num_values": common.tot_num_values,
            "min_num_values": common.min_num_values,
            "max_num_values": common.max_num_values,
            **(
                {name: getattr(stats, name) for name in ("mean", "std_dev", "num_zeros", "min", "median", "max")}
                if kind == "num_stats"
                else {"unique": stats.unique}
            ),
        }
    return found


def only(statistics, split: str):
    """The statistics of one split, as a list of its own: what `validate_statistics` takes."""
    made = type(statistics)()
    (dataset,) = [dataset for dataset in statistics.datasets if dataset.name == split]
    made.datasets.add().CopyFrom(dataset)
    return made


def main() -> None:
    with open(sys.argv[1], encoding="utf-8") as file:
        request = json.load(file)
    split = request["split"]
    statistics = only(tfdv.load_stats_binary(f"{request['tfmd']}/statistics.pb"), split)
    schema = tfdv.load_schema_text(f"{request['tfmd']}/schema-{split}.pbtxt")
    narrow = tfdv.load_schema_text(f"{request['tfmd']}/schema-{split}.pbtxt")
    tfdv.get_feature(narrow, "tokens").int_domain.max = 40
    theirs = tfdv.generate_statistics_from_tfrecord(
        f"{request['tfx']}/Split-{split}/*.gz", pipeline_options=PipelineOptions([f"--runner={RUNNER}"])
    )
    answer = {
        "version": tfdv.__version__,
        "num_examples": statistics.datasets[0].num_examples,
        "anomalies": sorted(tfdv.validate_statistics(statistics, schema).anomaly_info),
        "anomalies_of_theirs": sorted(tfdv.validate_statistics(theirs, schema).anomaly_info),
        "anomalies_where_tokens_are_narrow": sorted(tfdv.validate_statistics(statistics, narrow).anomaly_info),
        "page_bytes": len(get_statistics_html(statistics)),
        "ours": figures(statistics.datasets[0]),
        "theirs": figures(theirs.datasets[0]),
    }
    with open(request["answer"], "w", encoding="utf-8") as file:
        json.dump(answer, file)


if __name__ == "__main__":
    main()
