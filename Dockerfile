# The worker image: Beam's official SDK image of the pinned version, plus this package.
# docker build -t REGION-docker.pkg.dev/PROJECT/REPO/beam-pipes:0.1.0 .
ARG BEAM_VERSION=2.77.0
ARG PYTHON_VERSION=3.11

FROM python:${PYTHON_VERSION}-slim AS wheels
WORKDIR /source
RUN pip install --no-cache-dir uv==0.9.30
# Requirements first: this layer is rebuilt only when they change.
COPY setup.py pyproject.toml constraints.txt README.md ./
COPY beam_pipes beam_pipes
COPY transforms transforms
COPY runners runners
RUN uv build --wheel --out-dir /wheels .

FROM apache/beam_python${PYTHON_VERSION}_sdk:${BEAM_VERSION}
COPY constraints.txt /tmp/constraints.txt
COPY --from=wheels /wheels /tmp/wheels
RUN pip install --no-cache-dir --constraint /tmp/constraints.txt \
    "$(ls /tmp/wheels/beam_pipes-*.whl)[beam,text,gcs]" && rm -r /tmp/wheels /tmp/constraints.txt
# The entry point stays Beam's own boot program.
