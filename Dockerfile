# The one image of all processes: web, worker, beat, sync and flower differ by their command only.
FROM python:3.13-slim-trixie

ENV PYTHONUNBUFFERED=1 PIP_NO_CACHE_DIR=1 PIP_DISABLE_PIP_VERSION_CHECK=1
WORKDIR /app

COPY requirements.txt .
RUN pip install --only-binary :all: --require-hashes -r requirements.txt

# `docker build --build-arg KVM=1` for the providers kvm and kvm2: libvirt-python comes as source alone.
ARG KVM=
COPY requirements-kvm.txt .
RUN if [ -n "$KVM" ]; then \
        apt-get update && apt-get install --yes --no-install-recommends gcc libc6-dev libvirt-dev pkg-config && \
        pip install --require-hashes -r requirements-kvm.txt && \
        apt-get purge --yes --auto-remove gcc libc6-dev libvirt-dev pkg-config && \
        apt-get install --yes --no-install-recommends libvirt0 && rm -rf /var/lib/apt/lists/*; \
    fi

COPY manage.py .
COPY proxyfleet proxyfleet
COPY providers providers
COPY health health
COPY leasing leasing
COPY k8s_sync k8s_sync
COPY templates templates
RUN python -m compileall -q . && \
    useradd --system --uid 10001 --user-group --home-dir /var/lib/proxyfleet --create-home proxyfleet

USER 10001
ENV PROXYFLEET_STATE_DIR=/var/lib/proxyfleet
EXPOSE 8090
