"""Tidegate's API under Gunicorn, if that supervises everything else; `tidegate api` does the same by itself.

    pip install gunicorn uvicorn-worker
    PROMETHEUS_MULTIPROC_DIR=/run/tidegate/metrics gunicorn -c deploy/gunicorn.conf.py

SIGHUP replaces the workers; they finish their requests first. They put and ask: `tidegate worker` delivers.
"""

bind = "127.0.0.1:8080"
workers = 2
worker_class = "uvicorn_worker.UvicornWorker"  # uvicorn.workers is its deprecated predecessor
wsgi_app = "tidegate.ops.service:make_app()"
timeout = 60  # seconds without a sign of life: then a worker is killed
graceful_timeout = 30  # seconds that requests have to end
keepalive = 65  # longer than that of a proxy, so that the proxy closes first
accesslog = None  # the address of a login link holds a code
forwarded_allow_ips = "127.0.0.1"

# The log of Tidegate's own commands: scrubbed, JSON unless stderr is a terminal.
logconfig_dict = {
    "version": 1,
    "disable_existing_loggers": False,
    "formatters": {"line": {"()": "tidegate.ops.log_format.line_formatter"}},
    "handlers": {"stderr": {"class": "tidegate.ops.log_format.StderrHandler", "formatter": "line"}},
    "root": {"level": "INFO", "handlers": ["stderr"]},
    "loggers": {
        "gunicorn.error": {"level": "INFO", "handlers": ["stderr"], "propagate": False},
        "gunicorn.access": {"level": "CRITICAL", "handlers": [], "propagate": False},
    },
}
