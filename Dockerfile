# syntax=docker/dockerfile:1
# The worker image: Beam's boot program from its official SDK image of the pinned version, and this package with what it
# needs, on a Python without compilers.
#   docker build --target root -t REGION-docker.pkg.dev/PROJECT/REPO/beam-pipes:0.1.0 .    (Dataflow)
#   docker build --target flex-template -t … .                                             (a Flex Template)
#   docker build -t REGISTRY/beam-pipes:0.1.0 .                                            (everything else; not root)
# Builds that learn with tensorflow-transform need 1.8 GB more: --target root-tft, --target worker-tft.
ARG BEAM_VERSION=2.77.0
ARG PYTHON_VERSION=3.11

FROM apache/beam_python${PYTHON_VERSION}_sdk:${BEAM_VERSION} AS beam

FROM python:${PYTHON_VERSION}-slim-bookworm AS packages
RUN pip install --no-cache-dir uv==0.9.30
WORKDIR /source
# Requirements first: this layer, the large one, is rebuilt only when they change.
COPY setup.py pyproject.toml constraints.txt README.md LICENSE ./
RUN --mount=type=cache,target=/root/.cache/uv \
    uv pip install --python "$(command -v python)" --prefix /install --constraint constraints.txt \
    --requirement pyproject.toml --extra beam --extra text --extra gcs --extra s3 --extra azure
COPY beam_pipes beam_pipes
RUN --mount=type=cache,target=/root/.cache/uv \
    uv pip install --python "$(command -v python)" --prefix /install --no-deps .

FROM packages AS packages-tft
RUN --mount=type=cache,target=/root/.cache/uv \
    uv pip install --python "$(command -v python)" --prefix /install --constraint constraints.txt \
    --requirement pyproject.toml --extra tft

FROM python:${PYTHON_VERSION}-slim-bookworm AS root
COPY --from=packages /install /usr/local
COPY --from=beam /opt/apache/beam /opt/apache/beam
# Whoever it runs as, the boot program wants to know a name and a home, makes the environment of each worker in one
# directory, and writes the options of the pipeline into the one that it runs in.
RUN echo 'worker:x:65532:65532::/home/worker:/usr/sbin/nologin' >> /etc/passwd \
    && echo 'worker:x:65532:' >> /etc/group \
    && install -d -m 1777 /opt/apache/beam-venv /home/worker
ENV USER=worker
ENV HOME=/home/worker
WORKDIR /home/worker
ENTRYPOINT ["/opt/apache/beam/boot"]

# A Flex Template of Dataflow: Google's launcher, which runs flex_template.py, in the image of the workers.
FROM root AS flex-template
COPY --from=gcr.io/dataflow-templates-base/python311-template-launcher-base:flex_templates_base_image_release_20260112_RC00 \
    /opt/google/dataflow/python_template_launcher /opt/google/dataflow/python_template_launcher
COPY runners/dataflow/flex_template.py /template/
ENV FLEX_TEMPLATE_PYTHON_PY_FILE=/template/flex_template.py

FROM root AS root-tft
COPY --from=packages-tft /install /usr/local

FROM root-tft AS worker-tft
USER 65532:65532

# The default: a user without rights, by number, as Kubernetes wants it.
FROM root AS worker
USER 65532:65532
