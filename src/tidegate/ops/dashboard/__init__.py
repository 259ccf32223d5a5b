"""The dashboard: pages for operators, on the functions of the HTTP API and with their access checks."""
