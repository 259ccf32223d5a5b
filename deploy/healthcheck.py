"""Exits with 0 if /healthz at a port of this machine answers 200: `python healthcheck.py 8080`."""

import sys
from http import HTTPStatus
from http.client import HTTPConnection, HTTPException


def main() -> int:
    connection = HTTPConnection("127.0.0.1", int(sys.argv[1]), timeout=3)
    try:
        connection.request("GET", "/healthz")
        return int(connection.getresponse().status != HTTPStatus.OK)
    except (OSError, HTTPException):
        return 1
    finally:
        connection.close()


if __name__ == "__main__":
    sys.exit(main())
