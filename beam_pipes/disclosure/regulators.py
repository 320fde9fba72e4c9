"""Two forms: the public summary of training content (EU), and the documentation of training data (California).

EU: Article 53(1)(d) of Regulation (EU) 2024/1689, template of the Commission's explanatory notice, C(2025) 8311.
California: Assembly Bill 2013 (2024), Civil Code, section 3111(a).
"""

from __future__ import annotations

from beam_pipes.disclosure.facts import Facts
from beam_pipes.disclosure.forms import dropped_table, filled, lengths_text, periods, sources_table, table

_ABOUT = (
    "Filled in from the accounts of the caches, as far as they know; the numbers are sums over their manifests. This "
    "is no legal advice."
)

_EU = """
## Summary
Version of the Summary
Last update
## 1. General information
### 1.1. Provider identification
Provider name and contact details
Authorised representative name and contact details
### 1.2. Model identification
Versioned model name(s)
Model dependencies
Date of placement of the model on the Union market
### 1.3. Modalities, overall training data size and other characteristics
Modality
Training data size
Types of content
Latest date of data acquisition/collection for model training
Is the model continuously trained on new/dynamic data after this date?
Description of the linguistic characteristics of the overall training data
Other relevant characteristics of the overall training data
Additional comments (optional)
## 2. List of data sources
### 2.1. Publicly available datasets
Have you used publicly available datasets to train the model?
If yes, specify the modality(ies) of the content covered by the datasets concerned
List of large publicly available datasets
General description of other publicly available datasets not listed above
Additional comments (optional)
### 2.2. Private non-publicly available datasets obtained from third parties
### 2.2.1. Datasets commercially licensed by rightsholders or their representatives
Have you concluded transactional commercial licensing agreement(s) with rightsholder(s) or with their representatives?
If yes, specify the modality(ies) of the content covered
### 2.2.2. Private datasets obtained from other third parties
Have you obtained private datasets from third parties that are not licensed as described in Section 2.2.1, such as data
  obtained from providers of private databases, or data intermediaries?
If yes, specify the modality(ies) of the content covered by the datasets concerned
If publicly known, list private datasets obtained from other third parties
General description of non-publicly known private datasets obtained from third parties
Additional comments (optional)
### 2.3. Data crawled and scraped from online sources
Were crawlers used by the provider or on behalf of?
Crawler name(s)/identifier(s)
Purposes of the crawler(s)
General description of crawler behaviour
Period of data collection
Comprehensive description of the type of content and online sources crawled
Type of modality covered
Summary of the most relevant domain names crawled
Additional comments (optional)
### 2.4. User data
Was data from user interactions with the AI model (e.g. user input and prompts) used to train the model?
Was data collected from user interactions with the provider's other services or products used to train the model?
If yes, provide a general description of the provider's services or products that were used to collect the user data
Type of modality covered
Additional comments (optional)
### 2.5. Synthetic data
Was synthetic AI-generated data created by the provider or on their behalf to train the model?
If yes, modality of the synthetic data
General-purpose AI model(s) used to generate the synthetic data if available on the market
Information about other AI models, including provider's own AI model(s) not available on the market, used to generate
  synthetic data to train the model
Additional comments (optional)
### 2.6. Other sources of data
Have data sources other than those described in Sections 2.1 to 2.5 been used to train the model?
If yes, provide a narrative description of these data sources and the data
Additional comments (optional)
## 3. Data processing aspects
### 3.1. Respect of reservation of rights from text and data mining exception or limitation
Are you a Signatory to the Code of Practice for general-purpose AI models that includes commitments to respect
  reservations of rights from the TDM exception or limitation?
Describe the measures implemented before model training to respect reservations of rights from the TDM exception or
  limitation before and during data collection, including the opt-out protocols and solutions honoured by the provider
  or, as applicable, by third parties from which datasets have been obtained
Additional comments (optional)
### 3.2. Removal of illegal content
General description of measures taken
### 3.3. Other information (optional)
Other relevant information about data processing (optional)
"""


