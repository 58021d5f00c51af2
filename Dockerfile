# The one image of all processes: web, worker, beat and sync differ by their command only.
FROM python:3.13-slim-trixie

ENV PYTHONUNBUFFERED=1 PIP_NO_CACHE_DIR=1 PIP_DISABLE_PIP_VERSION_CHECK=1
WORKDIR /app

COPY requirements.txt .
RUN pip install --only-binary :all: --require-hashes -r requirements.txt

COPY manage.py .
COPY proxyfleet proxyfleet
COPY providers providers
COPY health health
COPY leasing leasing
COPY k8s_sync k8s_sync
COPY templates templates
RUN python -m compileall -q . && useradd --system --uid 10001 --home-dir /var/lib/proxyfleet --create-home proxyfleet

USER 10001
ENV PROXYFLEET_STATE_DIR=/var/lib/proxyfleet
EXPOSE 8090
