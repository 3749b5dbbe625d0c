# FastFill with the extras that are named, as a user without rights.
#   docker build -t fastfill --build-arg EXTRAS=postgres,metrics .
FROM python:3.11-slim AS build
ARG EXTRAS=postgres,qdrant,lance,metrics
WORKDIR /source
COPY pyproject.toml constraints.txt README.md LICENSE ./
COPY src ./src
RUN python -m venv /opt/fastfill \
 && /opt/fastfill/bin/pip install --no-cache-dir --quiet -c constraints.txt ".[${EXTRAS}]"

FROM python:3.11-slim
COPY --from=build /opt/fastfill /opt/fastfill
# NUMBA_CACHE_DIR: compiled kernels need a place that this user may write to.
ENV PATH=/opt/fastfill/bin:$PATH \
    PYTHONPATH=/app \
    PYTHONUNBUFFERED=1 \
    NUMBA_CACHE_DIR=/tmp/numba
RUN useradd --uid 10001 --create-home fastfill
USER 10001
WORKDIR /app
ENTRYPOINT ["fastfill"]
CMD ["--help"]