def eu_summary(facts: Facts) -> str:
    """The Commission's template, in its sections and questions."""
    latest, silent = periods(facts)
    records = sum(source.records for source in facts.sources)
    num_bytes = sum(source.num_bytes for source in facts.sources)
    sizes = [f"- {name}: {total:,}{_size_class(name, total)}" for name, total in facts.lengths().items()]
    acquired = "Latest date of data acquisition/collection for model training"
    silent_sources = f"{silent:,} of {len(facts.sources):,} sources do not say when they were collected."
    return filled(
        _EU,
        title="Public summary of training content for general-purpose AI models",
        about=f"Required by Article 53(1)(d) of Regulation (EU) 2024/1689 (AI Act). {_ABOUT}",
        answers={
            "Training data size": [
                f"{records:,} records, {num_bytes:,} bytes. Lengths, over all records:",
                "",
                *(sizes or ["- no feature varies in length"]),
            ],
            acquired: [f"{latest} (the latest that a source declares)"] if latest else [],
        },
        notes={
            acquired: [silent_sources] if silent else [],
            "## 2. List of data sources": [
                "What the sources declared where the caches were built, for the sections below:",
                "",
                *sources_table(facts),
            ],
            "General description of measures taken": _left_out(facts),
        },
    )


def _size_class(name: str, total: int) -> str:
    """The size class of the template for text, of features that are named after tokens."""
    if "token" not in name:
        return ""
    if total < 10**9:
        return " (less than 1 billion tokens)"
    return " (1 billion to 10 trillion tokens)" if total <= 10**13 else " (more than 10 trillion tokens)"


def _left_out(facts: Facts) -> list[str]:
    rows = dropped_table(facts)
    removed = sum(cache.removed for cache in facts.caches)
    found = ["What the stages of the builds left out, whatever the reason was:", "", *rows, ""] if rows else []
    return [*found, f"Records that are taken down now: {removed:,}."]


_CALIFORNIA = """
## (a)(1)
The sources or owners of the datasets.
## (a)(2)
A description of how the datasets further the intended purpose of the artificial intelligence system or service.
## (a)(3)
The number of data points included in the datasets, which may be in general ranges, and with estimated figures for
  dynamic datasets.
## (a)(4)
A description of the types of data points within the datasets. For purposes of this paragraph, the following
  definitions apply: (A) As applied to datasets that include labels, “types of data points” means the types of labels
  used. (B) As applied to datasets without labeling, “types of data points” refers to the general characteristics.
## (a)(5)
Whether the datasets include any data protected by copyright, trademark, or patent, or whether the datasets are entirely
  in the public domain.
## (a)(6)
Whether the datasets were purchased or licensed by the developer.
## (a)(7)
Whether the datasets include personal information, as defined in subdivision (v) of Section 1798.140.
## (a)(8)
Whether the datasets include aggregate consumer information, as defined in subdivision (b) of Section 1798.140.
## (a)(9)
Whether there was any cleaning, processing, or other modification to the datasets by the developer, including the
  intended purpose of those efforts in relation to the artificial intelligence system or service.
## (a)(10)
The time period during which the data in the datasets were collected, including a notice if the data collection is
  ongoing.
## (a)(11)
The dates the datasets were first used during the development of the artificial intelligence system or service.
## (a)(12)
Whether the generative artificial intelligence system or service used or continuously uses synthetic data generation in
  its development. A developer may include a description of the functional need or desired purpose of the synthetic data
  in relation to the intended purpose of the system or service.
"""


def california_ab_2013(facts: Facts) -> str:
    """The twelve points of AB 2013."""
    points = [line for line in _CALIFORNIA.replace("\n  ", " ").splitlines() if line and not line.startswith("#")]
    numbers = [(source.cache, source.split, source.records, lengths_text(source.lengths)) for source in facts.sources]
    features = [
        (*place, feature.dtype, str(list(feature.shape)), ", ".join((feature.class_names or [])[:20]))
        for *place, feature in facts.features()
    ]
    licenses = list(dict.fromkeys(source.terms.license or "not declared" for source in facts.sources))
    collected = list(dict.fromkeys(source.terms.collected or "not declared" for source in facts.sources))
    declared = [f"Licenses, as declared: {', '.join(licenses)}."]
    return filled(
        _CALIFORNIA,
        title="Training data of a generative artificial intelligence system or service",
        about=f"California Civil Code, section 3111 (Assembly Bill 2013). {_ABOUT}",
        answers={
            points[0]: sources_table(facts),
            points[2]: table(["cache", "split", "data points", "lengths"], numbers),
            points[3]: table(["cache", "split", "feature", "dtype", "shape", "labels"], features) if features else [],
        },
        notes={
            points[4]: declared,
            points[5]: declared,
            points[8]: _left_out(facts),
            points[9]: [
                f"Collected, as declared: {', '.join(collected)}. Whether collection is ongoing is not known here."
            ],
        },
    )
