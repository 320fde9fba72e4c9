"""What TensorFlow Data Validation makes of our exports; runs in its own environment: request file → answer file.

{"caches": {NAME: {"tfmd": DIR, "tfx": DIR}}, "drift": [NAME, NAME], "split": NAME, "answer": FILE}
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
            "avg_num_values": common.avg_num_values,
            "num_missing": common.num_missing,
            "numbers_of_values": buckets_of(common.num_values_histogram),
            **(numbers_of(stats) if kind == "num_stats" else texts_of(stats)),
        }
    return found


def numbers_of(stats) -> dict:
    names = ("mean", "std_dev", "num_zeros", "min", "median", "max")
    histograms = {histogram.HistogramType.Name(histogram.type): histogram for histogram in stats.histograms}
    return {
        **{name: getattr(stats, name) for name in names},
        "num_nan": [histogram.num_nan for histogram in stats.histograms],
        "order_of_histograms": list(histograms),
        **{name: buckets_of(histogram) for name, histogram in histograms.items()},
    }


def texts_of(stats) -> dict:
    if not hasattr(stats, "top_values"):
        return {"unique": stats.unique, "bytes": [stats.avg_num_bytes, stats.min_num_bytes, stats.max_num_bytes]}
    return {
        "unique": stats.unique,
        "avg_length": stats.avg_length,
        "top_values": [[each.value, each.frequency] for each in stats.top_values],
        "ranks": [[each.low_rank, each.label, each.sample_count] for each in stats.rank_histogram.buckets],
    }


def buckets_of(histogram) -> list:
    return [[each.low_value, each.high_value, each.sample_count] for each in histogram.buckets]


def drift(before, after, schema) -> dict:
    """What a check of the distance between two statistics finds: feature → what it measured."""
    checked = type(schema)()
    checked.CopyFrom(schema)
    for feature in checked.feature:
        if feature.name in ("number", "numbers"):
            feature.drift_comparator.jensen_shannon_divergence.threshold = 0.01
        elif feature.name == "text":
            feature.drift_comparator.infinity_norm.threshold = 0.01
    found = tfdv.validate_statistics(after, checked, previous_statistics=before)
    return {
        "anomalies": sorted(found.anomaly_info),
        "measured": {
            each.path.step[0]: each.drift_measurements[0].value
            for each in found.drift_skew_info
            if each.drift_measurements
        },
    }


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
    ours, theirs, schemas = {}, {}, {}
    for name, cache in request["caches"].items():
        ours[name] = only(tfdv.load_stats_binary(f"{cache['tfmd']}/statistics.pb"), split)
        schemas[name] = tfdv.load_schema_text(f"{cache['tfmd']}/schema-{split}.pbtxt")
        theirs[name] = tfdv.generate_statistics_from_tfrecord(
            f"{cache['tfx']}/Split-{split}/*.gz", pipeline_options=PipelineOptions([f"--runner={RUNNER}"])
        )
    narrow = type(schemas["everything"])()
    narrow.CopyFrom(schemas["everything"])
    tfdv.get_feature(narrow, "tokens").int_domain.max = 40
    before, after = request["drift"]
    answer = {
        "version": tfdv.__version__,
        "num_examples": {name: statistics.datasets[0].num_examples for name, statistics in ours.items()},
        "anomalies": {
            name: [sorted(tfdv.validate_statistics(made[name], schema).anomaly_info) for made in (ours, theirs)]
            for name, schema in schemas.items()
        },
        "anomalies_where_tokens_are_narrow": sorted(tfdv.validate_statistics(ours["everything"], narrow).anomaly_info),
        "page_bytes": len(get_statistics_html(ours["everything"])),
        "ours": {name: figures(statistics.datasets[0]) for name, statistics in ours.items()},
        "theirs": {name: figures(statistics.datasets[0]) for name, statistics in theirs.items()},
        "drift": drift(ours[before], ours[after], schemas[before]),
        "drift_of_theirs": drift(theirs[before], theirs[after], schemas[before]),
        "drift_of_nothing": drift(ours[before], ours[before], schemas[before]),
    }
    with open(request["answer"], "w", encoding="utf-8") as file:
        json.dump(answer, file)


if __name__ == "__main__":
    main()
