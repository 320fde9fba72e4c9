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
COPY constraints.txt /opt/beam-pipes/constraints.txt
RUN --mount=type=bind,from=wheels,source=/wheels,target=/wheels \
    pip install --no-cache-dir --constraint /opt/beam-pipes/constraints.txt \
    "$(ls /wheels/beam_pipes-*.whl)[beam,text,gcs]"
# The entry point stays Beam's own boot program.
