# The agent as an image: no compiler, no root, nothing to write but its state directory.
# docs/install.md tells which mounts and which rights it needs to see what.

ARG PYTHON_IMAGE=python:3.13-slim

FROM ${PYTHON_IMAGE} AS build
WORKDIR /src
# Wheels alone, of exactly these versions and hashes: nothing is compiled on amd64 or arm64.
COPY deploy/requirements.txt deploy/
RUN python3 -m venv --without-pip /opt/hermes-exporter \
    && python3 -m pip --python /opt/hermes-exporter install --no-cache-dir \
        --only-binary :all: --require-hashes --requirement deploy/requirements.txt
COPY pyproject.toml README.md LICENSE ./
COPY exporter exporter
RUN python3 -m pip --python /opt/hermes-exporter install --no-cache-dir --no-deps . \
    && /opt/hermes-exporter/bin/python -m compileall -q /opt/hermes-exporter/lib

FROM ${PYTHON_IMAGE}
ARG VERSION=unknown
ARG REVISION=unknown
LABEL org.opencontainers.image.title="hermes-exporter" \
      org.opencontainers.image.description="Per-host agent for hermes-agent: Prometheus metrics, session reaper and disk pruner" \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.version="${VERSION}" \
      org.opencontainers.image.revision="${REVISION}"
# git counts and bundles checkpoints. Its version is the base image's: Debian keeps no older ones
# to pin. The state directory is open to whatever user the container is run as, like /tmp.
# hadolint ignore=DL3008
RUN apt-get update \
    && apt-get install --no-install-recommends --yes git \
    && rm -rf /var/lib/apt/lists/* \
    && mkdir -m 1777 /var/lib/hermes-exporter
COPY --from=build /opt/hermes-exporter /opt/hermes-exporter
ENV PATH=/opt/hermes-exporter/bin:$PATH \
    PYTHONDONTWRITEBYTECODE=1 \
    PYTHONUNBUFFERED=1 \
    # Where a home is mounted, and where counters are kept by whatever user.
    HERMES_HOME=/hermes \
    XDG_STATE_HOME=/var/lib \
    HEALTH_URL=http://127.0.0.1:10749/-/healthy
VOLUME /var/lib/hermes-exporter
EXPOSE 10749
# Nobody's number: give --user the owner of the home instead.
USER 65532:65532
HEALTHCHECK --interval=30s --timeout=5s --start-period=30s --retries=3 \
    CMD ["python3", "-I", "-c", "import os, urllib.request; urllib.request.urlopen(os.environ['HEALTH_URL'], timeout=4)"]
ENTRYPOINT ["hermes-exporter"]
CMD ["serve", "--web.listen-address=:10749"]
